"""Image sets for training: in memory as one uint8 tensor, or streamed from the chunks if they do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lipt.data.chunks import Dataset, load_images
from lipt.data.shards import Positions
from lipt.rng import permutation

# A streamed epoch reads runs of neighbouring samples (one range request each) in random order. It decodes a group of
# runs at once, and shuffles the samples of the group.
_RUN = 256
_RUNS_PER_GROUP = 16


class ImageSet(Protocol):
    """Labelled images that can be read in any order."""

    @property
    def labels_N(self) -> Tensor:
        """int64 (N,)."""
        ...

    def __len__(self) -> int: ...

    def epoch_order(self, rows_K: Tensor, seed: int) -> Tensor:
        """The rows in an order that is cheap to read and random enough for SGD."""
        ...

    def batches(self, rows_K: Tensor, sizes: Sequence[int]) -> Iterator[Tensor]:
        """uint8 images (B, 3, H, W) of consecutive batches of `rows_K`.

        Args:
            sizes: B of each batch; only the first must be above 0.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ResidentImages:
    """All images as one tensor, uint8 (N, 3, H, W), in memory or on the training device; labels in memory."""

    images_NCHW: Tensor
    labels_N: Tensor

    def __len__(self) -> int:
        return len(self.labels_N)

    def epoch_order(self, rows_K: Tensor, _seed: int) -> Tensor:
        return rows_K

    def batches(self, rows_K: Tensor, sizes: Sequence[int]) -> Iterator[Tensor]:
        for rows_B in rows_K.to(self.images_NCHW.device).split(list(sizes)):
            yield self.images_NCHW[rows_B]

    def on(self, device: torch.device) -> ResidentImages:
        """The set with its images in the memory of `device`, if they take at most half of what is free there."""
        if device.type == "cuda" and self.images_NCHW.nbytes > torch.cuda.mem_get_info(device)[0] / 2:
            return self
        return ResidentImages(images_NCHW=self.images_NCHW.to(device), labels_N=self.labels_N)

    def subset(self, rows_K: Tensor) -> ResidentImages:
        """The images of these rows, in this order."""
        return ResidentImages(images_NCHW=self.images_NCHW[rows_K], labels_N=self.labels_N[rows_K])


@dataclass(frozen=True, kw_only=True)
class StreamedImages:
    """Images that are read from the store when they are needed; the next group is decoded while one is used."""

    dataset: Dataset
    split: str
    positions_N: Positions
    labels_N: Tensor
    image_size: int | None

    def __len__(self) -> int:
        return len(self.positions_N)

    def epoch_order(self, rows_K: Tensor, seed: int) -> Tensor:
        """Runs of neighbours in random order, shuffled within groups of 16 runs (4,096 samples)."""
        neighbours = rows_K[torch.from_numpy(np.argsort(self.positions_N[rows_K.numpy()], kind="stable"))]
        runs = list(neighbours.split(_RUN))
        shuffled = [runs[index] for index in permutation(len(runs), seed, "runs").tolist()]
        groups = [
            torch.cat(shuffled[start : start + _RUNS_PER_GROUP]) for start in range(0, len(shuffled), _RUNS_PER_GROUP)
        ]
        return torch.cat([group[permutation(len(group), seed, "group", index)] for index, group in enumerate(groups)])

    def batches(self, rows_K: Tensor, sizes: Sequence[int]) -> Iterator[Tensor]:
        groups = _grouped(list(rows_K.split(list(sizes))))
        with ThreadPoolExecutor(1) as ahead:
            pending = ahead.submit(self._load, groups[0])
            for following in [*groups[1:], None]:
                images = pending.result()
                if following is not None:
                    pending = ahead.submit(self._load, following)
                yield from images

    def subset(self, rows_K: Tensor) -> StreamedImages:
        """The images of these rows, in this order."""
        return StreamedImages(
            dataset=self.dataset,
            split=self.split,
            positions_N=self.positions_N[rows_K.numpy()],
            labels_N=self.labels_N[rows_K],
            image_size=self.image_size,
        )

    def whole(self) -> Tensor:
        """All images at once, uint8 (N, 3, H, W)."""
        return self._load([torch.arange(len(self))])[0]

    def _load(self, parts: list[Tensor]) -> list[Tensor]:
        wanted = self.dataset.ranges_of(self.split, self.positions_N[torch.cat(parts).numpy()])
        images_NCHW = load_images(wanted, self.dataset.read, image_size=self.image_size)
        return list(images_NCHW.split([len(part) for part in parts]))


def open_images(
    dataset: Dataset,
    split: str,
    positions: Positions,
    *,
    image_size: int | None,
    resident_bytes: float,
    load: Callable[[StreamedImages], Tensor] = StreamedImages.whole,
) -> ResidentImages | StreamedImages:
    """The images at `positions` of a split: in memory if they take at most `resident_bytes` decoded, else streamed.

    Args:
        image_size: side in pixels; None if all images have the same size.
        load: reads the images that stay in memory.
    """
    labels_N = torch.from_numpy(dataset.index(split).label[positions].astype(np.int64))
    streamed = StreamedImages(
        dataset=dataset, split=split, positions_N=positions, labels_N=labels_N, image_size=image_size
    )
    side = image_size or _side(streamed)
    if len(positions) * 3 * side * side > resident_bytes:
        return streamed
    return ResidentImages(images_NCHW=load(streamed), labels_N=labels_N)


def to_device(batch: Tensor, device: torch.device) -> Tensor:
    """The batch on `device`; a GPU fetches it while the CPU goes on."""
    if device.type == "cuda" and batch.device.type == "cpu":
        batch = batch.pin_memory()
    return batch.to(device, non_blocking=True)


def image_shape(images: ImageSet) -> tuple[int, int, int]:
    """(3, H, W) of an image set."""
    first = next(iter(images.batches(torch.tensor([0]), [1])))
    return int(first.shape[1]), int(first.shape[2]), int(first.shape[3])


def _side(images: StreamedImages) -> int:
    return max(image_shape(images)[1:])


def _grouped(parts: list[Tensor]) -> list[list[Tensor]]:
    """Divides consecutive batches into groups of at least 4,096 samples each, except the last."""
    groups: list[list[Tensor]] = [[]]
    for part in parts:
        if len(part) and sum(len(other) for other in groups[-1]) >= _RUN * _RUNS_PER_GROUP:
            groups.append([])
        groups[-1].append(part)
    return groups
