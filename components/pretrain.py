"""Box 2, once per worker."""

from kfp import dsl

from components import box


@box
def pretrain(plan: dsl.Input[dsl.Artifact], index: int, jigsaw: dsl.Output[dsl.Model]) -> None:
    """Train and prune one jigsaw on its shard; a worker that cannot says why instead, and the merge applies the quorum.

    Args:
        index: which worker; -1 when there is nothing to pre-train.
        jigsaw: the worker's answer as JSON: the reference of its jigsaw, or why there is none.
    """
    from lipt.stages.boxes import Plan, load, pod, pretrain_box, save

    with pod():
        answer = pretrain_box(Plan.from_json(load(plan)), int(index))
        save(jigsaw, answer.to_json(), index=answer.index, ref=answer.ref, error=answer.error[:500] or None)
