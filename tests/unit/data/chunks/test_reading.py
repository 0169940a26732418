"""Byte ranges, samples and images."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from lipt.data.chunks import Dataset, Sample, SampleRanges, fitted, read_samples
from lipt.data.decoding import decode_stored
from lipt.data.images import stream
from lipt.errors import RunError, UsageError
from lipt.runtime.processes.child import ProcessGroup
from lipt.training.distributed import Ranks
from tests.unit.data.chunks.helpers import Memory, Noise, load_images, write


def test_contiguous_shard_is_one_request(memory: Memory) -> None:
    big = Memory()
    manifest = write(big, Noise({"train": [300, 300], "test": [1, 1]}), chunk_bytes=10**9)
    dataset = Dataset(big.read)
    wanted = dataset.ranges_of("train", np.arange(100, 356))
    assert len(wanted.requests) == 1
    big.reads.clear()
    samples = list(read_samples(wanted, big.read))
    assert [sample.position for sample in samples] == list(range(100, 356))
    assert big.reads == [("train-00000.tar", wanted.requests[0].start, wanted.num_bytes)]
    assert wanted.num_bytes == sum(dataset.index("train").size[100:356])
    assert manifest.digest == wanted.digest


def test_contiguous_shard_across_a_border_is_two_requests(memory: Memory, dataset: Dataset) -> None:
    border = dataset.manifest.splits["train"].chunks[0].count
    wanted = dataset.ranges_of("train", np.arange(border - 3, border + 4))
    assert [(item.file, item.num_samples) for item in wanted.requests] == [
        ("train-00000.tar", 3),
        ("train-00001.tar", 4),
    ]
    assert wanted.requests[1].start == 0


# The fixtures are only read, so that they may outlive an example.
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(positions=st.lists(st.integers(0, 99), unique=True, max_size=40), gap=st.sampled_from([0, 2048, 10**9]))
def test_any_subset_is_read_exactly(memory: Memory, dataset: Dataset, positions: list[int], gap: int) -> None:
    wanted = dataset.ranges_of("train", positions, gap_bytes=gap)
    wanted = SampleRanges.from_dict(json.loads(json.dumps(wanted.as_dict())))
    memory.reads.clear()
    samples = list(read_samples(wanted, memory.read))
    assert [sample.position for sample in samples] == sorted(positions)
    assert [sample.label for sample in samples] == dataset.index("train").label[sorted(positions)].tolist()
    assert sum(length or 0 for _, _, length in memory.reads) == wanted.num_bytes
    exact = int(dataset.index("train").size[positions].sum())
    assert wanted.num_bytes == exact if gap == 0 else wanted.num_bytes >= exact
    assert len(memory.reads) == len(wanted.requests) <= len(positions)


def test_images_come_in_the_order_asked_for(memory: Memory, dataset: Dataset) -> None:
    positions = np.random.default_rng(0).permutation(100)[:70]
    wanted = dataset.ranges_of("train", positions)
    images_NCHW = load_images(wanted, memory.read, image_size=None)
    assert len(images_NCHW) == 70
    assert wanted.positions_N.tolist() == positions.tolist()
    by_position = {sample.position: sample for sample in read_samples(wanted, memory.read)}
    for row, position in enumerate(positions):
        pixels_HW3 = decode_stored(by_position[position].image, "x")
        assert np.array_equal(images_NCHW[row].permute(1, 2, 0).numpy(), pixels_HW3)
        assert wanted.labels_N[row] == by_position[position].label


def test_positions_are_checked(dataset: Dataset) -> None:
    with pytest.raises(RunError, match=r"position 100 is outside split 'train', which has 100 samples\n  -> "):
        dataset.ranges_of("train", [3, 100])
    with pytest.raises(RunError, match="asked for twice"):
        dataset.ranges_of("train", [3, 3])
    with pytest.raises(RunError, match=r"no split 'tset'\n  -> did you mean 'test'"):
        dataset.ranges_of("tset", [0])


def encoded(mode: str, size: tuple[int, int], form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, 255 if mode == "L" else None).save(buffer, format=form)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("mode", "form"), [("L", "PNG"), ("RGB", "JPEG"), ("RGBA", "PNG"), ("P", "PNG"), ("CMYK", "JPEG")]
)
def test_every_mode_decodes_to_rgb(mode: str, form: str) -> None:
    pixels_HW3 = decode_stored(encoded(mode, (6, 4), form), "x")
    assert (pixels_HW3.dtype, pixels_HW3.shape) == (np.uint8, (4, 6, 3))


@pytest.mark.parametrize("data", [b"", b"no image", encoded("L", (6, 4))[:40], encoded("RGB", (6, 4), "GIF")])
def test_unreadable_image_is_named(data: bytes) -> None:
    with pytest.raises(RunError, match=r"cat 7 is not a readable image: .*\n  -> remove or replace"):
        decode_stored(data, "cat 7")


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
    wanted = Dataset(memory.read).ranges_of("train", np.arange(8))
    with pytest.raises(UsageError, match=r"sample \d has \d+x\d+ pixels, others .*\n  -> set data.image_size"):
        load_images(wanted, memory.read, image_size=None)
    images = stream(Dataset(memory.read), "train", np.arange(8), image_size=None, crops=None)
    with pytest.raises(UsageError, match=r"split 'train': train/\d+ has \d+x\d+ pixels, others "):
        images.whole()
    images_NCHW = load_images(wanted, memory.read, image_size=8)
    assert images_NCHW.shape == (8, 3, 8, 8)
    centre = images_NCHW[:, 0, :, 3:5].float().mean(dim=(1, 2))
    assert (centre - 127.5).abs().max() < 20  # centre crop: the middle of the ramp stays in the middle


def test_processes_that_read_images_of_different_sizes(tmp_path: Path, dataset: Dataset) -> None:
    class Other(Ranks):
        def broadcast(self, data: bytes, *, source: int = 0) -> bytes:
            return b"[3, 99, 98]"  # the size of the first process's images

    images = stream(dataset, "train", np.arange(4), image_size=None, crops=None)
    processes = ProcessGroup(ranks=Other(rank=1, count=2), local_rank=1, local_count=2, folder=tmp_path)
    with pytest.raises(UsageError, match=r"images of \d+x\d+ and 98x99 pixels\n  -> set data.image_size"):
        processes.load(images)


@pytest.mark.parametrize(
    ("width", "height"), [(1, 3000), (3000, 1), (7, 64), (65, 7), (9, 36), (8, 8), (40, 300), (20, 14)]
)
def test_an_image_is_fitted_as_if_it_were_resized_whole(
    width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a thin one is not: enlarged, it would take gigabytes."""
    side, sizes, resize = 32, [], Image.Image.resize
    ramp_HW = np.add.outer(np.linspace(0, 127, height), np.linspace(0, 127, width))
    pixels = np.repeat(ramp_HW[..., None], 3, 2).astype(np.uint8)
    scale = side / min(width, height)
    whole = Image.fromarray(pixels).resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (whole.width - side) // 2, (whole.height - side) // 2
    expected = np.array(whole.crop((left, top, left + side, top + side)), np.int16)

    def noted(image: Image.Image, size: tuple[int, int], *given: Any, **named: Any) -> Image.Image:
        sizes.append(size)
        return resize(image, size, *given, **named)

    monkeypatch.setattr(Image.Image, "resize", noted)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    found = fitted(side)(Sample(0, 0, file.getvalue(), "png"), "x").permute(1, 2, 0).numpy()
    is_thin = max(width, height) > 4 * min(width, height) and min(width, height) < side
    assert sizes == [(side, side) if is_thin else whole.size]
    assert np.abs(found - expected).max() <= is_thin  # the others bit for bit
