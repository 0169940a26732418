"""Tensors from users' arrays and data sets, without a copy wherever torch can share the memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sized
from numbers import Number
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from lipt.errors import UsageError

T_co = TypeVar("T_co", covariant=True)
ArrayLike: TypeAlias = Tensor | npt.ArrayLike
#: A numpy array in the memory of a tensor, or a tensor on a GPU.
View: TypeAlias = Any


class Samples(Protocol[T_co]):
    """A map-style data set that is no `Dataset` of torch, such as a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


def view(x: Tensor) -> View:
    """The same memory as a numpy array on a CPU, where numpy has less overhead per operation; else the tensor."""
    return x.numpy() if x.is_cpu else x


def of_view(x: View) -> Tensor:
    """The inverse of `view`. (`torch.as_tensor` would move a tensor to the default device.)"""
    return x if isinstance(x, Tensor) else torch.from_numpy(x)


_NUMBERS = "hand over numbers in a numpy array, a tensor or a list"


def as_tensor(values: ArrayLike, what: str, remedy: str = _NUMBERS) -> Tensor:
    """A tensor that shares the memory and device of `values`, without gradient.

    Lists are copied, and so are arrays that torch cannot view (reversed, or of the other byte order). A memory-mapped
    array stays memory-mapped, so it may be larger than the memory. Do not write to the tensor of a read-only memory
    map: torch allows it, and the process is killed.

    Raises:
        UsageError: not numbers, of a type that torch lacks, or masked; names `what`.
    """
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise UsageError(f"{what}: a sparse tensor", "hand over tensor.to_dense()")
        return values.detach()
    if np.ma.is_masked(values):
        raise UsageError(f"{what}: some values are masked", "fill them in, or leave out their samples")
    try:
        if isinstance(values, (list, tuple)) and values and all(isinstance(each, Tensor) for each in values):
            return torch.stack([each.detach() for each in values])  # numpy takes none with gradients or on a GPU
        array = np.asarray(values)
        if array.dtype.kind in "OSU":
            raise TypeError(f"values of type {array.dtype}, not numbers")
        if not array.dtype.isnative or min(array.strides, default=0) < 0:
            array = array.astype(array.dtype.newbyteorder("="), order="C")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nothing writes to it
            return torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"{what}: {why}", remedy) from None


def as_labels(values: ArrayLike) -> Tensor:
    """Int64 labels from integers of any size.

    Raises:
        UsageError: not integers.
    """
    remedy = "number the classes from 0: np.unique(labels, return_inverse=True)[1]; of one-hot labels, labels.argmax(1)"
    return as_integers(values, "labels", remedy)


def as_integers(values: ArrayLike, what: str, remedy: str) -> Tensor:
    """Int64 from integers of any size; an empty list has no type, so it counts as integers.

    Raises:
        UsageError: not integers; names `what`.
    """
    found = as_tensor(values, what, remedy)
    if not found.numel():
        return found.long()
    if found.dtype.is_floating_point or found.dtype.is_complex or found.dtype == torch.bool:
        raise UsageError(f"{what} must be integers, not {found.dtype}", remedy)
    whole = found.long()
    if found.dtype == torch.uint64 and int(whole.min()) < 0:
        raise UsageError(f"{what} of 2^63 and more are no numbers of classes or samples", remedy)
    return whole


def per_model(values: Any) -> list[Any]:
    """One entry per model: those of a list or tuple, else the array alone; none for None. A list of rows, such as
    `tolist` makes, is the array of one model."""
    if values is None:
        return []
    several = isinstance(values, (list, tuple)) and (not values or _depth(values) > 2)
    return list(values) if several else [values]


def _depth(values: Any) -> int:
    """How many indices a number in `values` has; what is no number and no array counts as an array of a model."""
    if isinstance(values, (list, tuple)):
        return 1 + (_depth(values[0]) if values else 0)
    return int(getattr(values, "ndim", 0 if isinstance(values, Number) else 2))


def unloaded(data: Any) -> Any:
    """The data set of a DataLoader, whose length counts batches; any other data set as it is."""
    return data.dataset if isinstance(data, DataLoader) else data


def length_of(dataset: object) -> int:
    """The number of samples.

    Raises:
        UsageError: the data set has no length or no positions, or is a dict of data sets.
    """
    if isinstance(dataset, Mapping) and dataset and 0 not in dataset:  # such as DatasetDict of Hugging Face
        names = list(dataset)
        raise UsageError(
            f"the data set is a dict of the splits {', '.join(map(str, names))}",
            f"hand over one of them, such as dataset[{names[0]!r}]",
        )
    if not isinstance(dataset, Sized):
        raise UsageError("the data set has no length", "use a map-style data set: a selection is of positions in it")
    if isinstance(dataset, IterableDataset):  # some have a length
        raise UsageError(
            f"the data set is iterable ({type(dataset).__name__}): its samples have no positions",
            "use a map-style data set: a selection is of positions in it",
        )
    return len(dataset)
