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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lipt import __version__
from lipt.adapters.store import Kind, MissingObjectError, Store, open_store
from lipt.errors import DamagedDataError, IntegrityError, RunError, UsageError
from lipt.ledger import Cost, peak_memory_bytes, reset_peak_memory
from lipt.progress import Reporter

MARKER = "artifact.json"
COST = "cost.json"
CHECKPOINT = "checkpoint"
DAMAGED = "damaged"
#: The stage whose artifacts hold data sets, each in a folder below it.
CHUNKS = "chunks"
_COST = TypeAdapter(Cost)
_DIGEST_BYTES = 32  # a checkpoint begins with the SHA-256 of the rest


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


class Workspace:
    """Artifacts and data sets below one location."""

    def __init__(self, uri: str) -> None:
        self.store = open_store(uri)
        self.reused: set[str] = set()
        """References found finished that this process did not make."""
        self._made: set[str] = set()
        self._digests: dict[str, str] = {}
        """Of the artifacts that were looked up or made."""

    def find(self, ref: str) -> Artifact | None:
        """The finished artifact; None when there is none, or when it is to be made again.

        It is when it was found damaged, when a file is missing or has another size, and when what it was made from has
        been made again and is not the same.
        """
        try:
            found = self.get(ref)
        except (MissingObjectError, IntegrityError):
            return None
        return found if self._is_whole(found) and self._is_current(found) else None

    def _is_whole(self, artifact: Artifact) -> bool:
        sizes = self.store.sizes(f"{artifact.ref}/")

        def size(name: str) -> int | None:
            if name.endswith("/"):
                return sum(size for key, size in sizes.items() if key.startswith(f"{artifact.ref}/{name}"))
            return sizes.get(f"{artifact.ref}/{name}")

        return (
            f"{artifact.ref}/{DAMAGED}" not in sizes
            and f"{artifact.ref}/{COST}" in sizes
            and all(size(name) == file.num_bytes for name, file in artifact.files.items())
        )

    def _is_current(self, artifact: Artifact) -> bool:
        return all(
            self._digest(ref) in (digest, None) for ref, digest in zip(artifact.inputs, artifact.made_from, strict=True)
        )

    def _digest(self, ref: str) -> str | None:
        """None where there is no such artifact (any more): what was made from it is as good as ever."""
        if ref not in self._digests:
            try:
                self.get(ref)
            except (MissingObjectError, IntegrityError):
                return None
        return self._digests[ref]

    def get(self, ref: str) -> Artifact:
        """The finished artifact `STAGE/KEY`.

        Raises:
            MissingObjectError: not finished, or not here.
            IntegrityError: what is here is damaged, or another artifact.
            UsageError: not of that form.
        """
        if ref.count("/") != 1:
            raise UsageError(f"{ref!r} is not a reference", "it reads STAGE/KEY, as `lipt stage` prints it")
        origin = f"{self.store.uri}/{ref}/{MARKER}"
        found = Artifact.from_json(self.store.read(f"{ref}/{MARKER}", kind="other"), origin=origin)
        if found.ref != ref:
            raise IntegrityError(f"{origin} is that of {found.ref}", "run again: its stage is repeated")
        self._digests[ref] = found.contents
        return found

    @contextmanager
    def repairing(self, inputs: Iterable[Artifact]) -> Iterator[None]:
        """Mark the data set among these artifacts as damaged when a reader of its files finds that.

        A data set that lies elsewhere is the user's: that error goes on as it is.
        """
        try:
            yield
        except DamagedDataError as error:
            for artifact in inputs:
                if owner := owner_of(artifact):
                    self._mark(owner, error.message)
                    raise IntegrityError(error.message, f"run again: {artifact.stage} is repeated") from None
            raise

    def note(self, artifact: Artifact, *, made: bool) -> None:
        """Remember whether this process made an artifact or found it."""
        self._digests[artifact.ref] = artifact.contents
        if made:
            self._made.add(artifact.ref)
        elif artifact.ref not in self._made:
            self.reused.add(artifact.ref)

    def cost(self, artifact: Artifact) -> Cost:
        """What the artifact cost when it was made.

        Raises:
            IntegrityError: that is damaged or missing; the artifact is marked, since a report without it would lie.
        """
        key = f"{artifact.ref}/{COST}"
        try:
            return _COST.validate_json(self.store.read(key, kind="other"))
        except MissingObjectError:
            problem = "is missing"
        except ValidationError as error:
            problem = f"is damaged: {error.errors(include_url=False)[0]['msg']}"
        raise self.damaged(artifact, COST, problem)

    def damaged(self, artifact: Artifact, name: str, problem: str) -> IntegrityError:
        """The error that says so; a run does not find the artifact any more, it makes it again."""
        self._mark(artifact.ref, name)
        return IntegrityError(
            f"{self.store.uri}/{artifact.ref}/{name} {problem}", f"run again: {artifact.stage} is repeated"
        )

    def _mark(self, ref: str, why: str) -> None:
        self.store.write(f"{ref}/{DAMAGED}", why.encode(), kind="other")


@dataclass(kw_only=True)
class Step:
    """A stage while it runs: metered stores, outputs, checkpoint, counters."""

    workspace: Workspace
    ref: str
    label: str
    reporter: Reporter
    flops: int = 0
    earlier: Cost = field(default_factory=Cost)
    """Spent by attempts that were interrupted, as far as their checkpoint knows."""
    gpu_peak_bytes: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self.store = self.workspace.store.metered()
        self.stores = [self.store]
        self.files: dict[str, File] = {}
        self.started = time.monotonic()

    def open(self, uri: str) -> Store:
        """Another location, whose traffic counts for this step too; relative to the workspace unless absolute."""
        if "://" not in uri and not uri.startswith("/"):
            return self.store.at(uri)
        store = open_store(uri)
        self.stores.append(store)
        return store

    def read(self, artifact: Artifact, name: str, *, kind: Kind) -> bytes:
        """A file of a finished artifact, verified.

        Raises:
            IntegrityError: the bytes are not those that were written, or are gone; names the object.
        """
        key = f"{artifact.ref}/{name}"
        if name not in artifact.files:
            raise RunError(f"{artifact.ref} has no {name}", "it was written with other settings: start the run again")
        try:
            for _ in range(2):  # a second time, in case it was the transfer
                data = self.store.read(key, kind=kind)
                if hashlib.sha256(data).hexdigest() == artifact.files[name].sha256:
                    return data
        except MissingObjectError:
            raise self.workspace.damaged(artifact, name, "is missing") from None
        raise self.workspace.damaged(
            artifact, name, f"is damaged: not the {artifact.files[name].num_bytes:,} bytes written"
        )

    def put(self, name: str, data: bytes, *, kind: Kind) -> None:
        """Write an output file."""
        self.store.write(f"{self.ref}/{name}", data, kind=kind)
        self.files[name] = File(sha256=hashlib.sha256(data).hexdigest(), num_bytes=len(data))

    def shows(self, text: str) -> Callable[[int, int], None]:
        """Tells the reporter how far the step is: called with (done, total)."""
        return lambda done, total: self.reporter.advance(self.label, done, total, text)

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; it is removed when the step finishes."""
        self.store.write(f"{self.ref}/{CHECKPOINT}", hashlib.sha256(data).digest() + data, kind="model")

    def load_checkpoint(self) -> bytes | None:
        """What an interrupted attempt left; None when there is nothing, or when it is damaged."""
        try:
            stored = self.store.read(f"{self.ref}/{CHECKPOINT}", kind="model")
        except MissingObjectError:
            return None
        digest, data = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() == digest:
            return data
        self.reporter.say(f"{self.label:<16}  its checkpoint is damaged: starts from its beginning")
        return None

    def cost(self) -> Cost:
        """Spent so far, interrupted attempts included."""
        now = Cost(
            wall_s=time.monotonic() - self.started,
            flops=self.flops,
            peak_bytes=self.gpu_peak_bytes() or peak_memory_bytes(),
        )
        for store in self.stores:
            traffic = store.traffic.as_dict()
            now += Cost(read=traffic["read"], written=traffic["written"], requests=sum(traffic["requests"].values()))
        return self.earlier + now


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


def run_step(
    workspace: Workspace,
    reporter: Reporter,
    *,
    stage: str,
    settings: Mapping[str, Any],
    inputs: list[Artifact],
    body: Callable[[Step], dict[str, Any]],
    label: str | None = None,
    gpu_peak_bytes: Callable[[], int] = lambda: 0,
    dry_run: bool = False,
) -> Artifact:
    """Make an artifact, or find it made.

    Args:
        settings: everything besides the inputs that determines the outcome, JSON-able.
        inputs: finished artifacts.
        body: writes the files through the step and returns the summary.
        label: what the reporter shows; the stage's name by default.
        dry_run: say what would run instead; the artifact returned has its address and nothing else.
    """
    refs = [artifact.ref for artifact in inputs]
    ref = f"{stage}/{key_of(stage, settings, refs)}"
    label = label or stage
    finished = workspace.find(ref)
    if finished is not None:
        workspace.note(finished, made=False)
        reporter.skipped(label, finished.summary)
        return finished
    if dry_run:
        reporter.planned(label)
        return Artifact(
            stage=stage, key=ref.split("/")[1], inputs=tuple(refs), settings=dict(settings), files={}, summary={}
        )
    workspace.store.delete(f"{ref}/{MARKER}")
    reset_peak_memory()
    step = Step(workspace=workspace, ref=ref, label=label, reporter=reporter, gpu_peak_bytes=gpu_peak_bytes)
    with _announced(reporter, label), workspace.repairing(inputs):
        summary = body(step)
    artifact = Artifact(
        stage=stage,
        key=ref.split("/")[1],
        inputs=tuple(refs),
        settings=dict(settings),
        files=step.files,
        summary=summary,
        made_from=tuple(artifact.contents for artifact in inputs),
    )
    cost = step.cost()
    cost.ended = time.time()
    workspace.store.write(f"{ref}/{COST}", canonical_json(cost.as_dict()), kind="other")
    workspace.store.delete(f"{ref}/{DAMAGED}")  # before the next line: no damaged artifact passes for a finished one
    workspace.store.write(f"{ref}/{MARKER}", artifact.to_json(), kind="other")
    workspace.store.delete(f"{ref}/{CHECKPOINT}")
    workspace.note(artifact, made=True)
    reporter.done(label, cost.wall_s, summary)
    return artifact


@contextmanager
def _announced(reporter: Reporter, label: str) -> Iterator[None]:
    reporter.started(label)
    try:
        yield
    except BaseException:
        reporter.stopped(label)
        raise
