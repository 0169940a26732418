"""Box 4: the subset."""

from kfp import dsl

from components import box


@box
def select(spec: str, merged: dsl.Input[dsl.Model], subset: dsl.Output[dsl.Dataset]) -> None:
    """Score every candidate and select the subset.

    Args:
        subset: the reference of a table with score, rank and weight of every candidate.
    """
    from lipt.pods.boxes import load, pod, save, select_box

    with pod():
        chosen = select_box(spec, load(merged) or None)
        figures = {name: chosen.summary[name] for name in ("count", "candidates", "algorithm")}
        save(subset, chosen.ref, ref=chosen.ref, **figures)
