"""Checks that the inputs of a stage belong together. A run passes the right ones; `lipt stage` passes any."""

from collections.abc import Sequence

from lipt.errors import UsageError
from lipt.runtime.artifact import Artifact


def check_index(index: int, count: int, what: str) -> None:
    """
    Raises:
        UsageError: there is no number `index` among `count`.
    """
    if not 0 <= index < count:
        raise UsageError(f"{what} {index}: there are {count}, numbered from 0", f"choose an index below {count}")


def check_base(base: Artifact | None, deltas: Sequence[Artifact]) -> None:
    """Check that these jigsaws, or soups of groups, are stored relative to the model `base`.

    Raises:
        UsageError: one has another base; its weights would be nonsense.
    """
    for delta in deltas:
        if base is None or base.ref not in delta.inputs:
            made_from = next((ref for ref in delta.inputs if ref.startswith("initialise/")), "its theta_*")
            given = f", not to {base.ref}" if base else ""
            raise UsageError(f"{delta.ref} is stored relative to {made_from}{given}", f"pass {made_from} with it")


def check_blocks(scores: Sequence[Artifact]) -> None:
    """Check that these blocks of scores, in their order, follow each other from the first image on.

    Raises:
        UsageError: one is missing, or there twice.
    """
    stop = 0
    for block in scores:
        if block.settings["block"]["start"] != stop:
            raise UsageError(f"no block of scores begins at image {stop:,}", "pass every block of `score` once")
        stop = block.settings["block"]["stop"]
