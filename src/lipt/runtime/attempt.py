"""One attempt at a stage: its reads and writes, its checkpoint, its cost so far."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from filelock import FileLock

from lipt.adapters.store import Kind, MissingObjectError, Store, open_store
from lipt.errors import RunError
from lipt.files import write_whole
from lipt.ledger import Cost, peak_memory_bytes
from lipt.runtime.artifact import CHECKPOINT, DIGEST_BYTES, Artifact, File, canonical_json
from lipt.runtime.context import Context
from lipt.runtime.lease import Lease


@dataclass(kw_only=True)
class Attempt:
    """A stage while it runs: metered stores, outputs, checkpoint, counters."""

    ctx: Context
    ref: str
    label: str
    lease: Lease | None = None
    """Of a stage; checked before each write. None in a process or pod that shares a training: the process that started
    it holds the lease, and checks it before it finishes the artifact."""
    flops: int = 0
    earlier: Cost = field(default_factory=Cost)
    """The cost of interrupted attempts, as their last checkpoint recorded it."""
    made_from: Sequence[str] = ()
    """`contents` of the inputs. The checkpoint of an attempt on other contents is not continued."""
    inputs: Sequence[str] = ()
    """References of the inputs. A checkpoint names them: `lipt gc` keeps what it can be continued with."""
    peak_bytes: int | None = None
    """The largest memory of the processes that did the work; None: this process did it."""

    def __post_init__(self) -> None:
        self.workspace, self.reporter = self.ctx.workspace, self.ctx.reporter
        self.store = self.workspace.store.metered()
        self.stores = [self.store]
        self.files: dict[str, File] = {}
        self.temporary = {CHECKPOINT}
        """Files that are removed once the artifact is finished."""
        self.started = time.monotonic()

    def open(self, uri: str) -> Store:
        """The store at `uri`, an address or a path in the workspace. Its traffic counts for this attempt."""
        if "://" not in uri and not uri.startswith("/"):
            return self.store.at(uri)
        store = open_store(uri, like=self.store)
        self.stores.append(store)
        return store

    def read(self, artifact: Artifact, name: str, *, kind: Kind) -> bytes:
        """A file of a finished artifact, verified.

        Raises:
            IntegrityError: the file has changed since it was written, or is missing; names it.
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

    def read_for_all(self, artifact: Artifact, name: str, *, kind: Kind) -> bytes:
        """`read`, but if several processes of this machine share the work, one of them reads for all.

        Raises:
            IntegrityError: as `read`.
        """
        if self.ctx.shared is None:
            return self.read(artifact, name, kind=kind)
        path = self.ctx.shared / f"{artifact.stage}-{artifact.key}-{name}"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                write_whole(path, self.read(artifact, name, kind=kind))  # this process may be ended at any time
        return path.read_bytes()

    def put(self, name: str, data: bytes, *, kind: Kind) -> None:
        """Write an output file.

        Raises:
            LostLeaseError: another process does this stage now.
        """
        self._write(name, data, kind=kind)
        self.files[name] = File(sha256=hashlib.sha256(data).hexdigest(), num_bytes=len(data))

    def shows(self, text: str) -> Callable[[int, int], None]:
        """A function that reports progress; call it with (done, total)."""
        return lambda done, total: self.reporter.advance(self.label, done, total, text)

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint; it is removed when the attempt finishes."""
        self._write(CHECKPOINT, self._digest(data) + data, kind="model")

    def _write(self, name: str, data: bytes, *, kind: Kind) -> None:
        if self.lease:
            self.lease.check()
        self.store.write(f"{self.ref}/{name}", data, kind=kind)

    def load_checkpoint(self) -> bytes | None:
        """The checkpoint of an interrupted attempt; None if there is none, if it is damaged, or if an input was made
        again since then and has changed.
        """
        try:
            stored = self.store.read(f"{self.ref}/{CHECKPOINT}", kind="model")
        except MissingObjectError:
            return None
        digest, data = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
        if self._digest(data) == digest:
            return data
        self.reporter.alert("its checkpoint is damaged, or of other inputs: starts from its beginning", self.label)
        return None

    def _digest(self, checkpoint: bytes) -> bytes:
        """Of a checkpoint and what it was made from, in whatever order the inputs are given."""
        digest = hashlib.sha256(canonical_json(sorted(self.made_from)))
        digest.update(checkpoint)
        return digest.digest()

    def cost(self) -> Cost:
        """The cost so far, including that of interrupted attempts."""
        now = Cost(
            wall_s=time.monotonic() - self.started,
            flops=self.flops,
            peak_bytes=self._peak_bytes() if self.peak_bytes is None else self.peak_bytes,
            machine=self.ctx.machine if self.peak_bytes is None else "",
        )
        for store in self.stores:
            traffic = store.traffic.as_dict()
            now += Cost(read=traffic["read"], written=traffic["written"], requests=sum(traffic["requests"].values()))
        return self.earlier + now

    def _peak_bytes(self) -> int:
        if self.ctx.device.type == "cuda":
            import torch

            return torch.cuda.max_memory_allocated() or peak_memory_bytes()
        return peak_memory_bytes()
