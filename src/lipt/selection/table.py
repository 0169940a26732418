"""The table of a selection, one row per candidate, and the checks of a table that somebody hands over.

Shape legend: N candidates, K chosen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection.options import plain

_COLUMNS = {
    "position": pa.int64(),
    "label": pa.int32(),
    "score": pa.float32(),
    "rank": pa.int32(),
    "weight": pa.float32(),
}
SOURCE = "source"
_METADATA = b"lipt"
_PROVENANCE: dict[str, type | tuple[type, ...]] = {
    "algorithm": str,
    "options": dict,
    "fraction": (int, float),
    "balanced": bool,
    "seed": int,
    "version": str,
}
REMEDY = "choose a file that Selection.save, `lipt select` or a run has written"


def as_table(
    *,
    indices_K: Tensor,
    weights_K: Tensor,
    scores_N: Tensor | None,
    labels_N: Tensor,
    positions_N: Tensor,
    sources_N: pa.ChunkedArray | None,
    provenance: Mapping[str, Any],
) -> pa.Table:
    """One row per candidate, in their order; see `Selection.table`."""
    n, rows_K = len(labels_N), indices_K.cpu().numpy()
    ranks_N, weights_N = np.full(n, -1, np.int32), np.zeros(n, np.float32)
    ranks_N[rows_K], weights_N[rows_K] = np.arange(len(rows_K)), weights_K.cpu().numpy()
    left_N = ranks_N < 0
    columns = {
        "position": positions_N.cpu().numpy(),
        "label": labels_N.cpu().numpy().astype(np.int32),
        "score": pa.nulls(n, pa.float32()) if scores_N is None else scores_N.cpu().numpy(),
        "rank": pa.array(ranks_N, mask=left_N),
        "weight": pa.array(weights_N, mask=left_N),
    }
    if sources_N is not None:
        columns[SOURCE] = sources_N
    return pa.table(columns, metadata={_METADATA: json.dumps(provenance, sort_keys=True)})


def of_table(table: pa.Table) -> dict[str, Any]:
    """The fields of the selection that `as_table` stored; raises ValueError if the table is not a selection."""
    sources_N = None
    if table.schema.names[-1:] == [SOURCE] and table.schema.types[-1] == pa.string():
        sources_N, table = table[SOURCE], table.drop_columns(SOURCE)
    if list(zip(table.schema.names, table.schema.types, strict=True)) != list(_COLUMNS.items()):
        found, expected = (
            ", ".join(f"{name} ({kind})" for name, kind in columns)
            for columns in (zip(table.schema.names, table.schema.types, strict=True), _COLUMNS.items())
        )
        raise ValueError(f"its columns are {found}, expected {expected}")
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
    return dict(
        indices_K=torch.from_numpy(rows_K[order_K]),
        weights_K=torch.from_numpy(kept["weight"].to_numpy()[order_K]),
        scores_N=torch.from_numpy(table["score"].to_numpy().copy()) if scored else None,
        labels_N=torch.from_numpy(table["label"].to_numpy().astype(np.int64)),
        positions_N=torch.from_numpy(table["position"].to_numpy().copy()),
        sources_N=sources_N,
        notes=notes,
        **how,
    )


def checked_notes(notes: Any) -> dict[str, Any]:
    """The notes with numpy scalars as numbers.

    Raises:
        UsageError: they are no mapping from text to JSON, or have the name of another entry of the provenance.
    """
    if not isinstance(notes, Mapping):
        raise UsageError(f"notes are a {type(notes).__name__}, not a mapping", "pass a dict from names to values")
    found = {key: plain(value) for key, value in notes.items()}
    remedy = "use strings as names, and strings, numbers, lists and dicts as values"
    for key in found:
        if not isinstance(key, str):
            raise UsageError(f"notes cannot be stored: the name {key!r} is no text", remedy)
        if key in _PROVENANCE:
            raise UsageError(f"note {key!r} is an entry of every provenance", "give it another name")
    try:
        json.dumps(found, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"notes cannot be stored: {error}", remedy) from None
    return found


def file_named(path: str | os.PathLike[str]) -> Path:
    """The path of a file to read or write.

    Raises:
        UsageError: it cannot be the name of a file.
    """
    named = isinstance(path, (str, os.PathLike))
    if not named or not Path(path).name or "\0" in os.fspath(path):
        raise UsageError(f"{path!r} is no name of a file", "name one, such as subset.parquet")
    return Path(path)


def check_ending(path: str, option: str = "") -> None:
    """
    Args:
        option: the option of a command that names the file, for the message.

    Raises:
        UsageError: the file that a selection is written to is not called .parquet, so others would misread it.
    """
    if not path.endswith(".parquet"):
        raise UsageError(
            f"{f'{option} {path}'.lstrip()}: the selection is written as Parquet",
            f"name it {os.path.splitext(path)[0]}.parquet",
        )


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
    if table["label"].to_numpy().min() < 0 or np.isnan(table["score"].drop_null().to_numpy()).any():
        raise ValueError("a label is negative, or a score is NaN")
    if not np.array_equal(np.sort(kept["rank"].to_numpy()), np.arange(k)):
        raise ValueError(f"the ranks of its {k} chosen rows are not 0..{k - 1}")
    if not (np.isfinite(weights_K) & (weights_K >= 0)).all():
        raise ValueError("its weights are negative or not finite")
