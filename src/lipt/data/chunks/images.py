"""From image files to tensors. Legend: N samples, H W pixels."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from lipt.data.chunks.parallel import ordered_map
from lipt.data.chunks.reading import RangeRead, Sample, SampleRanges, read_samples
from lipt.data.decoding import decode_stored
from lipt.errors import RunError

_THREADS = 8
_BATCH = 64  # samples per decoding task: enough to outweigh the cost of starting a task

Pixels = npt.NDArray[np.uint8]


def decode_image(data: bytes, name: str) -> Tensor:
    """uint8 (3, H, W), RGB: upright, transparency on white (docs/data.md says how an image is read).

    Raises:
        RunError: `name` is not a readable JPEG or PNG file.
    """
    return torch.from_numpy(np.array(decode_stored(data, name)).transpose(2, 0, 1)).contiguous()


def load_images(wanted: SampleRanges, read: RangeRead, *, image_size: int | None) -> Tensor:
    """Read and decode samples: uint8 RGB (N, 3, H, W), in the order of `wanted.positions_N`.

    Args:
        image_size: side in pixels; an image of another size is resized (shorter side, bilinear) and centre-cropped.
            None: all images must have the same size.

    Raises:
        RunError: an image is unreadable, or sizes differ and `image_size` is None.
        DamagedDataError: as `read_samples`.
    """
    rows = np.argsort(wanted.positions_N)
    batches = _batches(read_samples(wanted, read, threads=_THREADS))
    decoded = ordered_map(
        lambda batch: [_pixels(sample, wanted.split, image_size) for sample in batch],
        batches,
        threads=_THREADS,
        window=2 * _THREADS,
    )
    images_NCHW: Pixels = np.empty((0, 3, image_size or 0, image_size or 0), dtype=np.uint8)
    for row, pixels in zip(rows, (pixels for batch in decoded for pixels in batch), strict=True):
        if not len(images_NCHW):
            images_NCHW = np.empty((len(wanted), 3, *pixels.shape[:2]), dtype=np.uint8)
        if pixels.shape[:2] != images_NCHW.shape[2:]:
            raise RunError(
                f"split {wanted.split!r}: sample {wanted.positions_N[row]} has {pixels.shape[1]}x{pixels.shape[0]} "
                f"pixels, others {images_NCHW.shape[3]}x{images_NCHW.shape[2]}",
                "set data.image_size: all images are then resized to it",
            )
        images_NCHW[row] = pixels.transpose(2, 0, 1)
    return torch.from_numpy(images_NCHW)


def _batches(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    iterator = iter(samples)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _pixels(sample: Sample, split: str, image_size: int | None) -> Pixels:
    image = decode_stored(sample.image, f"sample {sample.position} of split {split!r}")
    if image_size is not None and image.size != (image_size, image_size):
        image = _fit(image, image_size)
    return np.asarray(image)


def _fit(image: Image.Image, side: int) -> Image.Image:
    """Shorter side to `side`, then the central square."""
    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    left, top = (width - side) // 2, (height - side) // 2
    return image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + side, top + side))
