"""Divides the training images: validation first, then disjoint shards for the workers.

Positions refer to the global order of the data set. It is a stratified shuffle: in every contiguous window each class
has its share, within about one sample. So a window is a stratified sample, and reading it takes one range request.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lipt.errors import UsageError
from lipt.rng import generator, permutation

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]


def split(n: int, validation_fraction: float, *, seed: int) -> tuple[Positions, Positions]:
    """Positions of validation images and candidates, both int64. The seed decides where the validation window starts.

    Raises:
        UsageError: one of the two would be empty.
    """
    num_validation = count_validation(n, validation_fraction)
    start = int(torch.randint(n, (), generator=generator(seed, "split")))
    order = (start + np.arange(n)) % n
    return order[:num_validation], order[num_validation:]


def with_each_class(
    labels_N: npt.NDArray[np.integer[Any]], validation: Positions, candidates: Positions
) -> tuple[Positions, Positions]:
    """The same split, but each class has a candidate, because a network cannot learn a class from no image.

    Images of classes without a candidate, usually classes of one image, leave the validation part in exchange for
    candidates of classes that have several.

    Args:
        labels_N: of all training images.
    """
    classes = int(labels_N.max()) + 1
    held_C, left_C = (np.bincount(labels_N[part], minlength=classes) for part in (validation, candidates))
    validation, candidates = validation.copy(), candidates.copy()
    for label in np.flatnonzero((held_C > 0) & (left_C == 0)):
        spare = np.flatnonzero(left_C[labels_N[candidates]] > 1)
        if not len(spare):
            break
        ours, theirs = np.flatnonzero(labels_N[validation] == label)[0], spare[0]
        left_C[labels_N[candidates[theirs]]] -= 1
        validation[ours], candidates[theirs] = candidates[theirs], validation[ours]
    return validation, candidates


def count_validation(n: int, validation_fraction: float) -> int:
    """The number of validation images among n training images.

    Raises:
        UsageError: no image would be left for validation, or none for training.
    """
    num_validation = round(validation_fraction * n)
    if not 0 < num_validation < n:
        raise UsageError(
            f"{100 * validation_fraction:g} % of {n} training images cannot be set aside for validation",
            "change data.validation_fraction: both parts need at least one image",
        )
    return num_validation


def shards(candidates: Positions, *, count: int, size: int, stratified: bool, seed: int) -> list[Positions]:
    """`count` disjoint shards of `size` positions: windows of the stratified order, or plain random draws.

    Raises:
        UsageError: fewer than count * size candidates.
    """
    check_shards(len(candidates), count=count, size=size)
    if stratified:
        windows = permutation(len(candidates) // size, seed, "dispatch")[:count].tolist()
        return [candidates[window * size : (window + 1) * size] for window in windows]
    drawn = candidates[permutation(len(candidates), seed, "dispatch").numpy()[: count * size]]
    return list(drawn.reshape(count, size))


def check_shards(candidates: int, *, count: int, size: int) -> None:
    """
    Raises:
        UsageError: there are fewer than count * size candidates.
    """
    if candidates < count * size:
        raise UsageError(
            f"{count} jigsaws of {size} images need {count * size:,} candidates, the data set has {candidates:,}",
            "lower dispatch.jigsaws, dispatch.batches or dispatch.batch_size",
        )
