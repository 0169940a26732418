"""The data sets that one ingest writes side by side: the images of the source, and their thumbnails."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lipt.data.chunks.index import Index
from lipt.data.chunks.journal import Journal
from lipt.data.chunks.manifest import MANIFEST, ChunkInfo, IndexInfo, Manifest, SplitInfo, canonical_digest
from lipt.data.chunks.members import END_OF_TAR, pack_sample
from lipt.data.decoding import decode_stored, encode_png, resize_shorter
from lipt.errors import DamagedDataError

#: A chunk, and its rows of the index.
Part = tuple[ChunkInfo, Index]


class Original(NamedTuple):
    """An image of the source."""

    key: str
    """The name of its tar members."""
    image: bytes
    ext: str
    label: int
    name: str
    """Its name in the source."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One of the data sets.

    Attributes:
        recipe: the settings that determine its bytes, besides the source.
        pack: the bytes of a sample.
        end: the bytes behind the last sample of a chunk.
    """

    journal: Journal
    recipe: dict[str, Any]
    pack: Callable[[Original], bytes]
    end: bytes

    def manifest(self) -> Manifest | None:
        """The manifest, if the data set is complete; None without a manifest.

        Raises:
            DamagedDataError, RunError: as `Manifest.from_json`.
        """
        found = self.journal.get(MANIFEST)
        return None if found is None else Manifest.from_json(found)

    def write_chunk(
        self, split: str, number: int, spans: Sequence[bytes], labels: Sequence[int], names: list[str]
    ) -> Part:
        """Write the chunk that holds these samples."""
        ends = np.cumsum([len(span) for span in spans])
        entries = [
            (number, int(end) - len(span), len(span), label, zlib.crc32(span))
            for end, span, label in zip(ends, spans, labels, strict=True)
        ]
        data, index = b"".join([*spans, self.end]), Index.from_rows(entries, names)
        file = self.journal.chunk_file(split, number)
        self.journal.put(file, data)
        chunk = ChunkInfo(file, len(data), hashlib.sha256(data).hexdigest(), len(index))
        self.journal.record(split, number, chunk, index)
        return chunk, index

    def write_index(self, split: str, parts: Sequence[Part], num_classes: int) -> SplitInfo:
        """Write the index of a split."""
        index = Index.concatenate([rows for _, rows in parts])
        data = index.to_parquet()
        file = f"{split}.index.parquet"
        self.journal.put(file, data)
        return SplitInfo(
            count=len(index),
            class_counts=tuple(np.bincount(index.label, minlength=num_classes).tolist()),
            chunks=tuple(chunk for chunk, _ in parts),
            index=IndexInfo(file, hashlib.sha256(data).hexdigest()),
        )


def images_copy(journal: Journal, recipe: dict[str, Any]) -> Copy:
    """The images as they are, in tars."""

    def pack(sample: Original) -> bytes:
        return pack_sample(sample.key, sample.image, sample.ext, sample.label)

    return Copy(journal=journal, recipe=recipe, pack=pack, end=END_OF_TAR)


def thumbnails_copy(images: Copy, side: int) -> Copy:
    """The thumbnails of the images, as PNG files one after the other: tar headers would be larger than they are."""
    recipe = images.recipe | {"thumbnails": side}
    journal = images.journal.below(thumbnails_folder(side), canonical_digest(recipe), ".bin")
    return Copy(journal=journal, recipe=recipe, pack=lambda sample: thumbnail(sample.image, sample.name, side), end=b"")


def thumbnails_folder(side: int) -> str:
    """The folder of the thumbnails, below the data set."""
    return f"thumbnails-{side}"


def thumbnails_are_of(thumbnails: Manifest, images: Manifest) -> bool:
    """Whether the two data sets hold the same images in the same order."""
    return thumbnails.recipe.get("of") == images.digest


def thumbnail(image: bytes, name: str, side: int) -> bytes:
    """The whole image as a PNG, its shorter side at most `side` pixels. Decoded whole at `side` pixels
    (`lipt.data.chunks.fitted`), it gives the same pixels as the image itself.

    Raises:
        RunError: the image cannot be decoded; the message names `name`.
    """
    pixels = Image.fromarray(decode_stored(image, name))
    return encode_png(resize_shorter(pixels, side) if min(pixels.size) > side else pixels)


def has_thumbnails(thumbnails: Copy, images: Manifest) -> bool:
    """Whether the thumbnails of these images are complete."""
    try:
        found = thumbnails.manifest()
    except DamagedDataError:
        return False
    return found is not None and thumbnails_are_of(found, images) and thumbnails.journal.holds(found.splits)
