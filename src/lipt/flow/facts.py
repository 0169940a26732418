"""Facts about a data set that need no ingestion: numbers of images and classes, size of an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import Data
from lipt.data.chunks import Dataset, num_test_samples
from lipt.data.shards import count_validation
from lipt.data.sources import Listing, open_source, recognise
from lipt.stages.ingest import find_thumbnails, is_chunk_store


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The training split of a data set."""

    train: int
    """Number of images, validation images included."""
    classes: int
    size: tuple[int, int] | None = None
    """Height and width in pixels; None if unknown."""

    @classmethod
    def of(cls, data: Data, listing: Callable[[], Listing] | None = None) -> Facts:
        """The facts about the configured data. Nothing is downloaded, and at most one image is read.

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
        return cls(train=_train(data, found), classes=len(found.classes), size=side or found.size)

    def candidates(self, data: Data) -> int:
        """Number of training images that are not held out for validation.

        Raises:
            RunError: one of the two sets is empty.
        """
        return self.train - count_validation(self.train, data.validation_fraction)


def _train(data: Data, listing: Listing) -> int:
    counts = listing.counts["train"]
    if "test" in listing.counts:
        return sum(counts)
    return sum(
        count - num_test_samples(count, data.test_fraction, name)
        for name, count in zip(listing.classes, counts, strict=True)
        if count
    )
