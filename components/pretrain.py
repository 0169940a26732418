"""Box 2: the jigsaws, in worker pods."""

from kfp import dsl

from components import box


@box
def pretrain(spec: str, metrics: dsl.Output[dsl.Metrics]) -> None:
    """Train and prune the jigsaws in worker pods. Lost jigsaws do not fail this box: the merge applies the quorum.

    Args:
        metrics: the numbers of arrived and expected jigsaws.
    """
    from lipt.pods.boxes import pod, pretrain_box

    with pod():
        arrived, expected = pretrain_box(spec)
        metrics.metadata.update(jigsaws_arrived=arrived, jigsaws_expected=expected)
