"""Images and labels of a data set, in whichever form it gives its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from lipt.errors import UsageError
from lipt.selection.arrays import Samples, as_labels, length_of, unloaded
from lipt.selection.options import integer

_IMAGES, _LABELS = ("pixel_values", "image", "img", "images", "x"), ("labels", "label", "fine_label", "y")
_REMEDY = "give (image, label), (image, label, index) or a dict with an image and a label"

Transform = Callable[[Any], Any]


def loader_of(
    data: Dataset[Any] | DataLoader[Any] | Samples[Any],
    *,
    batch_size: int,
    num_workers: int,
    transform: Transform | None,
) -> DataLoader[Any]:
    """Batches of (images, labels) in the order of the data set. A loader of the user is taken as it is.

    Raises:
        UsageError: there are no samples, their form is unknown, `batch_size` or `num_workers` cannot be, or the user's
            loader shuffles, drops samples or comes with a transform.
    """
    if not length_of(unloaded(data)):
        raise UsageError("the data set is empty", "hand over at least one sample")
    if isinstance(data, DataLoader):
        if transform is not None:
            raise UsageError("a DataLoader is used as it is, without transform", "transform in its data set")
        _check_order(data)
        return data
    batch_size = integer(batch_size, "batch_size", least=1)
    num_workers = integer(num_workers, "num_workers", least=0)
    _picture_and_label(data[0])  # fail in this process, not in a worker
    listed = cast(Dataset[Any], data)  # the loader takes any that it can index
    return DataLoader(
        listed,
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=_Collate(transform),
        generator=torch.Generator().manual_seed(0),  # or the caller's own draws would change
    )


def images_and_labels(batch: Any) -> tuple[Tensor, Tensor]:
    """Images (B, ...), bytes scaled to 0..1, and int64 labels (B,) of a batch, which has the form of a sample.

    Raises:
        UsageError: the batch is a list of samples; the images are no tensor, or integers of more than 8 bits; the
            labels are not one integer per image; the batch is the error of a worker.
    """
    if isinstance(batch, UsageError):
        raise batch
    if isinstance(batch, list) and batch and all(isinstance(each, (tuple, Mapping)) for each in batch):
        raise UsageError(
            "the DataLoader gives a batch as a list of samples, not as images and labels",
            "let its collate_fn stack them, or hand over the data set itself",
        )
    x, labels = _picture_and_label(batch)
    if not isinstance(x, Tensor):
        raise UsageError(f"the batches hold images as {type(x).__name__}, not as a tensor", "add a transform")
    labels_B = as_labels(labels)
    if tuple(labels_B.shape) not in ((len(x),), (len(x), 1)):
        raise UsageError(
            f"a batch of {len(x)} images has labels of shape {tuple(labels_B.shape)}",
            "give each sample one class number, not a one-hot vector or several labels",
        )
    images = _as_image(x)
    if images.ndim == 4 and not images.is_floating_point():
        raise UsageError(
            f"the images are {images.dtype}: their range is unknown",
            "convert them in the data set: to uint8 (0 to 255), or to the floats that the model expects",
        )
    return images, labels_B.flatten()


class _Collate:
    """Stacks samples. (A class, so that the workers of a loader can receive it.)

    An error is returned in place of a batch: raised in a worker, it would reach the caller as the text of a traceback.
    """

    def __init__(self, transform: Transform | None) -> None:
        self.transform = transform

    def __call__(self, samples: list[Any]) -> tuple[Tensor, Any] | UsageError:
        try:
            return self._stacked(samples)
        except UsageError as error:
            return error

    def _stacked(self, samples: list[Any]) -> tuple[Tensor, Any]:
        pairs = [_picture_and_label(sample) for sample in samples]
        given = [self.transform(x) if self.transform else x for x, _ in pairs]
        images = [_as_image(x) for x in given]
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) > 1 and len({shape[1:] for shape in shapes}) == 1:  # such as grey and coloured pictures
            modes = {f"{len(x)} channels" if isinstance(x, Tensor) else str(x.mode) for x in given}
            raise UsageError(
                f"images have different modes: {', '.join(sorted(modes))}",
                'convert them with transform=, such as lambda image: image.convert("RGB")',
            )
        if len(shapes) > 1:
            raise UsageError(f"images have different sizes: {sorted(shapes)[:2]}", "resize them with transform=")
        return torch.stack(images), [label for _, label in pairs]


def _as_image(x: Any) -> Tensor:
    """A PIL image or a uint8 tensor as float32 (channels, H, W) from 0 to 1; another tensor as it is."""
    if isinstance(x, Tensor):
        return x.float() / 255 if x.dtype == torch.uint8 else x
    if hasattr(x, "getbands") and hasattr(x, "convert"):  # a PIL image, without importing PIL
        if x.mode[0] in "IF":  # `convert` would cut off everything above 255
            raise UsageError(
                f"an image has 16 or 32 bits per pixel (mode {x.mode}): its range is unknown",
                "scale it to a tensor from 0 to 1 with transform=",
            )
        x = x if x.mode in ("L", "RGB") else x.convert("RGB")
        pixels_HWC = np.array(x, dtype=np.float32).reshape(x.height, x.width, -1) / 255
        return torch.from_numpy(pixels_HWC).permute(2, 0, 1).contiguous()
    raise UsageError(
        f"an image has the type {type(x).__name__}, not tensor or PIL image", "turn it into a tensor with transform="
    )


def _picture_and_label(sample: Any) -> tuple[Any, Any]:
    if isinstance(sample, Mapping):
        image, label = (next((name for name in names if name in sample), None) for names in (_IMAGES, _LABELS))
        if image is not None and label is not None:
            return sample[image], sample[label]
        keys = ", ".join(map(str, sample))
        raise UsageError(
            f"a sample is a dict of {keys}: image or label is missing",
            f"name the image one of {', '.join(_IMAGES)} and the label one of {', '.join(_LABELS)}",
        )
    if isinstance(sample, (tuple, list)) and len(sample) in (2, 3):
        return sample[0], sample[1]
    what = type(sample).__name__
    if isinstance(sample, (tuple, list)):
        what = f"({', '.join(type(each).__name__ for each in sample)})"
    raise UsageError(f"the data set gives {what}, not an image and a label", _REMEDY)


def _check_order(loader: DataLoader[Any]) -> None:
    """A selection is of positions in the data set, so all samples must come in its order."""
    n = length_of(loader.dataset)
    batches = loader.batch_sampler
    in_order = (
        type(batches) is BatchSampler
        and not batches.drop_last  # the loader's own drop_last is False if it was given a batch_sampler
        and isinstance(batches.sampler, SequentialSampler)
        and len(batches.sampler) == n
    )
    if not in_order:
        raise UsageError(
            "the DataLoader does not give all samples in batches and in order",
            "give it a batch_size, shuffle=False, drop_last=False and no sampler",
        )


def check_count(given: int, expected: int) -> None:
    """A loader may give other samples than its sampler promises.

    Raises:
        UsageError: the batches hold more or fewer samples than the data set.
    """
    if given != expected:
        raise UsageError(
            f"the batches hold {given} samples, the data set {expected}",
            "let the DataLoader give every sample once: without a sampler or collate_fn that leaves out or repeats any",
        )
