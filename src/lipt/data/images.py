"""Image sets for training: in memory as one uint8 tensor, or streamed from the chunks if they do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lipt.data.chunks import Dataset, Decode, Sample, SampleRanges, decode_samples, fitted, read_samples
from lipt.data.cropping import Crops
from lipt.data.shards import Positions
from lipt.rng import derive, permutation

# A streamed epoch reads runs of neighbouring samples (one range request each) in random order. It decodes a group of
# runs at once, and shuffles the samples of the group. (samples, runs) of a group at most, without and with crops:
# a group of photographs, decoded to 224 px, takes 154 MB, and a run of 110 kB each 3.5 MB.
_GROUPS = {False: (4096, 16), True: (1024, 32)}
_FREE = 64e6  # bytes that a group may always take: little beside what the process takes without images


def group_size(side: int, resident_bytes: float, *, crops: bool) -> int:
    """Number of samples that a streamed epoch decodes at once, unless one batch is larger.

    Two groups are in memory at the same time. They take at most `resident_bytes`, but a group may always take 64 MB.
    The order of an epoch depends on this number, so it depends on nothing else.

    Args:
        side: of a decoded image, in pixels.
    """
    return max(1, min(_GROUPS[crops][0], int(max(resident_bytes / 2, _FREE) // (3 * side * side))))


class ImageSet(Protocol):
    """Labelled images that can be read in any order."""

    @property
    def labels_N(self) -> Tensor:
        """int64 (N,)."""
        ...

    def __len__(self) -> int: ...

    def subset(self, rows_K: Tensor) -> ImageSet:
        """The images of these rows, in this order."""
        ...

    def epoch_order(self, rows_K: Tensor, seed: int) -> Tensor:
        """The rows in an order that is cheap to read and random enough for SGD."""
        ...

    def batches(self, rows_K: Tensor, sizes: Sequence[int], seed: int | None = None) -> Iterator[Tensor]:
        """uint8 images (B, 3, H, W) of consecutive batches of `rows_K`.

        Args:
            sizes: B of each batch; only the first must be above 0.
            seed: of the random crops of this epoch, if images are cropped when they are decoded; None: no random crops.
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

    def batches(self, rows_K: Tensor, sizes: Sequence[int], _seed: int | None = None) -> Iterator[Tensor]:
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
    """Images that are decoded when they are needed; the next group is read and decoded while one is used."""

    dataset: Dataset
    split: str
    positions_N: Positions
    labels_N: Tensor
    image_size: int | None
    crops: Crops | None = None
    """Decode crops instead of whole images (`data.crop: resized`)."""
    group: int | None = None
    """Samples that are decoded at once, as `group_size` says; None: as many as without a limit of memory."""
    held: Mapping[int, Sample] | None = None
    """The image files by position, if they are held in memory; None: they are read from the store at each use."""

    def __len__(self) -> int:
        return len(self.positions_N)

    def epoch_order(self, rows_K: Tensor, seed: int) -> Tensor:
        """Runs of neighbours in random order, shuffled within groups: 16 runs of 256, or 32 of 32 with crops; shorter
        ones if the images are so large that a group has fewer samples."""
        neighbours = rows_K[torch.from_numpy(np.argsort(self.positions_N[rows_K.numpy()], kind="stable"))]
        most, runs_per_group = _GROUPS[self.crops is not None]
        group_samples = self.group or most
        runs_per_group = min(runs_per_group, group_samples)
        runs = list(neighbours.split(group_samples // runs_per_group))
        shuffled = [runs[index] for index in permutation(len(runs), seed, "runs").tolist()]
        groups = [
            torch.cat(shuffled[start : start + runs_per_group]) for start in range(0, len(shuffled), runs_per_group)
        ]
        return torch.cat([group[permutation(len(group), seed, "group", index)] for index, group in enumerate(groups)])

    def batches(self, rows_K: Tensor, sizes: Sequence[int], seed: int | None = None) -> Iterator[Tensor]:
        groups = _grouped(list(rows_K.split(list(sizes))), self.group or _GROUPS[self.crops is not None][0])
        with ThreadPoolExecutor(1) as ahead:
            pending = ahead.submit(self._load, groups[0], seed)
            for following in [*groups[1:], None]:
                images = pending.result()
                if following is not None:
                    pending = ahead.submit(self._load, following, seed)
                yield from images

    def subset(self, rows_K: Tensor) -> StreamedImages:
        """The images of these rows, in this order."""
        return replace(self, positions_N=self.positions_N[rows_K.numpy()], labels_N=self.labels_N[rows_K])

    def hold(self, wanted: SampleRanges) -> StreamedImages:
        """The same set with its image files in memory, read from `wanted`."""
        return replace(self, held={sample.position: sample for sample in read_samples(wanted, self.dataset.read)})

    def whole(self) -> Tensor:
        """All images at once, uint8 (N, 3, H, W), without random crops."""
        return self._load([torch.arange(len(self))])[0].contiguous()

    def resident(self) -> ResidentImages:
        """The same set, decoded in memory."""
        return ResidentImages(images_NCHW=self.whole(), labels_N=self.labels_N)

    def _load(self, parts: list[Tensor], seed: int | None = None) -> list[Tensor]:
        positions = self.positions_N[torch.cat(parts).numpy()]
        if self.held is None:
            samples = read_samples(self.dataset.ranges_of(self.split, positions), self.dataset.read)
        else:
            samples = map(self.held.__getitem__, np.sort(positions).tolist())
        memory = torch.contiguous_format if self.crops is None else torch.channels_last
        images_NCHW = decode_samples(samples, positions, self.split, self._decode(seed), self._source_name, memory)
        return list(images_NCHW.split([len(part) for part in parts]))

    def _source_name(self, position: int) -> str | None:
        names = self.dataset.names(self.split)
        return None if names is None else str(names[position])

    def _decode(self, seed: int | None) -> Decode:
        crops = self.crops
        if crops is None:
            return fitted(self.image_size)
        return lambda sample, name: crops.decode(
            sample.image, name, None if seed is None else derive(seed, sample.position)
        )


def stream(
    dataset: Dataset,
    split: str,
    positions: Positions,
    *,
    image_size: int | None,
    crops: Crops | None,
    group: int | None = None,
) -> StreamedImages:
    """The images at `positions` of a split, read from the store at each use."""
    labels_N = torch.from_numpy(dataset.index(split).label[positions].astype(np.int64))
    return StreamedImages(
        dataset=dataset,
        split=split,
        positions_N=positions,
        labels_N=labels_N,
        image_size=image_size,
        crops=crops,
        group=group,
    )


def open_images(
    dataset: Dataset,
    split: str,
    positions: Positions,
    *,
    image_size: int | None,
    crops: Crops | None = None,
    resident_bytes: float,
    load: Callable[[StreamedImages], Tensor] = StreamedImages.whole,
) -> ResidentImages | StreamedImages:
    """The images at `positions` of a split: in memory if they take at most `resident_bytes` decoded, else streamed.

    Args:
        image_size: side in pixels; None if all images have the same size.
        crops: see `StreamedImages`.
        load: reads the images that stay in memory.
    """
    streamed = stream(dataset, split, positions, image_size=image_size, crops=crops)
    side = image_size or _side(streamed)
    if len(positions) * 3 * side * side > resident_bytes:
        return replace(streamed, group=group_size(side, resident_bytes, crops=crops is not None))
    return ResidentImages(images_NCHW=load(streamed), labels_N=streamed.labels_N)


def to_device(batch: Tensor, device: torch.device) -> Tensor:
    """The batch on `device`; a copy to a GPU runs while the CPU continues, because it comes from pinned memory."""
    if device.type == "cuda" and batch.device.type == "cpu":
        batch = batch.pin_memory()
    return batch.to(device, non_blocking=True)


def image_shape(images: ImageSet) -> tuple[int, int, int]:
    """(3, H, W) of an image set."""
    first = next(iter(images.batches(torch.tensor([0]), [1])))
    return int(first.shape[1]), int(first.shape[2]), int(first.shape[3])


def _side(images: StreamedImages) -> int:
    return max(image_shape(images)[1:])


def _grouped(parts: list[Tensor], most: int) -> list[list[Tensor]]:
    """Divides consecutive batches into groups of at most `most` samples each, or of one batch."""
    groups: list[list[Tensor]] = [[]]
    for part in parts:
        samples = sum(len(other) for other in groups[-1])
        if samples and len(part) and samples + len(part) > most:
            groups.append([])
        groups[-1].append(part)
    return groups
