"""From image files to tensors. Legend: N samples, H W pixels."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lipt.data.chunks.parallel import ordered_map
from lipt.data.chunks.reading import Ints, Sample
from lipt.data.decoding import decode_stored, resize_shorter
from lipt.errors import RunError

_THREADS = 8  # at most
_BATCH = 32  # samples per decoding task: enough to outweigh the cost of starting a task


def decoding_threads() -> int:
    """Number of threads of a process that decode."""
    return min(_THREADS, os.cpu_count() or 1)


Decode = Callable[[Sample, str], Tensor]
"""decode(sample, name): uint8 (3, H, W). `name` stands for the sample in error messages."""


def decode_image(data: bytes, name: str) -> Tensor:
    """uint8 (3, H, W), RGB: upright, transparency on white (docs/reference/sources.md says how an image is read).

    Raises:
        RunError: `name` is not a readable JPEG or PNG file.
    """
    return _tensor(decode_stored(data, name))


def fitted(image_size: int | None) -> Decode:
    """Decodes whole images.

    Args:
        image_size: side in pixels; an image of another size is resized (shorter side, bilinear) and centre-cropped.
            None: all images must have the same size.
    """

    def decode(sample: Sample, name: str) -> Tensor:
        image = decode_stored(sample.image, name)
        if image_size is not None and image.size != (image_size, image_size):
            image = _fit(image, image_size)
        return _tensor(image)

    return decode


def decode_samples(samples: Iterable[Sample], positions_N: Ints, split: str, decode: Decode) -> Tensor:
    """Decode in threads: uint8 RGB (N, 3, H, W) in the order of `positions_N`, with the memory format of `decode`.

    Args:
        samples: those at `positions_N`, at least one, by ascending position.

    Raises:
        RunError: an image is unreadable, or sizes differ.
    """
    decoded = ordered_map(
        lambda batch: [decode(sample, f"sample {sample.position} of split {split!r}") for sample in batch],
        _batches(samples),
        threads=decoding_threads(),
        window=2 * _THREADS,
    )
    images_NCHW = torch.empty(0)
    for row, image_3HW in zip(np.argsort(positions_N), (image for batch in decoded for image in batch), strict=True):
        if not len(images_NCHW):
            memory = torch.contiguous_format if image_3HW.is_contiguous() else torch.channels_last
            images_NCHW = torch.empty(len(positions_N), *image_3HW.shape, dtype=torch.uint8, memory_format=memory)
        if image_3HW.shape != images_NCHW.shape[1:]:
            raise RunError(
                f"split {split!r}: sample {positions_N[row]} has {image_3HW.shape[2]}x{image_3HW.shape[1]} "
                f"pixels, others {images_NCHW.shape[3]}x{images_NCHW.shape[2]}",
                "set data.image_size: all images are then resized to it",
            )
        images_NCHW[row] = image_3HW
    return images_NCHW


def _batches(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    iterator = iter(samples)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _fit(image: Image.Image, side: int) -> Image.Image:
    """Shorter side to `side`, then the central square."""
    image = resize_shorter(image, side)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
