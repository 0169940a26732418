"""Group: merge the jigsaws of one group into a soup; `merge` then merges the soups (Ro et al., ICML 2023)."""

from collections.abc import Sequence
from typing import Any

from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.network import read_weights
from lipt.stages.inputs import check_index
from lipt.stages.merge import by_index, merge_settings, merged_soup, summary_of
from lipt.stages.pretrain import DELTA
from lipt.training.tensor_files import encode_delta


def group(
    ctx: Context, dataset: Artifact, theta: Artifact, shards: Artifact, jigsaws: Sequence[Artifact], *, index: int
) -> Stage:
    """Merge the jigsaws of one group. File: the difference between their soup and theta_*, stored like a jigsaw.

    The soup is evaluated on the search images only; `merge` evaluates the result on more. If no
    jigsaw improves on theta_*, the result is theta_* itself, and the file is almost empty.
    """
    ctx, dataset = ctx.of_scorer(), ctx.data_of_scorer(dataset)
    check_index(index, ctx.config.merge.groups, "group")

    def body(attempt: Attempt) -> dict[str, Any]:
        shard = min(by_index(jigsaws))
        soup = merged_soup(ctx, attempt, dataset, theta, shards, jigsaws, shard=shard, confirm=False)
        attempt.put(DELTA, encode_delta(soup.state, read_weights(attempt, theta)), kind="model")
        return summary_of(soup, "jigsaw")

    chosen, inputs = merge_settings(ctx, index=index), [dataset, theta, shards, *by_index(jigsaws).values()]
    del chosen["merge"]["confirmation_images"]  # only the merge of the soups looks at them
    return Stage(ctx=ctx, name="group", settings=chosen, inputs=inputs, body=body, label=f"group[{index}]")
