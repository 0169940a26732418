"""A selection: the chosen samples, their provenance, the table that stores them, and data sets and samplers to train.

Shape legend: N candidates, K chosen.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, WeightedRandomSampler

from lipt.errors import RunError, UsageError
from lipt.selection.arrays import length_of
from lipt.version import __version__

T = TypeVar("T")

_COLUMNS = {
    "position": pa.int64(),
    "label": pa.int32(),
    "score": pa.float32(),
    "rank": pa.int32(),
    "weight": pa.float32(),
}
_SOURCE = "source"
_METADATA = b"lipt"
_PROVENANCE: dict[str, type | tuple[type, ...]] = {
    "algorithm": str,
    "options": dict,
    "fraction": (int, float),
    "balanced": bool,
    "seed": int,
    "version": str,
}
_REMEDY = "choose a file that Selection.save, `lipt select` or a run has written"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The chosen samples and how they were chosen.

    Raises:
        UsageError: notes are not JSON, or have the name of another entry of the provenance.
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
        check_notes(self.notes)

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

    def ascending(self) -> tuple[Tensor, Tensor]:
        """Positions (K,) of the chosen samples in the data set, and their raw weights (K,), on the CPU. Positions are
        int64 and ascending, the fastest order to read."""
        positions_K, order_K = self.positions_N.cpu()[self.indices_K.cpu()].sort()
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

    def subset(self, dataset: Dataset[T]) -> Subset[T]:
        """The chosen samples of the data set that was scored, in the order of `indices_K`.

        If balanced, this is class after class: let the loader shuffle, or draw with `sampler`.

        Raises:
            UsageError: the data set has no length, or is shorter than the scored one.
        """
        count, last = length_of(dataset), int(self.positions_N.max())
        if last >= count:
            raise UsageError(
                f"the candidates reach up to position {last}, the data set has {count} samples",
                "hand over the data set that was scored",
            )
        return Subset(dataset, self.positions_N.cpu()[self.indices_K.cpu()].tolist())

    def sampler(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> WeightedRandomSampler:
        """A sampler for a DataLoader over `subset`. It draws with replacement, in proportion to the weights.

        Args:
            num_samples: samples per epoch; None = K.

        Raises:
            UsageError: `num_samples` is below 1, or all weights are 0.
        """
        if num_samples is not None and num_samples < 1:
            raise UsageError(f"num_samples must be at least 1, not {num_samples}")
        weights_K = self.normalised_weights()
        return WeightedRandomSampler(weights_K.tolist(), num_samples or len(weights_K), generator=generator)

    def table(self) -> pa.Table:
        """One row per candidate, in their order: position, label, score, rank, weight and, if known, source.

        Rank and weight are null unless the sample is chosen. The schema's metadata hold the provenance as JSON under
        the key `lipt`.
        """
        n, indices_K = len(self.labels_N), self.indices_K.cpu().numpy()
        ranks_N, weights_N = np.full(n, -1, np.int32), np.zeros(n, np.float32)
        ranks_N[indices_K], weights_N[indices_K] = np.arange(len(indices_K)), self.weights_K.cpu().numpy()
        left_N = ranks_N < 0
        columns = {
            "position": self.positions_N.cpu().numpy(),
            "label": self.labels_N.cpu().numpy().astype(np.int32),
            "score": pa.nulls(n, pa.float32()) if self.scores_N is None else self.scores_N.cpu().numpy(),
            "rank": pa.array(ranks_N, mask=left_N),
            "weight": pa.array(weights_N, mask=left_N),
        }
        if self.sources_N is not None:
            columns[_SOURCE] = self.sources_N
        return pa.table(columns, metadata={_METADATA: json.dumps(self.provenance, sort_keys=True)})

    def to_parquet(self) -> bytes:
        """The table as one Parquet file."""
        sink = io.BytesIO()
        pq.write_table(self.table(), sink, compression="zstd")
        return sink.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to `path` as Parquet, atomically.

        Raises:
            RunError: the file cannot be written.
        """
        target = Path(path)
        temporary = target.with_name(f".{uuid4().hex}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(self.to_parquet())
                file.flush()
                os.fsync(file.fileno())  # otherwise a power loss could leave an empty file under the new name
            os.replace(temporary, target)
        except OSError as error:
            why = error.strerror or error
            raise RunError(f"cannot write {path}: {why}", "free space, or write to another folder") from None
        finally:
            with suppress(OSError):
                temporary.unlink()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Selection:
        """Read a file of `save`, `lipt select` or a run (`subset.parquet`); tensors are on the CPU.

        Raises:
            UsageError: there is no such file, or it is not a selection.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}", _REMEDY) from None
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
            names = [name for name in pq.read_schema(io.BytesIO(data)).names if sources or name != _SOURCE]
            return cls._from_table(pq.read_table(io.BytesIO(data), columns=names))
        except (pa.ArrowException, OSError, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise UsageError(f"{origin} is not a selection: {why}", _REMEDY) from None

    @classmethod
    def _from_table(cls, table: pa.Table) -> Selection:
        """The inverse of `table`; raises ValueError if the table is not a selection."""
        sources_N = None
        if table.schema.names[-1:] == [_SOURCE] and table.schema.types[-1] == pa.string():
            sources_N, table = table[_SOURCE], table.drop_columns(_SOURCE)
        if list(zip(table.schema.names, table.schema.types, strict=True)) != list(_COLUMNS.items()):
            raise ValueError(f"its columns are {', '.join(table.schema.names)}, expected {', '.join(_COLUMNS)}")
        notes = json.loads((table.schema.metadata or {}).get(_METADATA, b"null"))
        for name, kind in _PROVENANCE.items():
            if not isinstance(notes, dict) or not isinstance(notes.get(name), kind):
                raise ValueError(f"its provenance lacks {name}")
        how = {name: notes.pop(name) for name in _PROVENANCE}
        rows_K = np.flatnonzero(table["rank"].is_valid().to_numpy())
        kept = table.take(pa.array(rows_K))
        order_K = np.argsort(kept["rank"].to_numpy())
        _check(table, kept)
        scored = table["score"].null_count == 0
        return cls(
            indices_K=torch.from_numpy(rows_K[order_K]),
            weights_K=torch.from_numpy(kept["weight"].to_numpy()[order_K]),
            scores_N=torch.from_numpy(table["score"].to_numpy().copy()) if scored else None,
            labels_N=torch.from_numpy(table["label"].to_numpy().astype(np.int64)),
            positions_N=torch.from_numpy(table["position"].to_numpy().copy()),
            sources_N=sources_N,
            notes=notes,
            **how,
        )


def check_notes(notes: Mapping[str, Any]) -> None:
    """Raise UsageError if `notes` are not JSON, or have the name of another entry of the provenance."""
    taken = sorted(_PROVENANCE.keys() & notes.keys())
    if taken:
        raise UsageError(f"note {taken[0]!r} is an entry of every provenance", "give it another name")
    try:
        json.dumps(dict(notes))
    except (TypeError, ValueError) as error:
        raise UsageError(f"notes cannot be stored: {error}", "use strings, numbers, lists and dicts") from None


def _check(table: pa.Table, kept: pa.Table) -> None:
    """Raise ValueError if the values cannot be those of a selection."""
    n, k = len(table), len(kept)
    nulls = {name: table[name].null_count for name in _COLUMNS}
    positions_N, weights_K = table["position"].to_numpy(), kept["weight"].to_numpy()
    if not k:
        raise ValueError("no row is chosen")
    if nulls["position"] or nulls["label"] or nulls["score"] not in (0, n) or kept["weight"].null_count:
        raise ValueError("a row lacks its position, label, score or weight")
    if positions_N.min() < 0 or len(np.unique(positions_N)) < n:
        raise ValueError("its positions are negative or not distinct")
    if not np.array_equal(np.sort(kept["rank"].to_numpy()), np.arange(k)):
        raise ValueError(f"the ranks of its {k} chosen rows are not 0..{k - 1}")
    if not (np.isfinite(weights_K) & (weights_K >= 0)).all():
        raise ValueError("its weights are negative or not finite")
