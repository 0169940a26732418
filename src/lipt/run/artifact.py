"""Artifacts: what a stage leaves behind, addressed by everything that determines it.

    WORKSPACE/STAGE/KEY/artifact.json    written last: its presence means that the artifact is complete
                        cost.json        what it cost, outside the digest since times differ between runs
                        checkpoint       while the stage runs
                        damaged          a reader found a file that is not what was written: the stage runs again
                        FILES

An artifact of which a file is missing or has another size is not finished: whoever looks it up makes it again. That
takes one listing; a file that is changed in place is found by who reads it. What was made from an artifact that had to
be made again, and came out otherwise (as it may on a GPU), is made again too.

KEY is a digest of the stage's name, its settings, its inputs and the seed, so the same question has the same address on
every machine: that is what makes stages idempotent, skips finished ones, and lets runs share what they have in common.
A *reference* `STAGE/KEY` is all that travels between pods.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lipt import __version__
from lipt.errors import IntegrityError

MARKER = "artifact.json"
COST = "cost.json"
CHECKPOINT = "checkpoint"
DAMAGED = "damaged"
#: The stage whose artifacts hold data sets, each in a folder below it.
CHUNKS = "chunks"


@dataclass(frozen=True, kw_only=True)
class File:
    """Digest and size of one file of an artifact; under a name that ends with a slash, of all files below it."""

    sha256: str
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A finished stage: its files and a small summary (accuracies, counts), all of it deterministic."""

    stage: str
    key: str
    inputs: tuple[str, ...]
    settings: dict[str, Any]
    files: dict[str, File]
    summary: dict[str, Any]
    made_from: tuple[str, ...] = ()
    """`contents` of the inputs."""

    @property
    def ref(self) -> str:
        """`STAGE/KEY`."""
        return f"{self.stage}/{self.key}"

    @cached_property
    def digest(self) -> str:
        """Of everything else."""
        return hashlib.sha256(canonical_json(json.loads(canonical_json(asdict(self))))).hexdigest()

    @property
    def contents(self) -> str:
        """What an artifact that is made from this one refers to: `digest`; of a data set, wherever it lies, its own."""
        return str(self.settings.get("digest", self.digest))

    def to_json(self) -> bytes:
        return canonical_json(asdict(self) | {"digest": self.digest})

    @classmethod
    def from_json(cls, data: bytes, *, origin: str) -> Artifact:
        try:
            document = json.loads(data)
            digest = document.pop("digest")
            files = {name: File(**entry) for name, entry in document.pop("files").items()}
            inputs, made_from = tuple(document.pop("inputs")), tuple(document.pop("made_from"))
            found = cls(files=files, inputs=inputs, made_from=made_from, **document)
            if digest == found.digest:
                return found
            why = "it does not fit its digest"
        except KeyError as error:
            why = f"{error} is missing"
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            why = str(error)
        raise IntegrityError(f"{origin} is damaged: {why}", "run again: its stage is repeated")


def owner_of(artifact: Artifact) -> str | None:
    """The artifact that holds the chunks of this data set; None for one outside the workspace, or no data set."""
    location = str(artifact.summary.get("location", ""))
    return location.rpartition("/")[0] if location.startswith(f"{CHUNKS}/") else None


def canonical_json(document: Any) -> bytes:
    """The one encoding that digests are taken of."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def key_of(stage: str, settings: Mapping[str, Any], inputs: list[str]) -> str:
    """The address of an artifact: 16 hex digits over stage, settings, inputs and the version of this package."""
    document = {"stage": stage, "version": __version__, "settings": dict(settings), "inputs": inputs}
    return hashlib.sha256(canonical_json(document)).hexdigest()[:16]
