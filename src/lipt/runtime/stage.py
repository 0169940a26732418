"""A stage as a value: its name, settings, inputs and body, and so its address. Nothing runs before `make`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from lipt.errors import LiptError, Terminated
from lipt.ledger import Cost, reset_peak_memory
from lipt.progress import Reporter
from lipt.rng import reproducible
from lipt.runtime.artifact import CHECKPOINT, CHUNKS, COST, DAMAGED, MARKER, Artifact, canonical_json, key_of
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.lease import DoneMeanwhileError, Lease, LostLeaseError, leased


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage on finished inputs."""

    ctx: Context
    name: str
    settings: Mapping[str, Any]
    """Everything besides the inputs that determines the outcome, JSON-able."""
    inputs: Sequence[Artifact]
    """Finished artifacts."""
    body: Callable[[Attempt], dict[str, Any]]
    """Writes the files through the attempt and returns the summary."""
    label: str
    """The name that the reporter shows."""

    @property
    def key(self) -> str:
        """The last part of the artifact's address."""
        return key_of(self.name, self.settings, [artifact.ref for artifact in self.inputs])

    @property
    def ref(self) -> str:
        """The artifact's address, `STAGE/KEY`, even if it does not exist yet."""
        return f"{self.name}/{self.key}"

    def find(self) -> Artifact | None:
        """The finished artifact; None if there is none, or if it must be made again."""
        return self.ctx.workspace.find(self.ref)

    def make(self) -> Artifact:
        """The finished artifact; makes it if it does not exist. On a CPU the result is reproducible.

        If another process makes it already, this one waits. A dry run makes nothing: the reporter shows the stage, and
        the artifact returned has only an address.
        """
        finished = self._finished()
        if finished is None and self.ctx.dry_run:
            self.ctx.reporter.planned(self.label)
            return self._artifact()
        while finished is None:
            try:
                with self.leased(done=lambda: self.find() is not None) as lease:
                    finished = self._finished() or self._make(lease)  # another process may have made it meanwhile
            except DoneMeanwhileError:
                finished = self._finished()
            except LostLeaseError:
                self.ctx.reporter.note(self.label, "another process has taken over")
        return finished

    def leased(self, name: str = "lease", done: Callable[[], bool] = lambda: False) -> AbstractContextManager[Lease]:
        """Hold a lease on this stage, or on something else that is done for it; see `lipt.runtime.lease.leased`."""
        note = self.ctx.reporter.note
        return leased(self.ctx.workspace.store, f"{self.ref}/{name}", lambda text: note(self.label, text), done)

    def _finished(self) -> Artifact | None:
        """The finished artifact, noted and reported."""
        finished = self.find()
        if finished is not None:
            self.ctx.workspace.note(finished, made=False)
            self.ctx.reporter.skipped(self.label, finished.summary)
        return finished

    def _make(self, lease: Lease) -> Artifact:
        workspace, reporter, ref = self.ctx.workspace, self.ctx.reporter, self.ref
        workspace.store.delete(f"{ref}/{MARKER}")
        reset_peak_memory()
        if self.ctx.device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()
        made_from = tuple(artifact.contents for artifact in self.inputs)
        inputs = [artifact.ref for artifact in self.inputs]
        attempt = Attempt(ctx=self.ctx, ref=ref, label=self.label, lease=lease, made_from=made_from, inputs=inputs)
        try:
            with _announced(reporter, self.label), workspace.repairing(self.inputs), reproducible(self.ctx.device):
                summary = self.body(attempt)
        except (KeyboardInterrupt, Terminated):
            self._tell_what_is_kept()
            raise
        except (RuntimeError, MemoryError, OSError) as error:
            from lipt.runtime.lost import failed_device, lost_part  # here: imports torch, as the body did

            if told := failed_device(error) or lost_part(error):
                raise told from error
            raise
        artifact = self._artifact(files=attempt.files, summary=summary, made_from=made_from)
        cost = attempt.cost()
        cost.ended = time.time()
        lease.check()
        workspace.store.write(f"{ref}/{COST}", canonical_json(asdict(cost)), kind="other")
        workspace.store.delete(f"{ref}/{DAMAGED}")  # first: a damaged artifact is never taken for finished
        workspace.store.write(f"{ref}/{MARKER}", artifact.to_json(), kind="other")
        for name in sorted(attempt.temporary):
            workspace.store.delete(f"{ref}/{name}")
        workspace.note(artifact, made=True)
        reporter.measured(self.label, 0, _figures(cost, summary))
        reporter.done(self.label, cost.wall_s, summary)
        return artifact

    def _tell_what_is_kept(self) -> None:
        """After a signal: whether the next attempt repeats what this one did. An ingest keeps its chunks."""
        if self.name == CHUNKS:
            return
        with suppress(LiptError):
            kept = self.ctx.workspace.store.size(f"{self.ref}/{CHECKPOINT}") is not None
            if kept:
                then = "stopped: continues from its last checkpoint"
            else:
                then = "stopped: it has no checkpoint, so the next run starts it from the beginning"
            self.ctx.reporter.note(self.label, then)

    def _artifact(self, **found: Any) -> Artifact:
        refs = tuple(artifact.ref for artifact in self.inputs)
        empty: dict[str, Any] = {"files": {}, "summary": {}}
        return Artifact(stage=self.name, key=self.key, inputs=refs, settings=dict(self.settings), **(empty | found))


def _figures(cost: Cost, summary: Mapping[str, Any]) -> dict[str, float]:
    """The cost of a stage, and the numbers of its summary."""
    found = {name: value for name, value in summary.items() if isinstance(value, (int, float))}
    spent = {"seconds": cost.wall_s, "flops": cost.flops, "requests": cost.requests}
    return found | spent | {"read_bytes": sum(cost.read.values()), "written_bytes": sum(cost.written.values())}


@contextmanager
def _announced(reporter: Reporter, label: str) -> Iterator[None]:
    reporter.started(label)
    try:
        yield
    except BaseException:
        reporter.stopped(label)
        raise
