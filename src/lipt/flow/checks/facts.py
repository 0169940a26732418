"""Facts about a data set that need no ingestion: numbers of images and classes, size of an image."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import Config, Data
from lipt.data.chunks import Dataset, num_test_samples
from lipt.data.shards import count_validation
from lipt.data.sources import Listing, open_source, recognise
from lipt.runtime.chunk_store import find_thumbnails, is_chunk_store
from lipt.selection.registry import shares


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The training split of a data set."""

    train: int
    """Number of images, validation images included."""
    test: int = 0
    """Images that ingestion sets aside for the test: `train` is without them."""
    classes: int
    size: tuple[int, int] | None = None
    """Height and width in pixels; None if unknown."""
    per_class: Mapping[str, int] | None = None
    """Images of each class, by its name; None if unknown."""

    @classmethod
    def of(cls, data: Data, listing: Callable[[], Listing] | None = None) -> Facts:
        """The facts about the configured data. Nothing is downloaded, and images are read only until one is readable.

        Args:
            listing: returns the listing of the source, if the caller has one; otherwise the source is listed here.

        Raises:
            LiptError: the data are missing, unreadable or unusable.
        """
        side = (data.image_size, data.image_size) if data.image_size else None
        if is_chunk_store(data):
            store = open_store(data.source)
            manifest = Dataset(DatasetFiles(store).read).manifest
            if data.thumbnails:
                find_thumbnails(store, manifest, data.thumbnails)
            return cls(train=manifest.splits["train"].count, classes=len(manifest.classes), size=side)
        found = recognise(data.source, data.format).published
        if found is None:
            found = listing() if listing else Listing.of(open_source(data.source, data.format))
        per_class = _train(data, found)
        train = sum(per_class.values())
        return cls(
            train=train,
            test=sum(found.counts["train"]) - train,
            classes=len(found.classes),
            size=side or found.size,
            per_class=per_class,
        )

    def candidates(self, data: Data) -> int:
        """Number of training images that are not held out for validation.

        Raises:
            UsageError: one of the two sets is empty.
        """
        return self.train - count_validation(self.train, data.validation_fraction)

    def without(self, data: Data) -> str:
        """Behind the number of candidates: which other images there are."""
        test = f"{self.test:,} for the test and " if self.test else ""
        held_out = self.train - self.candidates(data)
        images = "images" if self.test else "training images"
        return f" ({self.train + self.test:,} {images} less {test}{held_out:,} for validation)"

    def classes_without_images(self, config: Config) -> tuple[list[str], float]:
        """The classes of which a balanced selection keeps no image, and a share that keeps one of each.

        Both are estimates: the exact candidates of a class are known only after ingestion. No classes if the numbers
        are unknown.
        """
        settings = config.select
        balanced = settings.algorithm == "stratified" or (settings.balanced and settings.algorithm != "random")
        if not self.per_class or not balanced:
            return [], 0.0
        # Each class loses its share to validation, but keeps at least one candidate.
        sizes = [max(1, round(count * (1 - config.data.validation_fraction))) for count in self.per_class.values()]
        kept = shares(max(1, round(settings.fraction * sum(sizes))), sizes)
        lost = [name for name, count in zip(self.per_class, kept, strict=True) if not count]
        return lost, math.ceil(100 / min(sizes)) / 100


def _train(data: Data, listing: Listing) -> dict[str, int]:
    """Training images of each class, without those that ingestion sets aside for the test."""
    counts = dict(zip(listing.classes, listing.counts["train"], strict=True))
    if "test" in listing.counts:
        return counts
    return {
        name: count - num_test_samples(count, data.test_fraction, name) if count else 0
        for name, count in counts.items()
    }
