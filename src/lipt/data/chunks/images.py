"""From image files to tensors. Legend: N samples, H W pixels."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lipt.data.chunks.parallel import ordered_map
from lipt.data.chunks.reading import Ints, Sample
from lipt.data.decoding import decode_stored, resize_shorter
from lipt.errors import UsageError

_THREADS = 8  # at most
_BATCH = 32  # samples per decoding task: enough to outweigh the cost of starting a task
_THIN = 4  # longer side by shorter side; a thinner image is never enlarged whole
_SMALL = 4096  # bytes of a file; for smaller ones threads wait for Python's lock, and eight take twice as long as one


def decoding_threads(sample: Sample) -> int:
    """Number of threads of a process that decode samples like this one."""
    return 1 if len(sample.image) < _SMALL else min(_THREADS, torch.get_num_threads())


Decode = Callable[[Sample, str], Tensor]
"""decode(sample, name): uint8 (3, H, W). `name` stands for the sample in error messages."""


def fitted(image_size: int | None) -> Decode:
    """Decodes whole images.

    Args:
        image_size: side in pixels; an image of another size is resized (shorter side, bilinear) and centre-cropped.
            None: all images must have the same size.
    """

    def decode(sample: Sample, name: str) -> Tensor:
        pixels_HW3 = decode_stored(sample.image, name)
        if image_size is not None and pixels_HW3.shape[:2] != (image_size, image_size):
            pixels_HW3 = np.array(_fit(Image.fromarray(pixels_HW3), image_size))
        return torch.from_numpy(pixels_HW3).permute(2, 0, 1)

    return decode


def decode_samples(
    samples: Iterable[Sample],
    positions_N: Ints,
    split: str,
    decode: Decode,
    source_name: Callable[[int], str | None],
    memory: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Decode in threads: uint8 RGB (N, 3, H, W) in the order of `positions_N`.

    Args:
        samples: those at `positions_N`, at least one, by ascending position.
        source_name: gives the name of a position in the source, for an error; None if it is not known.
        memory: format of the result.

    Raises:
        RunError: an image is unreadable.
        UsageError: sizes differ.
    """
    images_NCHW, pixels_NCHW = torch.empty(0), np.empty(0)
    for row, image_3HW in zip(np.argsort(positions_N), _decoded(samples, split, decode), strict=True):
        if not len(images_NCHW):
            images_NCHW = torch.empty(len(positions_N), *image_3HW.shape, dtype=torch.uint8, memory_format=memory)
            pixels_NCHW = images_NCHW.numpy()
        if image_3HW.shape != images_NCHW.shape[1:]:
            position = int(positions_N[row])
            named = source_name(position) or f"sample {position}"
            raise UsageError(
                f"split {split!r}: {named} has {image_3HW.shape[2]}x{image_3HW.shape[1]} pixels, "
                f"others {images_NCHW.shape[3]}x{images_NCHW.shape[2]}",
                "set data.image_size: all images are then resized to it",
            )
        pixels_NCHW[row] = image_3HW.numpy()
    return images_NCHW


def _decoded(samples: Iterable[Sample], split: str, decode: Decode) -> Iterator[Tensor]:
    """The images in the order of the samples."""

    def decode_all(batch: list[Sample]) -> list[Tensor]:
        return [decode(sample, f"sample {sample.position} of split {split!r}") for sample in batch]

    batches = _batches(samples)
    first = next(batches)
    threads, batches = decoding_threads(first[0]), chain([first], batches)
    if threads == 1:
        return chain.from_iterable(map(decode_all, batches))
    return chain.from_iterable(ordered_map(decode_all, batches, threads=threads, window=2 * threads))


def _batches(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    iterator = iter(samples)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _fit(image: Image.Image, side: int) -> Image.Image:
    """Shorter side to `side`, then the central square."""
    short = min(image.size)
    if short < side and max(image.size) > _THIN * short:
        # The same within half a pixel. Enlarged whole, an image of 1 x 60,000 pixels would take gigabytes.
        left, top = (image.width - short) / 2, (image.height - short) / 2
        return image.resize((side, side), Image.Resampling.BILINEAR, box=(left, top, left + short, top + short))
    image = resize_shorter(image, side)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))
