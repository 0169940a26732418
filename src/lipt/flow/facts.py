"""What can be known of a data set without its images: how many, of how many classes, how large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import Data
from lipt.data.chunks import Dataset, num_test_samples
from lipt.data.shards import count_validation
from lipt.data.sources import Listing, open_source, recognise
from lipt.stages.ingest import is_chunk_store


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The training split of a data set."""

    train: int
    """Images, validation included."""
    classes: int
    size: tuple[int, int] | None = None
    """Height and width in pixels; None where it is not known."""

    @classmethod
    def of(cls, data: Data, listing: Callable[[], Listing] | None = None) -> Facts:
        """Of the configured data. Nothing is downloaded, no image but the first is read.

        Args:
            listing: gives what the source holds, where it is known already.

        Raises:
            LiptError: they are not there, must not be read, or cannot be used.
        """
        side = (data.image_size, data.image_size) if data.image_size else None
        if is_chunk_store(data):
            manifest = Dataset(DatasetFiles(open_store(data.source)).read).manifest
            return cls(train=manifest.splits["train"].count, classes=len(manifest.classes), size=side)
        kind = recognise(data.source, data.format)
        if kind in _PUBLISHED:
            counts, has_test, size = _PUBLISHED[kind]
            names: Sequence[str] = [str(label) for label in range(len(counts))]
        else:
            found = listing() if listing else Listing.of(open_source(data.source, data.format))
            names, counts, size = found.classes, found.counts["train"], found.size
            has_test = "test" in found.counts
        return cls(train=_train(data, names, counts, has_test), classes=len(counts), size=side or size)

    def candidates(self, data: Data) -> int:
        """Training images that are not for validation.

        Raises:
            RunError: one of the two sets is empty.
        """
        return self.train - count_validation(self.train, data.validation_fraction)


#: (training images of each class, whether there is a test split, height and width)
_PUBLISHED: dict[str, tuple[tuple[int, ...], bool, tuple[int, int]]] = {
    "digits": ((178, 182, 177, 183, 181, 182, 181, 179, 174, 180), False, (8, 8)),
    "cifar10": ((5000,) * 10, True, (32, 32)),
    "cifar100": ((500,) * 100, True, (32, 32)),
}


def _train(data: Data, names: Sequence[str], counts: Sequence[int], has_test: bool) -> int:
    if has_test:
        return sum(counts)
    return sum(
        count - num_test_samples(count, data.test_fraction, name)
        for name, count in zip(names, counts, strict=True)
        if count
    )
