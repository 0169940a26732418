"""The chunk store: what is written, what is read, and what damage is told as."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from lipt.adapters.store import DatasetFiles, open_store
from lipt.core.chunks import (
    Dataset,
    Index,
    Manifest,
    ShardPlan,
    decode_image,
    load_images,
    read_samples,
    stratified_order,
    write_dataset,
)  # fmt: skip
from lipt.core.sources import Source, open_source
from lipt.errors import IntegrityError, RunError, UsageError


class Memory:
    """A location in memory that can fail at a chosen write."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.order: list[str] = []
        self.reads: list[tuple[str, int, int | None]] = []
        self.fail_at = fail_at

    def put(self, file: str, data: bytes) -> None:
        if self.fail_at == len(self.order):
            raise KeyboardInterrupt
        self.order.append(file)
        self.files[file] = data

    def get(self, file: str) -> bytes | None:
        return self.files.get(file)

    def delete(self, file: str) -> None:
        self.files.pop(file, None)

    def read(self, file: str, start: int, length: int | None) -> bytes:
        self.reads.append((file, start, length))
        return self.files[file][start : None if length is None else start + length]


class Noise(Source):
    """Random images of 4x6 pixels, `counts[split][c]` of class c; the first pixel of an image spells its row."""

    name = "noise"

    def __init__(self, counts: dict[str, list[int]], *, jpeg: bool = False) -> None:
        self.classes = [f"class {label}" for label in range(len(counts["train"]))]
        self.splits = {split: np.repeat(np.arange(len(per)), per) for split, per in counts.items()}
        self.jpeg = jpeg
        self.num_read = 0

    def pixels(self, split: str, i: int) -> np.ndarray:
        pixels = np.random.default_rng([i, len(split)]).integers(0, 256, (4, 6, 3), dtype=np.uint8)
        pixels[0, 0] = i // 65536, i // 256 % 256, i % 256
        return pixels

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        self.num_read += 1
        buffer = io.BytesIO()
        Image.fromarray(self.pixels(split, i)).save(buffer, format="JPEG" if self.jpeg else "PNG")
        return buffer.getvalue(), "jpg" if self.jpeg else "png"

    def fingerprint(self) -> str:
        return f"noise {[labels.tolist() for labels in self.splits.values()]}"


def write(memory: Memory, source: Source, *, seed: int = 0, chunk_bytes: int = 40_000) -> Manifest:
    return write_dataset(
        source, memory.put, seed=seed, chunk_bytes=chunk_bytes, test_fraction=0.2, get=memory.get, delete=memory.delete
    )


@pytest.fixture
def source() -> Noise:
    return Noise({"train": [50, 30, 20], "test": [5, 3, 2]})


@pytest.fixture
def memory(source: Noise) -> Memory:
    memory = Memory()
    write(memory, source)
    return memory


@pytest.fixture
def dataset(memory: Memory) -> Dataset:
    return Dataset(memory.read)


# Writing


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
        for sample in read_samples(dataset.plan(split, np.arange(count)), memory.read):
            pixels = decode_image(sample.image, "x").permute(1, 2, 0).numpy()
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
    images = load_images(Dataset(memory.read).plan("train", np.arange(80)), memory.read, image_size=None)
    assert [label for _, label in samples] == images.labels_N.tolist()
    assert np.array_equal(np.stack([image for image, _ in samples]), images.images_NCHW.permute(0, 2, 3, 1).numpy())


@settings(deadline=None, max_examples=60)
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


def test_test_split_is_carved_out_of_each_class() -> None:
    memory = Memory()
    manifest = write(memory, Noise({"train": [50, 31, 2]}))
    assert manifest.splits["test"].class_counts == (10, 6, 1)
    assert manifest.splits["train"].class_counts == (40, 25, 1)
    dataset = Dataset(memory.read)
    rows = [
        int(decode_image(sample.image, "x")[:, 0, 0].int() @ torch.tensor([65536, 256, 1], dtype=torch.int32))
        for split, count in (("train", 66), ("test", 17))
        for sample in read_samples(dataset.plan(split, np.arange(count)), memory.read)
    ]
    assert sorted(rows) == list(range(83))


def test_class_too_small_to_carve() -> None:
    with pytest.raises(RunError, match=r"'class 1' has 1 image.*\n  -> add images"):
        write(Memory(), Noise({"train": [50, 1]}))


def test_progress_is_reported(source: Noise) -> None:
    seen: list[tuple[int, int]] = []
    write_dataset(
        source, Memory().put, seed=0, chunk_bytes=40_000, test_fraction=0.1, progress=lambda *at: seen.append(at)
    )
    assert seen == sorted(seen)
    assert seen[-1] == (110, 110)


# Interruption


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
from lipt.core.chunks import write_dataset
from lipt.core.sources import open_source
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
            open_source("digits"), files.put, seed=0, chunk_bytes=300_000, test_fraction=0.2,
            get=files.get, delete=files.delete,
        )  # fmt: skip
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
    with pytest.raises(UsageError, match=r"already holds a dataset.*manifest.json.*\n  -> choose another location"):
        write(memory, source, seed=1)
    partial = next(memory for memory in interrupted(source) if len(memory.files) > 3)
    partial.fail_at = None
    with pytest.raises(UsageError, match="already holds an unfinished ingest"):
        write(partial, source, chunk_bytes=50_000)


# Reading


def test_contiguous_shard_is_one_request(memory: Memory) -> None:
    big = Memory()
    manifest = write(big, Noise({"train": [300, 300], "test": [1, 1]}), chunk_bytes=10**9)
    dataset = Dataset(big.read)
    plan = dataset.plan("train", np.arange(100, 356))
    assert len(plan.ranges) == 1
    big.reads.clear()
    samples = list(read_samples(plan, big.read))
    assert [sample.position for sample in samples] == list(range(100, 356))
    assert big.reads == [("train-00000.tar", plan.ranges[0].start, plan.num_bytes)]
    assert plan.num_bytes == sum(dataset.index("train").size[100:356])
    assert manifest.digest == plan.digest


def test_contiguous_shard_across_a_border_is_two_requests(memory: Memory, dataset: Dataset) -> None:
    border = dataset.manifest.splits["train"].chunks[0].count
    plan = dataset.plan("train", np.arange(border - 3, border + 4))
    assert [(item.file, item.num_samples) for item in plan.ranges] == [("train-00000.tar", 3), ("train-00001.tar", 4)]
    assert plan.ranges[1].start == 0


# The fixtures are only read, so that they may outlive an example.
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(positions=st.lists(st.integers(0, 99), unique=True, max_size=40), gap=st.sampled_from([0, 2048, 10**9]))
def test_any_subset_is_read_exactly(memory: Memory, dataset: Dataset, positions: list[int], gap: int) -> None:
    plan = dataset.plan("train", positions, gap_bytes=gap)
    plan = ShardPlan.from_dict(json.loads(json.dumps(plan.as_dict())))
    memory.reads.clear()
    samples = list(read_samples(plan, memory.read))
    assert [sample.position for sample in samples] == sorted(positions)
    assert [sample.label for sample in samples] == dataset.index("train").label[sorted(positions)].tolist()
    assert sum(length or 0 for _, _, length in memory.reads) == plan.num_bytes
    exact = int(dataset.index("train").size[positions].sum())
    assert plan.num_bytes == exact if gap == 0 else plan.num_bytes >= exact
    assert len(memory.reads) == len(plan.ranges) <= len(positions)


def test_images_come_in_the_order_of_the_plan(memory: Memory, dataset: Dataset) -> None:
    positions = np.random.default_rng(0).permutation(100)[:70]
    images = load_images(dataset.plan("train", positions), memory.read, image_size=None)
    assert len(images) == 70
    assert images.positions_N.tolist() == positions.tolist()
    by_position = {sample.position: sample for sample in read_samples(dataset.plan("train", positions), memory.read)}
    for row, position in enumerate(positions):
        assert torch.equal(images.images_NCHW[row], decode_image(by_position[position].image, "x"))
        assert images.labels_N[row] == by_position[position].label


def test_empty_plan(memory: Memory, dataset: Dataset) -> None:
    images = load_images(dataset.plan("train", []), memory.read, image_size=8)
    assert images.images_NCHW.shape == (0, 3, 8, 8)


def test_positions_are_checked(dataset: Dataset) -> None:
    with pytest.raises(RunError, match=r"position 100 is outside split 'train', which has 100 samples\n  -> "):
        dataset.plan("train", [3, 100])
    with pytest.raises(RunError, match="asked for twice"):
        dataset.plan("train", [3, 3])
    with pytest.raises(RunError, match=r"no split 'tset'\n  -> did you mean 'test'"):
        dataset.plan("tset", [0])


# Images


def encoded(mode: str, size: tuple[int, int], form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, 255 if mode == "L" else None).save(buffer, format=form)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("mode", "form"), [("L", "PNG"), ("RGB", "JPEG"), ("RGBA", "PNG"), ("P", "PNG"), ("CMYK", "JPEG")]
)
def test_every_mode_decodes_to_rgb(mode: str, form: str) -> None:
    image_CHW = decode_image(encoded(mode, (6, 4), form), "x")
    assert (image_CHW.dtype, image_CHW.shape) == (torch.uint8, (3, 4, 6))


@pytest.mark.parametrize("data", [b"", b"no image", encoded("L", (6, 4))[:40], encoded("RGB", (6, 4), "GIF")])
def test_unreadable_image_is_named(data: bytes) -> None:
    with pytest.raises(RunError, match=r"cat 7 is no readable image: .*\n  -> remove or replace"):
        decode_image(data, "cat 7")


class Sizes(Noise):
    """Images of several sizes, the red channel grows from left to right."""

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        width, height = [(8, 8), (16, 8), (8, 24), (5, 3)][i % 4]
        pixels = np.zeros((height, width, 3), dtype=np.uint8)
        pixels[:, :, 0] = np.linspace(0, 255, width)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="PNG")
        return buffer.getvalue(), "png"


def test_sizes_are_brought_to_one() -> None:
    memory = Memory()
    write(memory, Sizes({"train": [8], "test": [1]}))
    plan = Dataset(memory.read).plan("train", np.arange(8))
    with pytest.raises(RunError, match=r"sample \d has \d+x\d+ pixels, others .*\n  -> set image_size"):
        load_images(plan, memory.read, image_size=None)
    images = load_images(plan, memory.read, image_size=8)
    assert images.images_NCHW.shape == (8, 3, 8, 8)
    centre = images.images_NCHW[:, 0, :, 3:5].float().mean(dim=(1, 2))
    assert (centre - 127.5).abs().max() < 20  # centre crop: the middle of the ramp stays in the middle


# Damage


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_flipped_bit_in_a_chunk(memory: Memory, dataset: Dataset) -> None:
    plan = dataset.plan("train", np.arange(100))
    at = int(dataset.index("train").offset[5]) + 600
    memory.files["train-00000.tar"] = flipped(memory.files["train-00000.tar"], at)
    with pytest.raises(IntegrityError, match=r"train-00000.tar: sample 5 of split 'train' is damaged.*\n  -> restore"):
        load_images(plan, memory.read, image_size=None)


def test_truncated_chunk(memory: Memory, dataset: Dataset) -> None:
    plan = dataset.plan("train", np.arange(100))
    memory.files["train-00001.tar"] = memory.files["train-00001.tar"][:20_000]
    with pytest.raises(IntegrityError, match=r"train-00001.tar: the chunk is shorter"):
        list(read_samples(plan, memory.read))


def test_changed_index(memory: Memory, dataset: Dataset) -> None:
    memory.files["test.index.parquet"] = flipped(memory.files["test.index.parquet"], 100)
    with pytest.raises(IntegrityError, match=r"test.index.parquet: .*sha256.*\n  -> restore"):
        dataset.index("test")


def test_manifest_round_trip(memory: Memory, dataset: Dataset) -> None:
    data = memory.files["manifest.json"]
    assert Manifest.from_json(data).to_json() == data
    assert Manifest.from_json(data).digest == dataset.manifest.digest
    assert dataset.manifest.seed == 0


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"3", b"null", b"{}", b'{"name": "x"}'])
def test_manifest_that_is_none(data: bytes) -> None:
    with pytest.raises(IntegrityError, match=r"manifest.json is not the manifest of a dataset .*\n  -> "):
        Manifest.from_json(data)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (["format_version"], 2, "format version 2; this program reads 1"),
        (["digest"], "0" * 64, "do not fit the digest"),
        (["name"], "other", "do not fit the digest"),
        (["extra"], 1, "do not fit the digest"),
        (["splits", "train", "chunks", 0, "sha256"], "x", "do not fit the digest"),
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

    index = Index.from_rows([(0, 0, 2048, 7, 2**32 - 1), (1, 2**40, 512, 0, 0)])
    data = index.to_parquet()
    back = Index.from_parquet(data, hashlib.sha256(data).hexdigest())
    for name in ("chunk", "offset", "size", "label", "crc32"):
        assert np.array_equal(getattr(index, name), getattr(back, name))
        assert getattr(index, name).dtype == getattr(back, name).dtype
    assert len(Index.from_rows([])) == 0
