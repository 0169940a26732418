"""Box 2: a Job with a pod for each jigsaw."""

from kfp import dsl

from components import box


@box
def pretrain(spec: str, metrics: dsl.Output[dsl.Metrics]) -> None:
    """Train and prune the jigsaws, each in a pod on a node of its own; those that are lost are the merge's business.

    Args:
        metrics: how many jigsaws arrived, of how many.
    """
    from lipt.pods.boxes import pod, pretrain_box

    with pod():
        arrived, expected = pretrain_box(spec)
        metrics.metadata.update(jigsaws_arrived=arrived, jigsaws_expected=expected)
