"""Box 3: theta_p."""

from kfp import dsl

from components import box


@box
def merge(spec: str, merged: dsl.Output[dsl.Model], metrics: dsl.Output[dsl.Metrics]) -> None:
    """Merge the jigsaws that arrived into theta_p. Fails if they are fewer than the quorum, and names the missing ones.

    Args:
        merged: the reference of theta_p; empty if the algorithm needs no model.
        metrics: validation accuracies of theta_*, the best jigsaw, the uniform average and the soup.
    """
    from lipt.pods.boxes import merge_box, pod, save
    from lipt.pods.outputs import merge_figures

    with pod():
        theta = merge_box(spec)
        save(merged, theta.ref if theta else "", ref=theta.ref if theta else None)
        metrics.metadata.update(merge_figures(theta))
