"""A chunk store with any damage: it is read as it was, or one error says what is wrong."""

from __future__ import annotations

import hashlib
import io
import json
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lipt.adapters.store import MissingObjectError
from lipt.data.chunks import Dataset, Manifest, read_samples
from lipt.data.chunks.manifest import canonical_digest
from lipt.errors import IntegrityError, RunError
from tests.unit.data.chunks.helpers import Memory, Noise, write

_SOURCE = Noise({"train": [12, 8], "test": [3, 2]})
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_QUICK = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@cache
def whole() -> Memory:
    memory = Memory()
    write(memory, _SOURCE, chunk_bytes=20_000)
    return memory


class Stored(Memory):
    """Files that are read as a store reads them."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files = files

    def read(self, file: str, start: int, length: int | None) -> bytes:
        if file not in self.files:
            raise MissingObjectError(file, "restore it")
        return super().read(file, start, length)


def contents(memory: Memory) -> Any:
    """All that a reader gets to see."""
    dataset = Dataset(memory.read)
    seen: list[Any] = [dataset.manifest.classes]
    for split, info in dataset.manifest.splits.items():
        names = dataset.names(split)
        samples = list(read_samples(dataset.ranges_of(split, np.arange(info.count)), memory.read))
        seen.append((split, samples, names.to_pylist()))
    return seen


def same_or_told(files: dict[str, bytes], *, renamed: bool = False) -> None:
    """Raises what is no error of this package. `renamed`: the names of the classes may differ."""
    start = int(renamed)  # the names of the classes come first
    try:
        seen = contents(Stored(files))
    except RunError as error:
        seen = error
    assert (seen.message and seen.remedy) if isinstance(seen, RunError) else seen[start:] == contents(whole())[start:]


@_QUICK
@given(data=st.data())
def test_flipped_bits_and_cut_files(data: st.DataObject) -> None:
    files = dict(whole().files)
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    files[name] = bytes(content)
    same_or_told(files)


@_QUICK
@given(data=st.data())
def test_a_manifest_of_anything_under_a_digest_that_fits(data: st.DataObject) -> None:
    document = json.loads(whole().files["manifest.json"])
    for _ in range(data.draw(st.integers(1, 2))):
        replace_one(document, data)
    about = {key: document.pop(key) for key in ("name", "fingerprint", "digest") if key in document}
    text = json.dumps(document | about | {"digest": canonical_digest(document)})
    same_or_told(whole().files | {"manifest.json": text.encode()}, renamed=True)


def replace_one(document: Any, data: st.DataObject) -> None:
    """Another value somewhere below `document`, or one entry fewer."""
    place = document
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
            continue
        if data.draw(st.booleans()):
            place[key] = data.draw(_JSON)
        else:
            del place[key]
        return


_TYPES = st.sampled_from([pa.int32(), pa.int64(), pa.uint32(), pa.float64(), pa.string(), pa.bool_(), pa.int8()])


@_QUICK
@given(data=st.data())
def test_an_index_of_anything_under_a_sha256_that_fits(data: st.DataObject) -> None:
    files = dict(whole().files)
    table = pq.read_table(io.BytesIO(files["train.index.parquet"]))
    column = data.draw(st.sampled_from(table.column_names))
    number = table.column_names.index(column)
    change = data.draw(st.sampled_from(["drop", "type", "value", "null", "rows", "twice"]))
    if change == "drop":
        table = table.drop_columns(column)
    elif change == "rows":
        table = table.slice(0, data.draw(st.integers(0, len(table) - 1)))
    elif change == "twice":
        table = table.append_column(column, table[column])
    else:
        values = table[column].to_pylist()
        row = data.draw(st.integers(0, len(values) - 1))
        kind = data.draw(_TYPES) if change == "type" else table[column].type
        values[row] = None if change == "null" else values[row]
        if change == "value" and column != "source":
            values[row] = data.draw(st.integers(*((0, 2**32 - 1) if column == "crc32" else (-(2**31), 2**31 - 1))))
        table = table.set_column(number, column, pa.array([as_type(value, kind) for value in values], kind))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    files["train.index.parquet"] = sink.getvalue()
    document = json.loads(files["manifest.json"])
    document["splits"]["train"]["index"]["sha256"] = hashlib.sha256(sink.getvalue()).hexdigest()
    about = {key: document.pop(key) for key in ("name", "fingerprint", "digest")}
    files["manifest.json"] = json.dumps(document | about | {"digest": canonical_digest(document)}).encode()
    same_or_told(files)


def as_type(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return str(value)
    if pa.types.is_boolean(kind):
        return bool(value)
    number = hash(value) if isinstance(value, str) else value
    return float(number) if pa.types.is_floating(kind) else number % 100


@_QUICK
@given(content=st.binary(max_size=200) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_a_manifest_that_is_none(content: bytes) -> None:
    with pytest.raises(RunError):
        Manifest.from_json(content)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"format_version": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"])
def test_a_manifest_that_is_nested_too_deep(content: bytes) -> None:
    with pytest.raises(RunError):
        Manifest.from_json(content)


@_QUICK
@given(data=st.data())
def test_damage_to_the_journal_of_an_interrupted_ingest(data: st.DataObject) -> None:
    """What cannot be used of it is made again: the end is the same data set."""
    cut = Memory(fail_at=5)
    with pytest.raises(KeyboardInterrupt):
        write(cut, _SOURCE, chunk_bytes=20_000)
    cut.fail_at = None
    name = data.draw(st.sampled_from(sorted(name for name in cut.files if name.endswith(".part"))))
    content = bytearray(cut.files[name])
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    cut.files[name] = bytes(content)
    write(cut, _SOURCE, chunk_bytes=20_000)
    assert cut.files == whole().files


def test_an_index_that_is_no_parquet_file() -> None:
    files = dict(whole().files)
    document = json.loads(files["manifest.json"])
    files["train.index.parquet"] = b"PAR1 no"
    document["splits"]["train"]["index"]["sha256"] = hashlib.sha256(b"PAR1 no").hexdigest()
    about = {key: document.pop(key) for key in ("name", "fingerprint", "digest")}
    files["manifest.json"] = json.dumps(document | about | {"digest": canonical_digest(document)}).encode()
    with pytest.raises(IntegrityError, match=r"train.index.parquet is not a readable parquet file"):
        Dataset(Stored(files).read).index("train")
