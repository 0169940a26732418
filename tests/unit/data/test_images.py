"""Image sets, scoring and BatchNorm recalibration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import parse_config
from lipt.data.chunks import Dataset
from lipt.data.images import ResidentImages, StreamedImages, image_shape, open_images
from lipt.progress import Reporter
from lipt.stages.ingest import write_chunks
from lipt.training.forward import forward_batches, outputs_of, recalibrate_batchnorm
from lipt.training.loop import batch_sizes
from lipt.training.networks import build_model
from tests.unit.training.helpers import blocks

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    store = open_store(str(tmp_path_factory.mktemp("digits")))
    write_chunks(parse_config({"data": {"source": "digits", "chunk_mb": 0.5}}).data, store, Reporter(), "ingest")
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


def test_an_epoch_of_streamed_images_visits_each_row_once_in_a_new_order(dataset: Dataset) -> None:
    streamed = open_images(dataset, "train", np.arange(1438), image_size=None, resident_bytes=0)
    rows = torch.randperm(1438)[:1200]
    first, second = streamed.epoch_order(rows, seed=1), streamed.epoch_order(rows, seed=2)
    assert sorted(first.tolist()) == sorted(second.tolist()) == sorted(rows.tolist())
    assert not torch.equal(first, second)
    assert torch.equal(first, streamed.epoch_order(rows, seed=1))


def test_scores_do_not_depend_on_the_batch() -> None:
    """The usual defect: a mean-reduced loss scales per-sample gradients by the batch, the last batch by more."""
    images, model = blocks(n=50), build_model("resnet18", num_classes=4, seed=0, width=4)
    whole = outputs_of(model, images, device=CPU, batch_size=50)
    for size in (1, 7, 32):
        parts = outputs_of(model, images, device=CPU, batch_size=size)
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
