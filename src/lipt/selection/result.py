"""A selection: the chosen samples, their provenance, the table that stores them, and data sets and samplers to train.

Shape legend: N candidates, K chosen.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

from lipt.errors import RunError, UsageError
from lipt.files import write_whole
from lipt.parquet import parquet_source
from lipt.selection.arrays import Samples, length_of, unloaded
from lipt.selection.notebook import facts_table
from lipt.selection.options import integer
from lipt.selection.table import REMEDY, SOURCE, as_table, check_ending, checked_notes, file_named, of_table
from lipt.version import __version__

T = TypeVar("T")

#: The number of classes that a notebook shows.
_SHOWN = 20


class _Selectable(Protocol):
    """A data set of Hugging Face's `datasets`."""

    def __len__(self) -> int: ...

    def select(self, indices: list[int]) -> Any: ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Selection:
    """The chosen samples and how they were chosen.

    Raises:
        UsageError: notes are no mapping from text to JSON, or have the name of another entry of the provenance.
    """

    indices_K: Tensor
    """Int64 (K,) distinct rows of the candidates, in order of pick; class after class if balanced. `weights_K`,
    `subset` and `normalised_weights` have the same order; only `ascending` has another."""
    weights_K: Tensor
    """Float32 (K,) >= 0, raw; ones if the algorithm defines none. Training normalises them to mean 1."""
    scores_N: Tensor | None
    """Float32 (N,), if the algorithm scores every candidate; rankings pick the highest, `ccs` and `dual` draw by it."""
    labels_N: Tensor
    """Int64 (N,), of all candidates."""
    positions_N: Tensor
    """Int64 (N,), position of each candidate in the data set; 0..N-1 unless the candidates are a part of it."""
    sources_N: pa.ChunkedArray | None = None
    """String (N,), name of each candidate in its source; None if unknown."""
    algorithm: str
    """The algorithm that ran; for `auto` the one that it chose."""
    options: Mapping[str, Any]
    """All options of the algorithm, defaults included."""
    fraction: float
    balanced: bool
    seed: int
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the provenance, such as the digest of the checkpoint: JSON values."""
    version: str = __version__
    """Version of the package that selected."""
    remarks: Sequence[str] = ()
    """Sentences for the reader of the selection; not stored."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", checked_notes(self.notes))

    def __len__(self) -> int:
        """K."""
        return len(self.indices_K)

    def __eq__(self, other: object) -> bool:
        """Whether the table and the provenance are equal: the same samples in the same order, chosen in the same way.
        Tensors may be on different devices."""
        return self.table().equals(other.table(), check_metadata=True) if isinstance(other, Selection) else False

    __hash__ = None  # type: ignore[assignment]  # as for a list: compared by its contents

    def __repr__(self) -> str:
        facts = self._facts()
        return f"Selection({facts['kept']} by {facts['by']}, seed {facts['seed']})"

    def _repr_html_(self) -> str:
        """The facts of `repr`, and how much of each class is kept, as a table of a notebook."""
        of_C = torch.bincount(self.labels_N)
        kept_C = torch.bincount(self.labels_N[self.indices_K], minlength=len(of_C))
        classes = [f"{label}: {int(kept)} of {int(of_C[label])}" for label, kept in enumerate(kept_C[:_SHOWN])]
        more = [f"and {len(kept_C) - _SHOWN} more"] if len(kept_C) > _SHOWN else []
        facts = self._facts() | {"kept per class": ", ".join(classes + more)}
        return facts_table("Selection", facts)

    def _facts(self) -> dict[str, str]:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return {
            "kept": f"{len(self):,} of {len(self.labels_N):,} candidates",
            "by": f"{self.algorithm}({options})",
            "seed": str(self.seed),
        }

    @property
    def provenance(self) -> dict[str, Any]:
        """Everything that repeats this selection: algorithm, options, fraction, balanced, seed, version, notes."""
        return {
            **self.notes,
            "algorithm": self.algorithm,
            "options": dict(self.options),
            "fraction": float(self.fraction),
            "balanced": bool(self.balanced),
            "seed": int(self.seed),
            "version": self.version,
        }

    @property
    def positions_K(self) -> Tensor:
        """Int64 (K,), position of each pick in the data set, on the CPU, in the order of `indices_K`."""
        return self.positions_N.cpu()[self.indices_K.cpu()]

    def ascending(self) -> tuple[Tensor, Tensor]:
        """Positions (K,) of the chosen samples in the data set, and their raw weights (K,), on the CPU. Positions are
        int64 and ascending, the fastest order to read."""
        positions_K, order_K = self.positions_K.sort()
        return positions_K, self.weights_K.cpu()[order_K]

    def normalised_weights(self) -> Tensor:
        """`weights_K` with mean 1, float32 on the CPU; row k belongs to sample k of `subset`.

        Raises:
            UsageError: all weights are 0.
        """
        weights_K = self.weights_K.cpu().double()
        if not bool(weights_K.any()):
            raise UsageError("all weights of the selection are 0", "train on the subset without weights")
        return (weights_K / weights_K.mean()).float()

    def subset(self, dataset: Dataset[T] | DataLoader[T] | Samples[T]) -> Subset[T]:
        """The chosen samples of the data set that was scored, in the order of `indices_K`. Of a DataLoader, its data
        set counts.

        If balanced, this is class after class: let the loader shuffle, or draw with `sampler`.

        Raises:
            UsageError: the data set has no length, or is shorter than the scored one.
        """
        samples = unloaded(dataset)
        return Subset(cast(Dataset[T], samples), self._positions_in(length_of(samples)))

    def huggingface(self, dataset: _Selectable | DataLoader[Any]) -> Any:
        """The chosen rows of the Hugging Face data set that was scored (`dataset.select`), in the order of `indices_K`.
        Of a DataLoader, its data set counts.

        Raises:
            UsageError: the data set has no `select`, or is shorter than the scored one.
        """
        rows = unloaded(dataset)
        positions = self._positions_in(length_of(rows))
        if not callable(getattr(rows, "select", None)):
            raise UsageError(f"{type(rows).__name__} has no select", "use subset(dataset) for a data set of torch")
        return rows.select(positions)

    def files(self, names: Iterable[str | os.PathLike[str]] | None = None) -> list[str]:
        """The names of the chosen samples, in the order of `indices_K`.

        Args:
            names: name of each sample of the data set, in its order, such as
                `[path for path, _ in image_folder.samples]`; None = the names that a run has stored with the selection.

        Raises:
            UsageError: no names are known, there are fewer than samples, or they are no text and no paths.
        """
        if names is not None:
            listed = list(names)  # in brackets, a column of pandas would look for the labels of its index
            last = int(self.positions_N.max())
            if last >= len(listed):
                raise UsageError(
                    f"the list has {len(listed):,} name{'s' * (len(listed) != 1)}; the candidates reach up to position "
                    f"{last}",
                    "give one name per image that was scored",
                )
            chosen = [listed[position] for position in self.positions_K.tolist()]
            if others := [each for each in chosen if not isinstance(each, (str, os.PathLike))]:
                raise UsageError(
                    f"the name of a sample is a {type(others[0]).__name__}",
                    "hand over the paths alone, such as [path for path, _ in image_folder.samples]",
                )
            return [os.fspath(each) for each in chosen]
        if self.sources_N is None:
            raise UsageError(
                "the selection does not know the names of the samples", "pass the name of each sample: files(names)"
            )
        return [str(name) for name in self.sources_N.take(pa.array(self.indices_K.cpu().numpy())).to_pylist()]

    def _positions_in(self, count: int) -> list[int]:
        """`positions_K`, checked against the length of a data set."""
        last = int(self.positions_N.max())
        if last >= count:
            raise UsageError(
                f"the candidates reach up to position {last}, the data set has {count} sample{'s' * (count != 1)}",
                "hand over the data set that was scored",
            )
        positions: list[int] = self.positions_K.tolist()
        return positions

    def sampler(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> WeightedRandomSampler:
        """A sampler for a DataLoader over `subset`. It draws with replacement, in proportion to the weights.

        Args:
            num_samples: samples per epoch; None = K.

        Raises:
            UsageError: `num_samples` is no integer of 1 or more, or all weights are 0.
        """
        weights_K = self.normalised_weights()
        count = len(weights_K) if num_samples is None else integer(num_samples, "num_samples", least=1)
        return WeightedRandomSampler(weights_K.tolist(), count, generator=generator)

    def table(self) -> pa.Table:
        """One row per candidate, in their order: position, label, score, rank, weight and, if known, source.

        Rank and weight are null unless the sample is chosen. The schema's metadata hold the provenance as JSON under
        the key `lipt`.
        """
        return as_table(
            indices_K=self.indices_K,
            weights_K=self.weights_K,
            scores_N=self.scores_N,
            labels_N=self.labels_N,
            positions_N=self.positions_N,
            sources_N=self.sources_N,
            provenance=self.provenance,
        )

    def to_parquet(self) -> bytes:
        """The table as one Parquet file."""
        sink = io.BytesIO()
        pq.write_table(self.table(), sink, compression="zstd")
        return sink.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to `path` as Parquet, atomically. Of a link, the file that it leads to is replaced.

        Raises:
            UsageError: `path` names no file, but a device or a pipe for example, or does not end in .parquet.
            RunError: the file cannot be written.
        """
        target = Path(os.path.realpath(file_named(path)))
        if os.path.exists(target) and not (os.path.isfile(target) or os.path.isdir(target)):
            raise UsageError(f"{path} is a device or a pipe, which would be replaced", "name a file")
        check_ending(os.fspath(path))
        try:
            write_whole(target, self.to_parquet())
        except OSError as error:
            remedy = "write to another folder; if the disk is full, free space"
            raise RunError(f"cannot write {path}: {error.strerror or error}", remedy) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Selection:
        """Read a file of `save`, `lipt select` or a run (`subset.parquet`); tensors are on the CPU.

        Raises:
            UsageError: there is no such file, or it is not a selection.
        """
        try:
            data = file_named(path).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}", REMEDY) from None
        return cls.from_parquet(data, origin=str(path))

    @classmethod
    def from_parquet(cls, data: bytes, *, origin: str, sources: bool = True) -> Selection:
        """The inverse of `to_parquet`.

        Args:
            sources: False leaves out the names of the candidates, which may take more memory than everything else.

        Raises:
            UsageError: `data` is not a selection; names `origin`.
        """
        try:
            file = parquet_source(data)
            names = [name for name in pq.read_schema(file).names if sources or name != SOURCE]
            return cls(**of_table(pq.read_table(file, columns=names)))
        except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
            why = str(error).partition("\n")[0]
            raise UsageError(f"{origin} is not a selection: {why}", REMEDY) from None
