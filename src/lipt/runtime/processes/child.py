"""One of several processes that share a stage: its request, its result, its end.

Parent and children exchange small JSON files in a temporary folder. Tensors go through the process group.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from lipt.adapters.store import StoreError
from lipt.config import parse_config
from lipt.data.images import StreamedImages
from lipt.errors import LiptError, RunError, UnexpectedError, UsageError, in_one_line
from lipt.files import write_whole
from lipt.progress import Reporter
from lipt.rng import reproducible
from lipt.runtime.artifact import Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.checkpoint import total_cost
from lipt.runtime.context import Context
from lipt.runtime.lost import failed_device, is_disconnect, lost_part
from lipt.runtime.processes.standstill import pulse_path
from lipt.training.distributed import Ranks, process_group
from lipt.training.pulse import show_pulse

REQUEST, EVENTS, RESULT = "request.json", "events-*.jsonl", "result.json"
POLL_S = 0.5

Inputs = dict[str, Artifact | None]
Summary = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ProcessGroup:
    """The processes that share a stage, seen from one of them. By default there is one."""

    ranks: Ranks = field(default_factory=Ranks)
    local_rank: int = 0
    """Of the processes of this machine or pod."""
    local_count: int = 1
    folder: Path | None = None
    """A folder that the processes of this machine can write to."""

    def load(self, images: StreamedImages) -> Tensor:
        """Read and decode a set of images: uint8 (N, 3, H, W), one copy in memory for all processes of a machine.

        Raises:
            RunError: the temporary folder is full.
            UsageError: image sizes differ.
        """
        if self.folder is None or self.local_count == 1:
            return images.whole()
        ranks, rows_N = self.ranks, torch.arange(len(images))
        own = rows_N.tensor_split(self.local_count)[self.local_rank]
        pixels = images.subset(own).whole() if len(own) else torch.empty(0, 3, 0, 0, dtype=torch.uint8)
        shape = tuple(
            json.loads(ranks.broadcast(json.dumps(pixels.shape[1:]).encode()))
        )  # the first part is never empty
        if len(own) and pixels.shape[1:] != shape:
            raise UsageError(
                f"split {images.split!r}: images of {pixels.shape[3]}x{pixels.shape[2]} "
                f"and {shape[2]}x{shape[1]} pixels",
                "set data.image_size: all images are then resized to it",
            )
        path = self.folder / f"images-{ranks.broadcast(uuid4().hex.encode()).decode()}"
        start = int(own[0]) * pixels[0].numel() if len(own) else 0
        try:
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.seek(start)
                file.write(pixels.numpy().data)
        except OSError as error:
            raise RunError(
                f"{self.folder} cannot hold the decoded images: {error.strerror}",
                "set TMPDIR to a larger folder, or lower data.resident_mb so that they are streamed",
            ) from None
        ranks.sum(torch.zeros(1))  # all have written
        size = len(images) * torch.Size(shape).numel()
        shared = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8).view(-1, *shape)
        ranks.sum(torch.zeros(1))  # all have opened it: unlink it now, so that it disappears with the processes
        if self.local_rank == 0:
            path.unlink()
        return shared


#: The body of a stage: (context, attempt, inputs, processes, further options) -> summary. All processes return the same
#: summary. Only the first writes files.
SharedBody = Callable[..., Summary]


def run_stage(
    ctx: Context,
    processes: ProcessGroup,
    *,
    work: str,
    ref: str,
    label: str,
    inputs: Any,
    made_from: list[str],
    options: Any,
) -> Any:
    """Run the body of a stage in this process. Returns its summary, files and cost for the parent."""
    ctx = replace(ctx, shared=processes.folder)
    found = {key: ctx.workspace.get(ref) if ref else None for key, ref in inputs.items()}
    refs = [artifact.ref for artifact in found.values() if artifact]
    attempt = Attempt(ctx=ctx, ref=ref, label=label, made_from=made_from, inputs=refs)
    with reproducible(ctx.device), ctx.workspace.repairing(artifact for artifact in found.values() if artifact):
        summary = resolve_name(work)(ctx, attempt, found, processes, **options)
    cost, earlier_s = total_cost(attempt, processes.ranks), attempt.earlier.wall_s
    lasted_s, cost.wall_s = cost.wall_s - earlier_s, earlier_s  # the parent's clock runs already
    files = {key: asdict(file) for key, file in attempt.files.items()}
    return {"summary": summary, "files": files, "cost": asdict(cost), "lasted_s": lasted_s, "made_from": made_from}


def run_rank() -> None:
    """The main function of a child: torchrun's environment gives its rank, the parent's request its work."""
    folder = Path(sys.argv[1])
    rank, local_rank, local_count = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    try:
        request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        threading.Thread(target=_end_with, args=(request["parent"],), daemon=True).start()
        torch.set_num_threads(request["threads"])
        show_pulse(pulse_path(folder, local_rank))
        ctx = Context.of(parse_config(request["config"]), _Relay(folder / EVENTS.replace("*", str(rank))))
        ctx.codes.update(request["codes"])
        with process_group(ctx.device, local_rank=local_rank) as ranks:
            group = ProcessGroup(ranks=ranks, local_rank=local_rank, local_count=local_count, folder=folder)
            result = resolve_name(request["work"])(ctx, group, **request["options"])
        if rank == 0:
            write_whole(folder / RESULT, json.dumps(result).encode())
        os._exit(0)  # all is written; in an orderly exit a thread of a library may still abort the process
    except Exception as error:
        trace = traceback.format_exc()
        error = failed_device(error) or lost_part(error) or error
        known = isinstance(error, LiptError) and not isinstance(error, UnexpectedError)
        told = {
            "rank": rank,
            "time": time.time(),
            "known": known,
            "follows": is_disconnect(error),
            "store": isinstance(error, StoreError),
            "code": error.exit_code if isinstance(error, LiptError) else 1,
            "message": error.message if isinstance(error, LiptError) else in_one_line(error),
            "remedy": error.remedy if isinstance(error, LiptError) else "",
            "traceback": "" if known else trace,
            "extraInfo": {"timestamp": int(time.time())},  # torchrun's
        }
        write_whole(Path(os.environ["TORCHELASTIC_ERROR_FILE"]), json.dumps({"message": told}).encode())
        os._exit(1)  # an orderly exit might wait for processes that wait for this one


def _end_with(parent: int) -> None:
    """End this process if its parent was killed."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)


class _Relay(Reporter):
    """Writes each call where the parent reads it, as a line of [method, arguments]."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.open("a", encoding="utf-8"))
        self.advanced = 0.0

    def __getattribute__(self, method: str) -> Any:
        if method not in _RELAYED:
            return super().__getattribute__(method)
        if method == "advance":  # no more often than the parent looks
            if time.monotonic() < self.advanced + POLL_S:
                return lambda *_arguments: None
            self.advanced = time.monotonic()
        return lambda *arguments: print(json.dumps([method, arguments]), file=self.stream, flush=True)


_RELAYED = ("started", "advance", "stopped", "measured", "done", "skipped", "warn", "alert", "say")
