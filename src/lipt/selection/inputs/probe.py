"""The images with which a network is tried before the pass over a data set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from lipt.errors import UsageError

#: What torch says of a BatchNorm without running statistics, if a batch has a single value per channel.
_REFUSES_ONE = "Expected more than 1 value per channel"


def probe_of(model: nn.Module, images: Tensor) -> Tensor:
    """The first image alone, so that a model which drops the axis of images is noticed; both if it refuses one."""
    try:
        model(images[:1])
    except ValueError as error:
        if _REFUSES_ONE not in str(error):
            raise
        return images
    return images[:1]


@contextmanager
def averages_named(index: int) -> Iterator[None]:
    """In place of torch's error: why model `index` cannot process a batch of one image.

    Raises:
        UsageError: it averages over a batch.
    """
    try:
        yield
    except ValueError as error:
        if _REFUSES_ONE not in str(error):
            raise
        raise UsageError(
            f"model {index} averages over a batch (BatchNorm without running statistics), and one has a single image",
            "hand over at least two images, and a batch_size that leaves no single one for the last batch",
        ) from None
