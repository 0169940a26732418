"""Thumbnails: a data set of their own beside the images, in the same order, written in the same pass."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

from lipt.data.chunks import Dataset, Manifest, read_samples, write_dataset
from tests.unit.data.chunks.helpers import Memory, Noise, load_images, write

FOLDER = "thumbnails-3"


class Photos(Noise):
    """Images of different sizes and shapes, some with a shorter side below 3 pixels."""

    def pixels(self, split: str, i: int) -> np.ndarray:
        height, width = [(4, 6), (9, 5), (2, 7), (3, 3), (11, 11)][i % 5]
        return np.random.default_rng([i, len(split)]).integers(0, 256, (height, width, 3), dtype=np.uint8)


def ingest(memory: Memory, source: Noise, thumbnails: int | None = 3, **more: int) -> Manifest:
    return write_dataset(
        source,
        memory.put,
        seed=0,
        chunk_bytes=more.get("chunk_bytes", 40_000),
        test_fraction=0.2,
        get=memory.get,
        delete=memory.delete,
        present=lambda chunk: len(memory.files.get(chunk.file, b"")) == chunk.size,
        thumbnails=thumbnails,
    )


def below(memory: Memory, folder: str = FOLDER) -> Dataset:
    """The thumbnails as a data set."""
    return Dataset(lambda file, start, length: memory.read(f"{folder}/{file}", start, length))


@pytest.fixture(params=["png", "jpeg"])
def photos(request: pytest.FixtureRequest) -> Photos:
    return Photos({"train": [50, 30, 20], "test": [5, 3, 2]}, jpeg=request.param == "jpeg")


def test_a_thumbnail_gives_exactly_the_pixels_that_its_image_gives(photos: Photos) -> None:
    memory = Memory()
    ingest(memory, photos)
    images, thumbnails = Dataset(memory.read), below(memory)
    for split, count in (("train", 100), ("test", 10)):
        positions = np.random.default_rng(0).permutation(count)
        found = [
            load_images(each.ranges_of(split, positions), each.read, image_size=3) for each in (images, thumbnails)
        ]
        assert torch.equal(*found)
        assert found[0].shape == (count, 3, 3, 3)


def test_a_smaller_size_differs_by_the_second_resize_only() -> None:
    """Measured on CIFAR-10, from 24 to 16 pixels: 1.4 of 255 levels on average."""
    rows = np.linspace(0, 255, 40)
    smooth = np.stack([np.add.outer(rows, rows[::-1]) / 2, np.outer(rows, rows) / 255, np.tile(rows, (40, 1))], axis=2)

    class Smooth(Noise):
        def pixels(self, _split: str, i: int) -> np.ndarray:
            return np.roll(smooth, i, axis=i % 2).astype(np.uint8)

    memory = Memory()
    ingest(memory, Smooth({"train": [20, 20], "test": [1, 1]}), 16)
    whole, small = (
        load_images(each.ranges_of("train", np.arange(40)), each.read, image_size=8).float()
        for each in (Dataset(memory.read), below(memory, "thumbnails-16"))
    )
    error = (whole - small).abs()
    assert 0 < error.mean() < 2


def test_position_label_and_name_are_those_of_the_image(photos: Photos) -> None:
    memory = Memory()
    images = ingest(memory, photos)
    thumbnails = below(memory)
    assert thumbnails.manifest.recipe == images.recipe | {"thumbnails": 3, "of": images.digest}
    for split in ("train", "test"):
        one, other = Dataset(memory.read), thumbnails
        assert one.index(split).label.tolist() == other.index(split).label.tolist()
        assert one.index(split).chunk.tolist() == other.index(split).chunk.tolist()
        assert one.names(split).to_pylist() == other.names(split).to_pylist()  # type: ignore[union-attr]
        assert [c.count for c in images.splits[split].chunks] == [c.count for c in other.manifest.splits[split].chunks]


def test_a_thumbnail_is_the_whole_image_as_a_png_and_is_never_enlarged(photos: Photos) -> None:
    memory = Memory()
    ingest(memory, photos)
    thumbnails, sides = below(memory), set()
    wanted = thumbnails.ranges_of("train", np.arange(100))
    for sample in read_samples(wanted, thumbnails.read):
        with Image.open(io.BytesIO(sample.image)) as image:
            assert image.format == "PNG" == sample.ext.upper()
            sides.add(image.size)
    assert sides == {(4, 3), (3, 5), (7, 2), (3, 3)}
    assert wanted.num_bytes == sum(chunk.size for chunk in thumbnails.manifest.splits["train"].chunks)  # nothing else


def test_the_images_are_the_same_with_and_without_thumbnails(photos: Photos) -> None:
    with_them, without = Memory(), Memory()
    assert ingest(with_them, photos) == ingest(without, photos, None) == write(Memory(), photos)
    assert {name: data for name, data in with_them.files.items() if "/" not in name} == without.files
    assert not any(name.endswith(".part") for name in with_them.files)
    with tarfile.open(fileobj=io.BytesIO(with_them.files["train-00000.tar"])) as tar:
        assert len(tar.getnames()) == 2 * Dataset(with_them.read).manifest.splits["train"].chunks[0].count


def test_the_source_is_read_once(photos: Photos) -> None:
    ingest(Memory(), photos)
    assert photos.num_read == 110


def test_an_ingest_that_was_interrupted_anywhere_ends_with_the_same_bytes() -> None:
    photos, whole = Photos({"train": [50, 30, 20], "test": [5, 3, 2]}), Memory()
    ingest(whole, photos)
    assert sum(name.startswith(f"{FOLDER}/train-") for name in whole.files) > 3
    continued = 0
    for fail_at in range(len(whole.order)):
        memory = Memory(fail_at)
        with pytest.raises(KeyboardInterrupt):
            ingest(memory, photos)
        assert "manifest.json" not in memory.files or fail_at >= len(whole.order) - 1
        memory.fail_at, photos.num_read = None, 0
        ingest(memory, photos)
        assert memory.files == whole.files, fail_at
        continued += photos.num_read < 110
    assert continued > len(whole.order) / 2


def test_a_finished_data_set_is_not_written_again() -> None:
    photos, memory = Photos({"train": [50, 30, 20], "test": [5, 3, 2]}), Memory()
    ingest(memory, photos)
    before, photos.num_read = len(memory.order), 0
    ingest(memory, photos)
    ingest(memory, photos, None)
    assert (len(memory.order), photos.num_read) == (before, 0)


def test_thumbnails_can_be_added_later_in_any_number_of_sizes() -> None:
    photos, memory, whole = Photos({"train": [9, 6], "test": [2, 1]}), Memory(), Memory()
    ingest(memory, photos, None)
    for side in (3, 2):
        ingest(memory, photos, side)
        ingest(whole, photos, side)
    assert memory.files == whole.files
    assert {"manifest.json", "thumbnails-2/manifest.json", "thumbnails-3/manifest.json"} < whole.files.keys()


@pytest.mark.parametrize(
    "damage",
    [
        lambda files: files.pop(f"{FOLDER}/train-00001.bin"),
        lambda files: files.pop(f"{FOLDER}/manifest.json"),
        lambda files: files.update({f"{FOLDER}/manifest.json": b"{"}),
        lambda files: files.update({f"{FOLDER}/test.index.parquet": b"PAR1"}),
    ],
    ids=["chunk", "manifest", "damaged-manifest", "index"],
)
def test_what_is_missing_or_damaged_is_written_again(damage: Callable[[dict[str, bytes]], object]) -> None:
    photos, memory = Photos({"train": [50, 30, 20], "test": [5, 3, 2]}), Memory()
    ingest(memory, photos)
    whole = dict(memory.files)
    damage(memory.files)
    ingest(memory, photos)
    assert memory.files == whole


def test_thumbnails_of_another_data_set_do_not_count() -> None:
    photos, memory = Photos({"train": [9, 6], "test": [2, 1]}), Memory()
    ingest(memory, photos)
    other, whole = Photos({"train": [6, 9], "test": [1, 2]}), Memory()
    ingest(whole, other)
    for name in [name for name in memory.files if "/" not in name]:  # replaced, but for the thumbnails
        del memory.files[name]
    ingest(memory, other, None)
    ingest(memory, other)
    assert memory.files == whole.files
