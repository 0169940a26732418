"""Forward passes of trained models: predictions, accuracies, outputs for the selection, BatchNorm statistics.

Shape legend: N images, B batch, C classes, D penultimate features, M models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from lipt.data.augmentation import Augment, no_augmentation, normalise
from lipt.data.images import ImageSet, to_device
from lipt.rng import global_seed
from lipt.selection import Outputs
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.dataset import logits_and_features
from lipt.selection.numerics.blocks import RowBuffer
from lipt.training.precision import Precision, autocast

#: Bytes that models and their outputs may always take in one pass, as two groups of streamed images may.
_FREE = 128e6


def forward_batches(
    images: ImageSet,
    batch_size: int,
    device: torch.device,
    augment: Augment = no_augmentation,
    seed: int | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Normalised batches on `device`, with their labels (in memory), in the order of the image set.

    Args:
        batch_size: of the largest batch.
        seed: of `augment`, and of random crops if images are cropped when they are decoded; None: no random crops.
    """
    rows_N = torch.arange(len(images))
    # Equal up to one image: in train mode BatchNorm fails on a rest of one image, and its averages are over batches.
    parts = rows_N.tensor_split(max(1, math.ceil(len(images) / batch_size)))
    sizes = [len(part) for part in parts]
    for rows_B, batch in zip(parts, images.batches(rows_N, sizes, seed), strict=True):
        yield normalise(augment(to_device(batch, device), rows_B, seed or 0)), images.labels_N[rows_B]


def evaluation_batch(device: torch.device) -> int:
    """Images per forward pass without gradients: 128 fit a CPU's cache (512 take twice as long), 512 fill a GPU."""
    return 128 if device.type == "cpu" else 512


def models_at_once(model_bytes: float, resident_bytes: float) -> int:
    """Number of models that share a pass over streamed images, so that these are decoded once for all of them.

    They and their outputs take at most `resident_bytes`, but may always take 128 MB. A single model may take more.

    Args:
        model_bytes: of the weights of a model and its outputs for all images.
    """
    return max(1, int(max(resident_bytes, _FREE) // model_bytes))


def _own_inputs(x: Tensor, models: Sequence[nn.Module]) -> Iterator[Tensor]:
    """The batch for each model. Each gets a copy but the last, because a user's network may change its input."""
    for _ in models[1:]:
        yield x.clone()
    yield x


@torch.no_grad()
def predictions(
    models: Sequence[nn.Module],
    images: ImageSet,
    *,
    device: torch.device,
    precision: Precision = "fp32",
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Tensor:
    """The class that each model predicts for each image in eval mode, int64 (M, N) on the CPU.

    Images are read and decoded once, for all models together.

    Args:
        advance: called after each batch with (images done, all images).
    """
    for model in models:
        model.eval()
    predicted_MN, done = torch.empty(len(models), len(images), dtype=torch.int64, device=device), 0
    for x, _ in forward_batches(images, evaluation_batch(device), device):
        with autocast(device, precision):
            logits = [model(own) for model, own in zip(models, _own_inputs(x, models), strict=True)]
            predicted_MN[:, done : done + len(x)] = torch.stack([logits_BC.argmax(1) for logits_BC in logits])
        done += len(x)
        advance(done, len(images))
    return predicted_MN.cpu()


def accuracies(
    models: Sequence[nn.Module],
    images: ImageSet,
    *,
    device: torch.device,
    precision: Precision = "fp32",
) -> list[float]:
    """Share of images that each model classifies correctly in eval mode."""
    found_MN = predictions(models, images, device=device, precision=precision)
    correct_MN = found_MN == images.labels_N
    return [float(share) for share in correct_MN.float().mean(1)]


def outputs_of(
    model: nn.Module,
    images: ImageSet,
    *,
    device: torch.device,
    precision: Precision = "fp32",
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Outputs:
    """The outputs of one model, all in float32; see `outputs_of_each`."""
    (outputs,) = outputs_of_each([model], images, device=device, precision=precision, advance=advance)
    return outputs


@torch.no_grad()
def outputs_of_each(
    models: Sequence[nn.Module],
    images: ImageSet,
    *,
    device: torch.device,
    precision: Precision = "fp32",
    top_classes: int | None = None,
    dtype: torch.dtype = torch.float32,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Outputs]:
    """Logits (N, C) and penultimate features (N, D) of each model on the CPU, in eval mode and without augmentation.

    Images are read and decoded once, for all models together. Apart from float32 rounding, the result does not depend
    on the batches: nothing is averaged over one.

    Args:
        top_classes: keep only the logits of the label and of this many other classes (`TopLogits`), if that is smaller.
        dtype: type of the features, and of logits that are kept whole.
        advance: called after each batch with (images done, all images).
    """
    for model in models:
        model.eval()
    stored, num_classes, done = [RowBuffer(len(images)) for _ in models], 0, 0
    for x, labels_B in forward_batches(images, evaluation_batch(device), device):
        for model, own, buffer in zip(models, _own_inputs(x, models), stored, strict=True):
            with autocast(device, precision):
                logits_BC, features_BD = (tensor_BX.float().cpu() for tensor_BX in logits_and_features(model, own))
            num_classes = logits_BC.shape[1]
            logits: Tensor | TopLogits = logits_BC.to(dtype)
            if top_classes and TopLogits.row_bytes(num_classes, top_classes) < num_classes * dtype.itemsize:
                logits = TopLogits.compress(logits_BC, labels_B, top_classes)
            buffer.put(done, Outputs(logits_NC=logits, features_ND=features_BD.to(dtype)).tensors())
        done += len(x)
        advance(done, len(images))
    return [Outputs.of(buffer.tensors, num_classes) for buffer in stored]


@torch.no_grad()
def recalibrate_batchnorm(
    model: nn.Module,
    images: ImageSet,
    *,
    device: torch.device,
    precision: Precision = "fp32",
    batch_size: int = 128,
    augment: Augment = no_augmentation,
    seed: int | None = None,
) -> None:
    """Replace all running statistics by averages over one pass in train mode (Ro et al. 2023).

    Layers that stay in eval mode keep theirs: a user's model may freeze some by a `train` method of its own.

    Args:
        seed: as for `forward_batches`, and of layers that draw.
    """
    model.train()
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]
    momenta = [module.momentum for module in norms]
    for module in norms:
        module.reset_running_stats()
        module.momentum = None  # cumulative average instead of a moving one
    with global_seed(seed or 0, "network"):  # in train mode layers such as Dropout draw
        for x, _ in forward_batches(images, batch_size, device, augment, seed):
            with autocast(device, precision):
                model(x)
    for module, momentum in zip(norms, momenta, strict=True):
        module.momentum = momentum
    model.eval()
