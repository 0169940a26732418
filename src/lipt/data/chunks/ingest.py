"""Writing a data set: fix a stratified random order, pack the samples into tars, write the manifest last.

A `Journal` records the finished chunks, so that an interrupted call can continue.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lipt.data.chunks.copies import Copy, has_thumbnails, images_copy, thumbnails_copy
from lipt.data.chunks.journal import Journal, occupied
from lipt.data.chunks.manifest import MANIFEST, ChunkInfo, Manifest, SplitInfo, canonical_digest
from lipt.data.chunks.packing import NAMED, OrderedSplit, Packer, unreadable_images
from lipt.data.sources.base import Source
from lipt.errors import RunError, UsageError

# Independent random streams of one seed.
_TEST_SPLIT, _ORDER = 0, {"train": 1, "test": 2}


def write_dataset(
    source: Source,
    put: Callable[[str, bytes], None],
    *,
    seed: int,
    test_fraction: float,
    chunk_bytes: int = 64_000_000,
    thumbnails: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    get: Callable[[str], bytes | None] = lambda _file: None,
    delete: Callable[[str], None] = lambda _file: None,
    present: Callable[[ChunkInfo], bool] = lambda _chunk: True,
    say: Callable[[str], None] = lambda _text: None,
) -> Manifest:
    """Write `source` as a data set, in one pass over its images. While a chunk is written, the next one is read.

    About three chunks are in memory at a time. If a call with `get` and `delete` is killed, the same call continues
    after the last finished chunk and writes the same bytes; if the source has changed, it starts again. If the data
    set is complete, the call returns its manifest. If `present` reports a missing chunk, the data set is written again,
    with the same bytes.

    Args:
        put: writes a file atomically.
        seed: fixes the global order, and the test split if the source has none.
        test_fraction: share of each class that becomes the test split if the source has none.
        chunk_bytes: a chunk ends with the sample that reaches this size.
        thumbnails: also write the images with at most this many pixels on the shorter side, as a data set of its own
            in the folder `thumbnails-SIDE`. It has the same order.
        progress: called with (samples read, all samples).
        get: returns the contents of a file, None if there is no such file.
        delete: removes a file.
        present: whether the location still holds a chunk that was written.
        say: called with a message for each part of an interrupted ingest that cannot be used, and for each unreadable
            image if there are more than an error has room for.

    Raises:
        UsageError: the location holds another data set, or an unfinished one with other settings.
        RunError: images are unreadable (at most 1,000 are looked for), or a class is too small to be divided into
            training and test data.
    """
    recipe, fingerprint = _recipe(source, seed, chunk_bytes, test_fraction), source.fingerprint()
    images = images_copy(Journal(put, get, delete, present, say, canonical_digest(recipe), fingerprint), recipe)
    small = None if thumbnails is None else thumbnails_copy(images, thumbnails)
    copies = [images] if small is None else [images, small]
    if (existing := images.manifest()) is not None:
        if (existing.recipe, existing.fingerprint) != (recipe, fingerprint):
            raise occupied(MANIFEST, "a data set of other data or with other settings")
        for copy in copies:
            copy.journal.remove(existing.splits)
        if images.journal.holds(existing.splits) and (small is None or has_thumbnails(small, existing)):
            return existing
        delete(MANIFEST)
    infos = _write_splits(source, _order_splits(source, seed, test_fraction), copies, chunk_bytes, progress, say)
    about: dict[str, Any] = {"name": source.name, "classes": tuple(source.classes), "fingerprint": fingerprint}
    manifest = Manifest(splits=infos[0], recipe=recipe, **about)
    if small is not None:
        made = Manifest(splits=infos[1], recipe=small.recipe | {"of": manifest.digest}, **about)
        small.journal.put(MANIFEST, made.to_json())
    put(MANIFEST, manifest.to_json())  # last: it makes the whole complete
    for copy in copies:
        copy.journal.remove(infos[0])
    return manifest


def _write_splits(
    source: Source,
    splits: Mapping[str, OrderedSplit],
    copies: Sequence[Copy],
    chunk_bytes: int,
    progress: Callable[[int, int], None],
    say: Callable[[str], None],
) -> list[dict[str, SplitInfo]]:
    """Write the chunks and the index of each split. Returns for each copy what its manifest says about the splits.

    Raises:
        RunError: images are unreadable. Those of all splits are checked first.
    """
    total, before = sum(len(rows.rows_N) for rows in splits.values()), 0
    infos: list[dict[str, SplitInfo]] = [{} for _ in copies]
    broken: list[RunError] = []
    for split, rows in splits.items():

        def within(count: int, before: int = before) -> None:
            progress(before + count, total)

        packer = Packer(
            source=source,
            split=split,
            rows=rows,
            copies=copies,
            chunk_bytes=chunk_bytes,
            progress=within,
            broken=broken,
        )
        written = list(packer.chunks())
        before += len(rows.rows_N)
        if not broken:
            for copy, info, parts in zip(copies, infos, zip(*written, strict=True), strict=True):
                info[split] = copy.write_index(split, parts, len(source.classes))
    if len(broken) > NAMED:
        for error in broken:
            say(error.message)
    if broken:
        raise unreadable_images(broken)
    return infos


def stratified_order(labels_N: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A random order in which every contiguous window holds each class in proportion, within about one sample.

    Each class is shuffled; its j-th of n samples gets the key (j + u) / n with one u ~ U(0, 1) per class; sort by key.
    """
    tie_breaks = rng.permutation(len(labels_N))
    keys_N = np.empty(len(labels_N))
    for label in np.unique(labels_N):
        members = rng.permutation(np.flatnonzero(labels_N == label))
        keys_N[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.lexsort((tie_breaks, keys_N))


def _recipe(source: Source, seed: int, chunk_bytes: int, test_fraction: float) -> dict[str, Any]:
    """The settings that determine the chunks, besides the contents of the source."""
    return {
        "seed": seed,
        "chunk_bytes": chunk_bytes,
        "test_fraction": None if "test" in source.splits else test_fraction,
    }


def _order_splits(source: Source, seed: int, test_fraction: float) -> dict[str, OrderedSplit]:
    train_labels = source.splits["train"]
    if "test" in source.splits:
        chosen = {name: (name, np.arange(len(source.splits[name]))) for name in ("train", "test")}
    else:
        is_test = _draw_test_split(train_labels, source.classes, test_fraction, _generator(seed, _TEST_SPLIT))
        chosen = {"train": ("train", np.flatnonzero(~is_test)), "test": ("train", np.flatnonzero(is_test))}
    splits = {}
    for name, (source_split, rows) in chosen.items():
        labels = source.splits[source_split][rows]
        order = stratified_order(labels, _generator(seed, _ORDER[name]))
        splits[name] = OrderedSplit(source_split, rows[order], labels[order])
    return splits


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, stream]))


def _draw_test_split(
    labels_N: npt.NDArray[np.int64], classes: Sequence[str], fraction: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """True for the samples that become test data: `fraction` of each class, at least one sample and not all."""
    is_test = np.zeros(len(labels_N), dtype=bool)
    for label, name in enumerate(classes):
        members = rng.permutation(np.flatnonzero(labels_N == label))
        is_test[members[: num_test_samples(len(members), fraction, name)]] = True
    return is_test


def num_test_samples(count: int, fraction: float, name: str) -> int:
    """How many of the `count` samples of class `name` become test data.

    Raises:
        UsageError: there are fewer than two.
    """
    if count < 2:
        remedy = "add images, remove the class, or give the source a test split"
        raise UsageError(
            f"class {name!r} has {count} image{'s' * (count != 1)}: too few for training and test data", remedy
        )
    return min(max(1, round(fraction * count)), count - 1)
