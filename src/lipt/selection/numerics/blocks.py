"""Candidates in blocks of rows, to bound memory, and grouped by class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

#: Size of a block, counted in float32: small enough for a shared cache, large enough to keep all threads busy.
BLOCK_BYTES = 2**24


def block_rows(width: int) -> int:
    """Rows of `width` numbers per block, at least 1."""
    return max(1, BLOCK_BYTES // (4 * max(1, width)))


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Consecutive blocks that cover the rows 0..n-1; one empty block if n is 0."""
    size = block_rows(width)
    return (slice(start, min(start + size, n)) for start in range(0, max(n, 1), size))


def per_row(n: int, width: int, compute: Callable[[slice], Tensor]) -> Tensor:
    """The results (N,) of `compute`, called once per block; it returns one value per row."""
    if n <= block_rows(width):
        return compute(slice(0, n))
    results = RowBuffer(n)
    for block in row_blocks(n, width):
        results.put(block.start, {"": compute(block)})
    return results.tensors[""]


class RowBuffer:
    """Tensors of n rows that are filled block by block.

    Joining blocks at the end would take the memory twice, and the kept blocks would fragment it.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.tensors: dict[str, Tensor] = {}

    def put(self, start: int, block: Mapping[str, Tensor]) -> None:
        """Copy a block into the rows from `start` on."""
        for name, rows_BX in block.items():
            if name not in self.tensors:
                self.tensors[name] = rows_BX.new_empty(self.n, *rows_BX.shape[1:])
            self.tensors[name][start : start + len(rows_BX)] = rows_BX


def as_slice(rows_M: Tensor) -> Tensor | slice:
    """A slice if the rows (ascending, distinct, on a CPU) are consecutive, so that indexing copies nothing."""
    if not rows_M.is_cpu or not (n := rows_M.shape[0]):
        return rows_M
    rows = rows_M.numpy()
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == n else rows_M


def class_sizes(labels_N: Tensor, num_classes: int) -> list[int]:
    """Number of members of every class 0..num_classes-1."""
    sizes: list[int] = np.bincount(labels_N.numpy(force=True), minlength=num_classes).tolist()
    return sizes


def members_by_class(labels_N: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Positions (M,) of every class, ascending; empty for a class without members. One stable sort.

    Args:
        sizes: of the classes.
    """
    if not labels_N.is_cpu:
        order_N = labels_N.sort(stable=True).indices
    else:
        order_N = torch.from_numpy(by_class(labels_N.numpy(), len(sizes)))
    return list(order_N.split_with_sizes(list(sizes)))


def by_class(labels: npt.NDArray[np.int64], num_classes: int) -> npt.NDArray[np.int64]:
    """Positions (N,) sorted by class, ascending within each."""
    small = labels.astype(np.int16 if num_classes < 2**15 else np.int64)  # numpy sorts small integers by radix sort
    return small.argsort(kind="stable")
