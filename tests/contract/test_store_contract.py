"""What every store promises, over a folder and over S3."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lipt.adapters.store import DatasetFiles, MissingObjectError, Store, open_store
from lipt.data.chunks import Dataset, write_dataset
from lipt.data.sources import open_source
from lipt.errors import IntegrityError, UsageError
from tests.unit.data.chunks.helpers import load_images

HOSTILE = [
    "",
    "/etc/passwd",
    "../up",
    "a/../../up",
    "a//b",
    "a/",
    "./a",
    "a\0b",
    "a\nb",
    ".lipt-tmp-1",
    "a/.lipt-tmp-1",
]


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    location = str(tmp_path / "a folder") if request.param == "file" else request.getfixturevalue("s3")
    return open_store(location)


def requests(store: Store) -> dict[str, int]:
    return store.traffic.as_dict()["requests"]


@pytest.mark.parametrize("size", [0, 1, 11 * 2**20])
def test_object_is_read_back_as_written_in_one_request_each(store: Store, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    store.write("run/x.bin", data, kind="model")
    assert store.read("run/x.bin", kind="model") == data
    assert store.size("run/x.bin") == size
    assert store.traffic.as_dict() == {
        "read": {"data": 0, "model": size, "other": 0},
        "written": {"data": 0, "model": size, "other": 0},
        "requests": {"write": 1, "read": 1, "size": 1},
    }


def test_second_write_replaces_the_object(store: Store) -> None:
    store.write("x", b"first, and longer", kind="other")
    store.write("x", b"second", kind="other")
    assert store.read("x", kind="other") == b"second"
    assert store.traffic.written["other"] == 17 + 6


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 3, b"012"),
        (4, 3, b"456"),
        (9, 1, b"9"),
        (7, None, b"789"),
        (0, 10, b"0123456789"),
        (3, 0, b""),
        (10, 0, b""),
    ],
)
def test_range_transfers_its_bytes_only(store: Store, start: int, length: int | None, expected: bytes) -> None:
    store.write("x", b"0123456789", kind="data")
    assert store.read("x", kind="data", start=start, length=length) == expected
    assert store.traffic.read["data"] == len(expected)


@pytest.mark.parametrize(("start", "length"), [(0, 11), (8, 3), (10, 1), (10, None), (99, 1)])
def test_range_beyond_the_end_is_an_integrity_error(store: Store, start: int, length: int | None) -> None:
    store.write("x", b"0123456789", kind="data")
    with pytest.raises(IntegrityError, match=f"{store.uri}/x: the object ends before .*\n  -> "):
        store.read("x", kind="data", start=start, length=length)


@pytest.mark.parametrize("length", [None, 0, 5])
def test_missing_object(store: Store, length: int | None) -> None:
    with pytest.raises(MissingObjectError, match=f"{store.uri}/no/such: no such object\n  -> ") as caught:
        store.read("no/such", kind="data", length=length)
    assert caught.value.exit_code == 1
    assert store.size("no/such") is None
    store.delete("no/such")
    assert store.list() == []
    assert store.traffic.read["data"] == 0


def test_list_takes_any_prefix_and_sorts(store: Store) -> None:
    for key in ["b", "a/2", "a/10", "ab/c/d", "a-"]:
        store.write(key, b"x", kind="other")
    assert store.list() == ["a-", "a/10", "a/2", "ab/c/d", "b"]
    assert store.list("a/") == ["a/10", "a/2"]
    assert store.list("a") == ["a-", "a/10", "a/2", "ab/c/d"]
    assert store.list("a/1") == ["a/10"]
    assert store.list("zz/y") == []
    assert requests(store)["list"] == 5
    store.write("a/2", bytes(1234), kind="other")
    assert list(store.sizes("a/").items()) == [("a/10", 1), ("a/2", 1234)]
    assert all(abs(found.written - time.time()) < 60 for found in store.listing("a/").values())


def test_delete(store: Store) -> None:
    store.write("a/x", b"1", kind="other")
    store.delete("a/x")
    assert store.size("a/x") is None
    assert store.list() == []


def test_a_folder_of_keys_is_no_object(store: Store) -> None:
    store.write("a/x", b"1", kind="other")
    assert store.size("a") is None
    with pytest.raises(MissingObjectError):
        store.read("a", kind="other")
    store.delete("a")
    assert store.list() == ["a/x"]


def test_sub_location_shares_the_ledger_and_metered_has_its_own(store: Store) -> None:
    below = store.at("run-1").at("stage/")
    below.write("x", b"12345", kind="model")
    assert below.uri == f"{store.uri}/run-1/stage"
    assert store.list() == ["run-1/stage/x"]
    assert store.traffic.written["model"] == 5
    fresh = below.metered()
    assert fresh.read("x", kind="model") == b"12345"
    assert (fresh.traffic.read["model"], store.traffic.read["model"]) == (5, 0)


def test_uri_opens_the_same_place(store: Store) -> None:
    store.write("x", b"1", kind="other")
    assert open_store(store.uri).uri == store.uri
    assert open_store(store.uri + "/").list() == ["x"]


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_keys_are_refused(store: Store, key: str) -> None:
    for attempt in (
        lambda: store.read(key, kind="data"),
        lambda: store.write(key, b"x", kind="data"),
        lambda: store.size(key),
        lambda: store.delete(key),
        lambda: store.at(key if key != "a/" else ""),
    ):
        with pytest.raises(UsageError, match="no valid key"):
            attempt()
    assert requests(store) == {}


@pytest.mark.parametrize("prefix", ["..", "/", "a/../..", "../"])
def test_hostile_prefixes_are_refused(store: Store, prefix: str) -> None:
    with pytest.raises(UsageError, match="no valid key"):
        store.list(prefix)


@pytest.mark.parametrize("key", ["with space", "plus+percent%20", "hash#question?", "ünï/日本", "k=v,w;x'\"&"])
def test_unusual_but_legal_keys(store: Store, key: str) -> None:
    store.write(key, b"x", kind="other")
    assert store.list() == [key]
    assert store.read(key, kind="other") == b"x"


def test_readers_never_see_a_half_written_object(store: Store) -> None:
    size, over, written, seen = 200_000, threading.Event(), list[bytes](), set[bytes]()
    store.write("x", b"a" * size, kind="other")

    def write() -> None:
        for letter in itertools.cycle((b"b", b"c")):
            if over.is_set():
                return
            store.write("x", letter * size, kind="other")
            written.append(letter)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            # However slow the reader is, it reads while another writes.
            while not writing.done() and (len(written) < 20 or len(seen) < 2):
                data = store.read("x", kind="other")
                assert len(data) == size
                assert len(set(data)) == 1
                seen.add(data[:1])
        finally:
            over.set()
    writing.result()


def test_counts_are_exact_under_threads(store: Store) -> None:
    store.write("x", bytes(1000), kind="data")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda start: store.read("x", kind="data", start=start, length=10), range(200)))
    assert store.traffic.read["data"] == 2000
    assert requests(store)["read"] == 200


def test_dataset_is_written_and_a_shard_costs_one_request(store: Store) -> None:
    files = DatasetFiles(store)
    written = write_dataset(
        open_source("digits"), files.put, seed=3, test_fraction=0.2, get=files.get, delete=files.delete
    )
    assert store.list() == [
        "manifest.json",
        "test-00000.tar",
        "test.index.parquet",
        "train-00000.tar",
        "train.index.parquet",
    ]
    assert store.traffic.written["data"] == sum(
        chunk.size for split in written.splits.values() for chunk in split.chunks
    )
    wanted = Dataset(files.read).ranges_of("train", np.arange(256, 512))
    worker = store.metered()
    images_NCHW = load_images(wanted, DatasetFiles(worker).read, image_size=None)
    assert images_NCHW.shape == (256, 3, 8, 8)
    assert requests(worker) == {"read": 1}
    assert worker.traffic.as_dict()["read"] == {"data": wanted.num_bytes, "model": 0, "other": 0}
