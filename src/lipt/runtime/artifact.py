"""Artifacts: the results of stages. Everything that determines a result is part of its address.

    WORKSPACE/STAGE/KEY/artifact.json    written last: the artifact is complete when this file exists
                        cost.json        time, FLOPs and traffic; not in the digest, since times differ between runs
                        checkpoint       while the stage runs
                        damaged          a reader found that a file has changed: the stage runs again
                        FILES

An artifact is made again if a file is missing or has another size. One listing shows that. A file that was changed in
place is found by its reader. If an artifact that is made again has other contents (this happens on a GPU), all that
was made from it is made again, too.

KEY is a digest of the stage's name, its settings, its inputs and the seed. The same work has the same address on every
machine. So a finished stage is skipped, and runs share the artifacts that they have in common. Pods pass only the
*reference* `STAGE/KEY` to each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lipt.errors import IntegrityError
from lipt.version import __version__

MARKER = "artifact.json"
COST = "cost.json"
CHECKPOINT = "checkpoint"
#: A checkpoint begins with its digest.
DIGEST_BYTES = 32
#: Its metadata holds the references of its inputs under this name, as a JSON list.
CHECKPOINT_INPUTS = "inputs"
#: What the pods of a training leave for the box that waits for them.
PODS_RESULT = "result.json"
DAMAGED = "damaged"
#: The stage whose artifacts hold data sets, each in a folder below it.
CHUNKS = "chunks"


@dataclass(frozen=True, kw_only=True)
class File:
    """Digest and size of one file. Under a name that ends with a slash: of all files in that folder."""

    sha256: str
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """The result of a finished stage: files and a small summary (accuracies, counts). All of it is deterministic."""

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

    @property
    def is_finished(self) -> bool:
        """False for one that a dry run only planned."""
        return bool(self.files or self.summary)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all fields."""
        return hashlib.sha256(canonical_json(json.loads(canonical_json(asdict(self))))).hexdigest()

    @property
    def contents(self) -> str:
        """The digest that artifacts made from this one store. For a data set it does not depend on the location."""
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
    """The artifact that holds the chunks of a data set; None if they lie elsewhere, or if it is no data set."""
    location = str(artifact.summary.get("location", ""))
    return "/".join(location.split("/")[:2]) if location.startswith(f"{CHUNKS}/") else None


def thumbnails_ref(dataset: Artifact, side: int) -> str:
    """The address of a data set's thumbnails."""
    settings = {"digest": dataset.settings["digest"], "thumbnails": side}
    return f"{dataset.stage}/{key_of(dataset.stage, settings, [])}"


def canonical_json(document: Any) -> bytes:
    """The canonical encoding, over which digests are computed."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def key_of(stage: str, settings: Mapping[str, Any], inputs: list[str]) -> str:
    """The address of an artifact: 16 hex digits over stage, settings, inputs and the version of this package."""
    document = {"stage": stage, "version": __version__, "settings": dict(settings), "inputs": inputs}
    return hashlib.sha256(canonical_json(document)).hexdigest()[:16]
