"""Image sets, scoring and BatchNorm recalibration."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import parse_config
from lipt.data.chunks import Dataset, read_samples
from lipt.data.cropping import Crops
from lipt.data.images import ResidentImages, StreamedImages, group_size, image_shape, open_images, stream
from lipt.rng import derive
from lipt.runtime.dataset import training_images
from lipt.training import forward
from lipt.training.batches import batch_sizes
from lipt.training.forward import forward_batches, outputs_of, recalibrate_batchnorm
from lipt.training.networks import build_model
from tests.tiny import tiny_context, write_store
from tests.unit.data.chunks.helpers import Memory, Noise, write
from tests.unit.training.helpers import blocks

CPU = torch.device("cpu")
CROPS = Crops(side=8, flip=True)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    store = open_store(str(tmp_path_factory.mktemp("digits")))
    write_store(parse_config({"data": {"source": "digits", "chunk_mb": 0.5}}).data, store)
    return Dataset(DatasetFiles(store).read)


def test_streamed_images_are_the_resident_ones(dataset: Dataset) -> None:
    positions = np.arange(1437, 37, -1)
    resident = open_images(dataset, "train", positions, image_size=None, resident_bytes=1e9)
    streamed = open_images(dataset, "train", positions, image_size=None, resident_bytes=0)
    assert isinstance(resident, ResidentImages)
    assert isinstance(streamed, StreamedImages)
    assert torch.equal(resident.labels_N, streamed.labels_N)
    assert image_shape(streamed) == image_shape(resident) == (3, 8, 8)
    order = streamed.epoch_order(torch.randperm(1400)[:999], seed=1)
    sizes = batch_sizes(999, 64)
    for one, other in zip(streamed.batches(order, sizes), resident.batches(order, sizes), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("resident_bytes", [0, 1e9], ids=["streamed", "resident"])
def test_a_part_has_the_images_and_the_labels_of_its_rows(dataset: Dataset, resident_bytes: float) -> None:
    whole = open_images(dataset, "train", np.arange(1438), image_size=None, resident_bytes=resident_bytes)
    rows = torch.tensor([900, 5, 3, 1437])
    part = whole.subset(rows)
    assert part.labels_N.tolist() == dataset.index("train").label[rows.numpy()].tolist()
    (images,), (expected,) = part.batches(torch.arange(4), [4]), whole.batches(rows, [4])
    assert torch.equal(images, expected)


def test_an_epoch_of_streamed_images_visits_each_row_once_in_a_new_order(dataset: Dataset) -> None:
    streamed = open_images(dataset, "train", np.arange(1438), image_size=None, resident_bytes=0)
    rows = torch.randperm(1438)[:1200]
    first, second = streamed.epoch_order(rows, seed=1), streamed.epoch_order(rows, seed=2)
    assert sorted(first.tolist()) == sorted(second.tolist()) == sorted(rows.tolist())
    assert not torch.equal(first, second)
    assert torch.equal(first, streamed.epoch_order(rows, seed=1))


def test_the_order_of_an_epoch_never_changes(dataset: Dataset) -> None:
    """Resumed trainings, other machines and later versions agree on it: it is a part of every result."""
    for resident_bytes in (0, 30_000):
        images = open_images(dataset, "train", np.arange(1438), image_size=None, resident_bytes=resident_bytes)
        order = images.epoch_order(torch.arange(1438), seed=1)
        assert hashlib.sha256(order.numpy().tobytes()).hexdigest()[:16] == "58d8e1138e0e7a1e"


@pytest.mark.parametrize(
    ("side", "megabytes", "crops", "size"),
    [
        (32, 0, False, 4096),
        (64, 0, False, 4096),
        (224, 4096, False, 4096),
        (224, 500, True, 1024),
        (224, 500, False, 1660),
        (512, 4096, False, 2604),
        (1024, 4, False, 20),
        (1024, 4, True, 20),
        (8192, 0, False, 1),
    ],
)
def test_two_groups_fit_into_the_memory_for_images(side: int, megabytes: float, crops: bool, size: int) -> None:
    assert group_size(side, megabytes * 1e6, crops=crops) == size


@pytest.mark.parametrize("crop", ["pad", "resized"])
def test_large_images_are_streamed_in_smaller_groups(dataset: Dataset, tmp_path: Path, crop: str) -> None:
    ctx = tiny_context(tmp_path, {"data": {"image_size": 1024, "crop": crop, "resident_mb": 0.001}})
    images = training_images(ctx, dataset, np.arange(1438))
    assert isinstance(images, StreamedImages)
    assert images.group == 20
    first, second = images.epoch_order(torch.arange(1438), seed=1), images.epoch_order(torch.arange(1438), seed=2)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(1438))
    assert not torch.equal(first, second)
    near = (first.diff().abs() == 1).float().mean()
    assert near < 0.1  # runs are so short that the order is almost that of a shuffle


class Photographs(Noise):
    """Noise of 20 x 14 pixels."""

    def pixels(self, split: str, i: int) -> np.ndarray:
        return np.random.default_rng([i, len(split)]).integers(0, 256, (14, 20, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def photographs() -> Memory:
    memory = Memory()
    write(memory, Photographs({"train": [2000, 2100], "test": [1, 1]}, jpeg=True), chunk_bytes=10**6)
    return memory


def cropped(memory: Memory, positions: np.ndarray) -> StreamedImages:
    return stream(Dataset(memory.read), "train", positions, image_size=8, crops=CROPS)


def test_a_crop_depends_on_the_seed_and_the_image_alone(photographs: Memory) -> None:
    """Not on the batch, the order, the process that decodes it, or whether the file is held in memory."""
    images = cropped(photographs, np.arange(100, 140))
    rows = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    whole = torch.cat(list(images.batches(rows, [16, 16, 8], 5)))
    assert (whole.dtype, whole.shape) == (torch.uint8, (40, 3, 8, 8))
    held = images.hold(images.dataset.ranges_of("train", images.positions_N))
    photographs.reads.clear()
    for part in rows.tensor_split(3):
        (batch,) = held.subset(part).batches(torch.arange(len(part)), [len(part)], 5)
        assert torch.equal(batch, whole[torch.isin(rows, part)])
    assert photographs.reads == []
    assert not torch.equal(torch.cat(list(images.batches(rows, [40], 6))), whole)
    for row, crop in zip(rows.tolist(), whole, strict=True):
        file = held.held[100 + row].image  # type: ignore[index]
        assert torch.equal(crop, CROPS.decode(file, "x", derive(5, 100 + row)))


def test_every_group_of_a_streamed_epoch_has_random_crops(photographs: Memory) -> None:
    whole = cropped(photographs, np.arange(40))
    groups = stream(whole.dataset, "train", np.arange(40), image_size=8, crops=CROPS, group=10)
    rows = torch.arange(40)
    for one, other in zip(groups.batches(rows, [10] * 4, 5), whole.batches(rows, [10] * 4, 5), strict=True):
        assert torch.equal(one, other)


def test_without_a_seed_the_centre_is_decoded(photographs: Memory) -> None:
    images = cropped(photographs, np.arange(7))
    samples = read_samples(images.dataset.ranges_of("train", np.arange(7)), photographs.read)
    expected = torch.stack([CROPS.decode(sample.image, "x", None) for sample in samples])
    assert torch.equal(images.whole(), expected)
    assert torch.equal(images.resident().images_NCHW, expected)
    assert images.whole().is_contiguous()  # processes share it as a file


@pytest.mark.parametrize(("crops", "group"), [(CROPS, None), (None, None), (CROPS, 90), (None, 300), (None, 10)])
def test_at_most_one_group_is_read_ahead(crops: Crops | None, group: int | None, photographs: Memory) -> None:
    """So memory does not grow with the set: one group is used, one is decoded ahead. A batch is never divided."""
    count = 4100
    images = stream(Dataset(photographs.read), "train", np.arange(count), image_size=8, crops=crops, group=group)
    most = max(group or (1024 if crops else 4096), 64)
    rows, sizes = images.epoch_order(torch.arange(count), seed=1), batch_sizes(count, 64)
    span = float(images.dataset.index("train").size.mean())
    photographs.reads.clear()

    def samples_read() -> int:
        return round(sum(length or 0 for _, _, length in photographs.reads) / span)

    used = 0
    for batch in images.batches(rows, sizes, 1):
        time.sleep(0.002 if used else 0.2)  # a network computes; decoding goes ahead as far as it may
        assert samples_read() <= min(used + 2 * most, count) + 50  # files differ in size
        used += len(batch)
    assert abs(samples_read() - count) < 50


def test_scores_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual defect: a mean-reduced loss scales per-sample gradients by the batch, the last batch by more."""
    images, model = blocks(n=50), build_model("resnet18", num_classes=4, seed=0, width=4)
    whole = outputs_of(model, images, device=CPU)
    for size in (1, 7, 32):
        monkeypatch.setattr(forward, "evaluation_batch", lambda _device, size=size: size)
        parts = outputs_of(model, images, device=CPU)
        torch.testing.assert_close(parts.logits_NC, whole.logits_NC, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(parts.features_ND, whole.features_ND, rtol=1e-4, atol=1e-5)
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_recalibrated_statistics_are_those_of_the_images() -> None:
    images, model = blocks(n=64), build_model("resnet18", num_classes=4, seed=0, width=4)
    norm = model.get_submodule("stem_norm.0")
    recalibrate_batchnorm(model, images, device=CPU, batch_size=16)
    x = torch.cat([batch for batch, _ in forward_batches(images, 64, CPU)])
    activations = model.get_submodule("stem")(x)
    torch.testing.assert_close(norm.running_mean, activations.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert norm.momentum == 0.1
    assert not model.training


@pytest.mark.parametrize("count", [17, 20])
def test_every_image_has_its_share_in_recalibrated_statistics(count: int) -> None:
    """Also if the images are not a multiple of the batch: a rest of one image would be an error at the last layers."""
    images, model = blocks(n=count), build_model("resnet18", num_classes=4, seed=0, width=4)
    recalibrate_batchnorm(model, images, device=CPU, batch_size=16)
    ((x, _),) = forward_batches(images, count, CPU)
    means = model.get_submodule("stem")(x).mean((0, 2, 3))
    torch.testing.assert_close(model.get_submodule("stem_norm.0").running_mean, means, rtol=0.02, atol=1e-3)
