"""What an ingest writes, and that it can be interrupted anywhere."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lipt.adapters.store import DatasetFiles, open_store
from lipt.data.chunks import Dataset, Manifest, read_samples, stratified_order, write_dataset
from lipt.data.decoding import decode_stored
from lipt.data.sources import Source, open_source
from lipt.errors import RunError, UsageError
from tests.unit.data.chunks.helpers import Memory, Noise, load_images, write


def test_files_of_a_dataset(memory: Memory, dataset: Dataset) -> None:
    manifest = dataset.manifest
    assert memory.order[-1] == "manifest.json"
    assert sorted(memory.files) == sorted(
        ["manifest.json", "train.index.parquet", "test.index.parquet"]
        + [chunk.file for split in manifest.splits.values() for chunk in split.chunks]
    )
    train = manifest.splits["train"]
    assert (train.count, train.class_counts) == (100, (50, 30, 20))
    assert sum(chunk.count for chunk in train.chunks) == 100
    assert [len(memory.files[chunk.file]) for chunk in train.chunks] == [chunk.size for chunk in train.chunks]
    assert all(40_000 <= chunk.size < 45_000 for chunk in train.chunks[:-1])
    assert len(train.chunks) > 3


def test_every_image_is_stored_once_as_it_was(source: Noise, memory: Memory, dataset: Dataset) -> None:
    for split, count in (("train", 100), ("test", 10)):
        rows = []
        for sample in read_samples(dataset.ranges_of(split, np.arange(count)), memory.read):
            pixels = decode_stored(sample.image, "x")
            rows.append(int(pixels[0, 0] @ [65536, 256, 1]))
            assert np.array_equal(pixels, source.pixels(split, rows[-1]))
            assert sample.label == source.splits[split][rows[-1]]
            assert sample.ext == "png"
        assert sorted(rows) == list(range(count))
        assert rows != sorted(rows)


def test_same_arguments_same_bytes_and_the_seed_matters(source: Noise, memory: Memory) -> None:
    again, other = Memory(), Memory()
    write(again, source)
    write(other, source, seed=1)
    assert again.files == memory.files
    assert other.files["train-00000.tar"] != memory.files["train-00000.tar"]


def test_tars_are_plain_and_have_neutral_headers(memory: Memory) -> None:
    with tarfile.open(fileobj=io.BytesIO(memory.files["train-00000.tar"])) as tar:
        members = tar.getmembers()
    assert [member.name for member in members[:4]] == ["00000000.png", "00000000.cls", "00000001.png", "00000001.cls"]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o644)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("jpeg", [False, True])
def test_the_webdataset_library_reads_the_chunks(tmp_path: Path, jpeg: bool) -> None:
    import webdataset

    memory = Memory()
    manifest = write(memory, Noise({"train": [50, 30, 20]}, jpeg=jpeg))
    for chunk in manifest.splits["train"].chunks:
        (tmp_path / chunk.file).write_bytes(memory.files[chunk.file])
    paths = [str(tmp_path / chunk.file) for chunk in manifest.splits["train"].chunks]
    samples = list(webdataset.WebDataset(paths, shardshuffle=False).decode("rgb8").to_tuple("png;jpg", "cls"))
    wanted = Dataset(memory.read).ranges_of("train", np.arange(80))
    images_NCHW = load_images(wanted, memory.read, image_size=None)
    assert [label for _, label in samples] == wanted.labels_N.tolist()
    assert np.array_equal(np.stack([image for image, _ in samples]), images_NCHW.permute(0, 2, 3, 1).numpy())


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    seed=st.integers(0, 2**32),
    window=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_every_window_holds_each_class_in_proportion(counts: list[int], seed: int, window: tuple[float, float]) -> None:
    labels_N = np.repeat(np.arange(len(counts)), counts)
    order_N = stratified_order(labels_N, np.random.default_rng(seed))
    assert sorted(order_N) == list(range(len(labels_N)))
    first, last = sorted(round(edge * len(labels_N)) for edge in window)
    seen = np.bincount(labels_N[order_N[first:last]], minlength=len(counts))
    share = np.array(counts) / len(labels_N)
    # 1 for the class itself, and its share of the rounding of all classes.
    assert (abs(seen - (last - first) * share) <= 1 + share * len(counts)).all()


def test_window_of_equal_classes_is_even() -> None:
    labels_N = np.repeat(np.arange(10), 500)
    order_N = stratified_order(labels_N, np.random.default_rng(0))
    counts = np.array([np.bincount(labels_N[order_N[i : i + 256]], minlength=10) for i in range(0, 4700, 37)])
    assert abs(counts - 25.6).max() < 1


def test_images_within_a_class_are_shuffled() -> None:
    order_N = stratified_order(np.zeros(100, dtype=np.int64), np.random.default_rng(0))
    assert abs(np.corrcoef(order_N, np.arange(100))[0, 1]) < 0.3


def test_test_split_is_drawn_from_each_class() -> None:
    memory = Memory()
    manifest = write(memory, Noise({"train": [50, 31, 2]}))
    assert manifest.splits["test"].class_counts == (10, 6, 1)
    assert manifest.splits["train"].class_counts == (40, 25, 1)
    dataset = Dataset(memory.read)
    rows = [
        int(decode_stored(sample.image, "x")[0, 0] @ [65536, 256, 1])
        for split, count in (("train", 66), ("test", 17))
        for sample in read_samples(dataset.ranges_of(split, np.arange(count)), memory.read)
    ]
    assert sorted(rows) == list(range(83))


def test_class_too_small_for_a_test_split() -> None:
    with pytest.raises(UsageError, match=r"'class 1' has 1 image.*\n  -> add images"):
        write(Memory(), Noise({"train": [50, 1]}))


class Broken(Noise):
    """Some of its images are unreadable."""

    def __init__(self, broken: dict[str, list[int]]) -> None:
        super().__init__({"train": [60, 60], "test": [20, 20]})
        self.broken = broken

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        if i in self.broken.get(split, []):
            raise RunError(f"{split}/{i} is not readable", "remove it")
        return super().read(split, i)


@pytest.mark.parametrize(("broken", "named"), [({"train": [7]}, 1), ({"train": [3, 80], "test": [9]}, 3)])
def test_all_unreadable_images_are_named_at_once(broken: dict[str, list[int]], named: int) -> None:
    memory, told = Memory(), list[tuple[int, int]]()
    with pytest.raises(RunError) as error:
        write_dataset(
            Broken(broken),
            memory.put,
            seed=0,
            test_fraction=0.2,
            chunk_bytes=20_000,
            progress=lambda *n: told.append(n),
        )
    assert all(f"{split}/{i} is not readable" in error.value.message for split in broken for i in broken[split])
    assert error.value.message.startswith("3 images cannot be ingested: ") == (named == 3)
    assert error.value.remedy == "remove it"
    assert "manifest.json" not in memory.files
    assert told == sorted(told)
    assert told[-1][0] <= 160
    whole = Memory()
    for each in (memory, whole):  # chunks from before the first unreadable image are used again
        write(each, Broken({}), chunk_bytes=20_000)
    assert memory.files == whole.files


def test_many_unreadable_images_are_said_and_some_of_them_named_in_the_error() -> None:
    said: list[str] = []

    def try_to_write(count: int) -> None:
        said.clear()
        memory, source = Memory(), Broken({"train": list(range(count))})
        write_dataset(source, memory.put, seed=0, test_fraction=0.2, say=said.append)

    listed = r"(\n  - train/\d+ is not readable){5}\n  -> remove it$"
    with pytest.raises(RunError) as error:
        try_to_write(120)
    assert re.fullmatch(r"120 images cannot be ingested; the first 5:" + listed, str(error.value))
    assert sorted(said) == sorted(f"train/{i} is not readable" for i in range(120))
    with pytest.raises(RunError, match=r"^5 images cannot be ingested"):
        try_to_write(5)
    assert said == []  # the error names them
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lipt.data.chunks.packing._COUNTED", 10)
        with pytest.raises(RunError, match=r"^10 or more images cannot be ingested"):
            try_to_write(120)
        assert len(said) == 10


def test_progress_is_reported(source: Noise) -> None:
    seen: list[tuple[int, int]] = []
    write_dataset(
        source, Memory().put, seed=0, chunk_bytes=40_000, test_fraction=0.1, progress=lambda *at: seen.append(at)
    )
    assert seen == sorted(seen)
    assert seen[-1] == (110, 110)


def interrupted(source: Source) -> Iterator[Memory]:
    for fail_at in range(1000):
        memory = Memory(fail_at)
        try:
            write(memory, source)
        except KeyboardInterrupt:
            yield memory
        else:
            return


def test_ingest_continues_after_any_write_and_ends_with_the_same_bytes(source: Noise, memory: Memory) -> None:
    chunks = [chunk for split in ("train", "test") for chunk in Dataset(memory.read).manifest.splits[split].chunks]
    interruptions = 0
    for partial in interrupted(source):
        assert "manifest.json" not in partial.files
        finished = sum(file.endswith(".part") for file in partial.files)
        partial.fail_at = None
        source.num_read = 0
        write(partial, source)
        assert partial.files == memory.files
        assert source.num_read == sum(chunk.count for chunk in chunks[finished:])
        interruptions += 1
    assert interruptions == len(memory.order)


def test_a_write_that_fails_once_is_followed_by_no_other(source: Noise, memory: Memory) -> None:
    """The next chunk may have been read by then. Recorded, it would stay when the source has changed."""
    count = 0
    for failing in memory.order:
        once = Memory()

        def put(file: str, data: bytes, once: Memory = once, failing: str = failing) -> None:
            nonlocal count
            if file == failing:
                time.sleep(0.02)  # the chunk after it is read
                count += 1
                raise OSError("the store does not answer")
            once.put(file, data)

        with pytest.raises(OSError, match="does not answer"):
            write_dataset(source, put, seed=0, chunk_bytes=40_000, test_fraction=0.2)
        assert once.order == memory.order[: memory.order.index(failing)]
    assert count == len(memory.order)


def test_the_next_chunk_is_read_while_one_is_written(source: Noise) -> None:
    read, overlapped = threading.Event(), list[bool]()
    pixels = source.pixels

    def counted(split: str, i: int) -> np.ndarray:
        if source.num_read > 95:  # more than the 26 of the first chunk, and the 64 that are read ahead
            read.set()
        return pixels(split, i)

    def put(file: str, _data: bytes) -> None:
        if file == "train-00000.tar":
            overlapped.append(read.wait(timeout=60))

    source.pixels = counted  # type: ignore[method-assign]
    write_dataset(source, put, seed=0, chunk_bytes=40_000, test_fraction=0.2)
    assert overlapped == [True]


def test_of_a_source_that_shrank_since_the_interruption_no_chunk_is_left(source: Noise) -> None:
    """Other readers than LiPT look at the names of the chunks, not at the manifest."""
    smaller, whole = Noise({"train": [9, 9], "test": [5, 5]}), Memory()
    write(whole, smaller)
    for partial in interrupted(source):
        partial.fail_at = None
        write(partial, smaller)
        assert partial.files == whole.files


def test_interrupted_clean_up_is_finished_by_the_next_call(source: Noise, memory: Memory) -> None:
    left = Memory()
    left.delete = lambda _file: None  # type: ignore[method-assign]
    write(left, source)
    assert any(file.endswith(".part") for file in left.files)
    del left.delete
    left.delete(max(file for file in left.files if file.endswith(".part")))  # the one that goes first
    source.num_read = 0
    write(left, source)
    assert left.files == memory.files
    assert source.num_read == 0


KILLED = """
import os, signal, sys
from lipt.adapters.store import DatasetFiles, open_store
from lipt.data.chunks import write_dataset
from lipt.data.sources import open_source
files, written = DatasetFiles(open_store(sys.argv[1])), []
def put(file, data):
    files.put(file, data)
    written.append(file)
    if len(written) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
write_dataset(open_source("digits"), put, seed=0, chunk_bytes=300_000, test_fraction=0.2, get=files.get)
"""


def test_ingest_survives_kill_9(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "resumed")])
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "resumed" / "manifest.json").exists()
    for name in ("resumed", "whole"):
        files = DatasetFiles(open_store(str(tmp_path / name)))
        write_dataset(
            open_source("digits"),
            files.put,
            seed=0,
            chunk_bytes=300_000,
            test_fraction=0.2,
            get=files.get,
            delete=files.delete,
        )
    names = sorted(os.listdir(tmp_path / "whole"))
    assert sorted(os.listdir(tmp_path / "resumed")) == names
    for name in names:
        assert (tmp_path / "resumed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_complete_dataset_is_not_written_again(source: Noise, memory: Memory) -> None:
    before = list(memory.order)
    source.num_read = 0
    assert write(memory, source) == Manifest.from_json(memory.files["manifest.json"])
    assert memory.order == before
    assert source.num_read == 0


def test_other_settings_do_not_overwrite_a_dataset(source: Noise, memory: Memory) -> None:
    with pytest.raises(UsageError, match=r"already holds a data set.*manifest.json.*\n  -> choose another location"):
        write(memory, source, seed=1)
    partial = next(memory for memory in interrupted(source) if len(memory.files) > 3)
    partial.fail_at = None
    with pytest.raises(UsageError, match="already holds an unfinished ingest"):
        write(partial, source, chunk_bytes=50_000)
