"""Artifacts: what a stage leaves behind, addressed by everything that determines it.

    WORKSPACE/STAGE/KEY/artifact.json    written last: its presence means that the artifact is complete
                        cost.json        what it cost, outside the digest since times differ between runs
                        checkpoint       while the stage runs
                        damaged          a reader found a file that is not what was written: the stage runs again
                        FILES

KEY is a digest of the stage's name, its settings, its inputs and the seed, so the same question has the same address on
every machine: that is what makes stages idempotent, skips finished ones, and lets runs share what they have in common.
A *reference* `STAGE/KEY` is all that travels between pods.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lipt import __version__
from lipt.adapters.store import Kind, MissingObjectError, Store, open_store
from lipt.errors import IntegrityError, RunError, UsageError
from lipt.ledger import Cost, peak_memory_bytes, reset_peak_memory
from lipt.progress import Reporter

MARKER = "artifact.json"
COST = "cost.json"
CHECKPOINT = "checkpoint"
DAMAGED = "damaged"
_COST = TypeAdapter(Cost)


@dataclass(frozen=True, kw_only=True)
class File:
    """Digest and size of one file of an artifact."""

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

    @property
    def ref(self) -> str:
        """`STAGE/KEY`."""
        return f"{self.stage}/{self.key}"

    def to_json(self) -> bytes:
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, data: bytes, *, origin: str) -> Artifact:
        try:
            document = json.loads(data)
            files = {name: File(**entry) for name, entry in document.pop("files").items()}
            return cls(files=files, inputs=tuple(document.pop("inputs")), **document)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError(f"{origin} is damaged: {error}", "delete it; its stage runs again") from None


class Workspace:
    """Artifacts and data sets below one location."""

    def __init__(self, uri: str) -> None:
        self.store = open_store(uri)
        self.reused: set[str] = set()
        """References found finished that this process did not make."""
        self._made: set[str] = set()

    def find(self, ref: str) -> Artifact | None:
        """The finished artifact; None when there is none, or when it was found damaged and is to be made again."""
        try:
            found = self.get(ref)
        except MissingObjectError:
            return None
        return None if self.store.size(f"{ref}/{DAMAGED}") is not None else found

    def get(self, ref: str) -> Artifact:
        """The finished artifact `STAGE/KEY`.

        Raises:
            MissingObjectError: not finished, or not here.
            UsageError: not of that form.
        """
        if ref.count("/") != 1:
            raise UsageError(f"{ref!r} is not a reference", "it reads STAGE/KEY, as `lipt stage` prints it")
        key = f"{ref}/{MARKER}"
        return Artifact.from_json(self.store.read(key, kind="other"), origin=f"{self.store.uri}/{key}")

    def note(self, ref: str, *, made: bool) -> None:
        """Remember whether this process made an artifact or found it."""
        if made:
            self._made.add(ref)
        elif ref not in self._made:
            self.reused.add(ref)

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
        self.store.write(f"{artifact.ref}/{DAMAGED}", name.encode(), kind="other")
        return IntegrityError(
            f"{self.store.uri}/{artifact.ref}/{name} {problem}", f"run again: {artifact.stage} is repeated"
        )


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
            IntegrityError: the bytes are not those that were written; names the object.
        """
        key = f"{artifact.ref}/{name}"
        if name not in artifact.files:
            raise RunError(f"{artifact.ref} has no {name}", "it was written with other settings: start the run again")
        for _ in range(2):  # a second time, in case it was the transfer
            data = self.store.read(key, kind=kind)
            if hashlib.sha256(data).hexdigest() == artifact.files[name].sha256:
                return data
        raise self.workspace.damaged(
            artifact, name, f"is damaged: not the {artifact.files[name].num_bytes:,} bytes written"
        )

    def put(self, name: str, data: bytes, *, kind: Kind) -> None:
        """Write an output file."""
        self.store.write(f"{self.ref}/{name}", data, kind=kind)
        self.files[name] = File(sha256=hashlib.sha256(data).hexdigest(), num_bytes=len(data))

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; it is removed when the step finishes."""
        self.store.write(f"{self.ref}/{CHECKPOINT}", data, kind="model")

    def load_checkpoint(self) -> bytes | None:
        """What an interrupted attempt left."""
        try:
            return self.store.read(f"{self.ref}/{CHECKPOINT}", kind="model")
        except MissingObjectError:
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
        workspace.note(ref, made=False)
        reporter.skipped(label, finished.summary)
        return finished
    if dry_run:
        reporter.planned(label)
        return Artifact(
            stage=stage, key=ref.split("/")[1], inputs=tuple(refs), settings=dict(settings), files={}, summary={}
        )
    for name in (MARKER, DAMAGED):  # in this order: at no time does a damaged artifact pass for a finished one
        workspace.store.delete(f"{ref}/{name}")
    reset_peak_memory()
    step = Step(workspace=workspace, ref=ref, label=label, reporter=reporter, gpu_peak_bytes=gpu_peak_bytes)
    with _announced(reporter, label):
        summary = body(step)
    artifact = Artifact(
        stage=stage,
        key=ref.split("/")[1],
        inputs=tuple(refs),
        settings=dict(settings),
        files=step.files,
        summary=summary,
    )
    cost = step.cost()
    cost.ended = time.time()
    workspace.store.write(f"{ref}/{COST}", canonical_json(cost.as_dict()), kind="other")
    workspace.store.write(f"{ref}/{MARKER}", artifact.to_json(), kind="other")
    workspace.store.delete(f"{ref}/{CHECKPOINT}")
    workspace.note(ref, made=True)
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
