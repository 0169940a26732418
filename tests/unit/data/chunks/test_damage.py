"""What damaged files are told as."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lipt.data.chunks import Dataset, Index, Manifest, read_samples
from lipt.errors import IntegrityError, RunError
from tests.unit.data.chunks.helpers import Memory, load_images


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_flipped_bit_in_a_chunk(memory: Memory, dataset: Dataset) -> None:
    wanted = dataset.ranges_of("train", np.arange(100))
    at = int(dataset.index("train").offset[5]) + 600
    memory.files["train-00000.tar"] = flipped(memory.files["train-00000.tar"], at)
    with pytest.raises(IntegrityError, match=r"train-00000.tar: sample 5 of split 'train' is damaged.*\n  -> restore"):
        load_images(wanted, memory.read, image_size=None)


def test_truncated_chunk(memory: Memory, dataset: Dataset) -> None:
    wanted = dataset.ranges_of("train", np.arange(100))
    memory.files["train-00001.tar"] = memory.files["train-00001.tar"][:20_000]
    with pytest.raises(IntegrityError, match=r"train-00001.tar: the chunk is shorter"):
        list(read_samples(wanted, memory.read))


def test_changed_index(memory: Memory, dataset: Dataset) -> None:
    memory.files["test.index.parquet"] = flipped(memory.files["test.index.parquet"], 100)
    with pytest.raises(IntegrityError, match=r"test.index.parquet: .*sha256.*\n  -> restore"):
        dataset.index("test")


def test_manifest_round_trip(memory: Memory, dataset: Dataset) -> None:
    data = memory.files["manifest.json"]
    assert Manifest.from_json(data).to_json() == data
    assert Manifest.from_json(data).digest == dataset.manifest.digest


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"3", b"null", b"{}", b'{"name": "x"}'])
def test_manifest_that_is_none(data: bytes) -> None:
    with pytest.raises(IntegrityError, match=r"manifest.json is not the manifest of a data set .*\n  -> "):
        Manifest.from_json(data)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (["format_version"], 3, "format version 3; this program reads 2"),
        (["format_version"], True, "format version True"),
        (["format_version"], 1, "format version 1; this program reads 2"),
        (["digest"], "0" * 64, "have another digest"),
        (["name"], 3, "missing or malformed"),
        (["extra"], 1, "missing or malformed"),
        (["splits", "train", "chunks", 0, "sha256"], "x", "have another digest"),
        (["splits", "train", "chunks", 0, "colour"], "x", "missing or malformed"),
        (["splits", "train", "chunks"], 3, "missing or malformed"),
        (["splits", "train"], {}, "missing or malformed"),
        (["splits"], [], "missing or malformed"),
        (["classes"], None, "missing or malformed"),
    ],
)
def test_edited_manifest(memory: Memory, path: list[str | int], value: object, told: str) -> None:
    document = json.loads(memory.files["manifest.json"])
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(RunError, match=told):
        Manifest.from_json(json.dumps(document).encode())


def test_index_round_trip() -> None:
    import hashlib

    index = Index.from_rows([(0, 0, 2048, 7, 2**32 - 1), (1, 2**40, 512, 0, 0)], ["a", "b"])
    data = index.to_parquet()
    back = Index.from_parquet(data, hashlib.sha256(data).hexdigest())
    for name in ("chunk", "offset", "size", "label", "crc32"):
        assert np.array_equal(getattr(index, name), getattr(back, name))
        assert getattr(index, name).dtype == getattr(back, name).dtype
    assert len(Index.from_rows([], [])) == 0
