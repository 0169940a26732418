"""One stage on several processes of this machine, started by torchrun's launcher from inside the stage.

The parent starts one child per GPU (or as many as `processes` says) and waits. Children report progress, results and
errors through files in a temporary folder. They meet through a static rendezvous: torchrun's default rendezvous
unpickles data from a store that listens on the network.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from lipt.errors import UsageError
from lipt.files import write_whole
from lipt.ledger import Cost
from lipt.liveness import STALLED_S, is_probed, note_progress
from lipt.progress import Reporter
from lipt.runtime.artifact import PODS_RESULT, File
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.lost import is_disconnect
from lipt.runtime.processes.child import (
    EVENTS,
    POLL_S,
    REQUEST,
    RESULT,
    Inputs,
    ProcessGroup,
    SharedBody,
    Summary,
    run_rank,
    run_stage,
)
from lipt.runtime.processes.failures import Failures, first_error
from lipt.runtime.processes.peers import Peers
from lipt.runtime.processes.standstill import Standstill


def run_together(
    ctx: Context, attempt: Attempt, work: SharedBody, inputs: Inputs, *, batch_size: int, **options: int
) -> Summary:
    """Run the body of a stage on one process per GPU (or as many as `processes` says); a single one is this process.

    On a cluster with `train.nodes` above 1, that many pods run these processes, and this one waits. Files and cost of
    all of them become the attempt's.

    Args:
        work: a function of a module.
        batch_size: of the smallest batch, of which each process needs an image.
        options: handed to `work`.

    Raises:
        UsageError: more processes are asked for than there are GPUs.
        LiptError: the error of the process that failed first; all others are stopped.
    """
    asked = _request(attempt, work, inputs, options)
    result = None
    if ctx.pods is not None and ctx.config.train.nodes > 1:
        result = ctx.pods(ctx, asked | {"batch_size": batch_size}, ctx.config.train.nodes)
        attempt.temporary.add(PODS_RESULT)
    if result is None:
        processes = count_processes(ctx, batch_size)
        if processes == 1:
            return work(ctx, attempt, inputs, ProcessGroup(), **options)
        result = launch(ctx, attempt.label, run_stage, processes, asked)
    return _take(attempt, result)


def run_alone(ctx: Context, attempt: Attempt, work: SharedBody, inputs: Inputs) -> Summary:
    """Run the body of a stage on one process: this one, or if this box has no GPU, one of a pod that has."""
    if ctx.pods is None or not ctx.waits:
        return work(ctx, attempt, inputs, ProcessGroup())
    result = ctx.pods(ctx, _request(attempt, work, inputs, {}) | {"batch_size": 1}, 1)
    attempt.temporary.add(PODS_RESULT)
    assert result is not None  # one pod waits until there is room
    return _take(attempt, result)


def _request(attempt: Attempt, work: SharedBody, inputs: Inputs, options: dict[str, int]) -> dict[str, Any]:
    return {
        "work": name_of(work),
        "ref": attempt.ref,
        "label": attempt.label,
        "inputs": {key: artifact.ref if artifact else None for key, artifact in inputs.items()},
        "made_from": list(attempt.made_from),
        "options": options,
    }


def _take(attempt: Attempt, result: dict[str, Any]) -> Summary:
    cost = Cost(**result["cost"])
    # The time in which its pods worked before this attempt began: a box that was lost starts again.
    cost.wall_s += max(0.0, result["lasted_s"] - (time.monotonic() - attempt.started))
    attempt.files |= {key: File(**entry) for key, entry in result["files"].items()}
    attempt.earlier = cost
    attempt.peak_bytes = cost.peak_bytes  # not the waiting parent's
    return dict(result["summary"])


def count_processes(ctx: Context, at_most: int = sys.maxsize) -> int:
    """The number of processes: as `processes` says; by default one per GPU, and at most `at_most`. A process that has a
    share of the parts of a stage starts no others.

    Raises:
        UsageError: more than there are GPUs.
    """
    if ctx.shared is not None:
        return 1
    wanted = ctx.config.processes
    if ctx.device.type != "cuda":
        return 1 if wanted == "auto" else wanted
    gpus = torch.cuda.device_count()
    if wanted == "auto":
        return min(gpus, at_most)
    if wanted > gpus:
        raise UsageError(f"processes: {wanted}, torch sees {gpus} GPUs", "lower it, or leave it at auto")
    return wanted


def name_of(function: Callable[..., Any]) -> str:
    """`package.module:function`, by which another process finds it."""
    return f"{function.__module__}:{function.__name__}"


def launch(
    ctx: Context,
    label: str,
    work: Callable[..., Any],
    processes: int,
    options: dict[str, Any],
    peers: Peers | None = None,
) -> Any:
    """Run `work(ctx, processes, **options)` on several processes and return the result of the first.

    Args:
        label: for errors.
        work: a function of a module, with a JSON-able result.
        options: JSON-able.
        peers: the pods of a training on several nodes. Each starts `processes` processes. The first gets the result.

    Raises:
        TransientError: another pod was lost.
        KilledError: a process was killed, or it hung in an epoch and was ended.
        LiptError: the error of the process that failed first; all others are stopped.
    """
    if ctx.device.type == "cuda":
        torch.cuda.empty_cache()  # what earlier stages left on the first GPU is a child's to use
    with tempfile.TemporaryDirectory(prefix="lipt-") as name:
        folder = Path(name)
        request = {
            "config": ctx.config.model_dump(mode="json"),
            "codes": {ctx.config.model.name: ctx.code},
            "work": name_of(work),
            "options": options,
            "threads": max(1, torch.get_num_threads() // processes),
            "parent": os.getpid(),
        }
        write_whole(folder / REQUEST, json.dumps(request).encode())
        # The parent decides what Ctrl-C does: a child ends without a KeyboardInterrupt, also while it loads torch. A
        # model of the user's own is found where we would find it. Of torch's warnings in C++, the one that every run
        # would show blames DistributedDataParallel's search for unused parameters, which we want.
        program = (
            "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
            f"import os, sys; sys.path[:] = {sys.path!r}; os.environ.setdefault('TORCH_CPP_LOG_LEVEL', 'ERROR'); "
            f"from {run_rank.__module__} import run_rank; run_rank()"
        )
        # Pods with a probe are left to it: then all start again.
        standstill = Standstill(folder, processes, after_s=math.inf if peers or is_probed() else STALLED_S)
        with _relayed(folder, ctx.reporter, standstill), peers.guard() if peers else nullcontext():
            died = _torchrun(folder, program, processes, peers)
        if died is None:
            return None if peers and peers.index else json.loads((folder / RESULT).read_text(encoding="utf-8"))
        if isinstance(died, dict):
            if standstill.last:
                raise standstill.error(label)
            raise first_error(died, processes, label, peers)
        if peers and peers.lost:
            raise peers.error()
    # The children and the folder are gone. Now treat the signal as a process without children does.
    if died == signal.SIGINT:
        raise KeyboardInterrupt
    signal.raise_signal(died)
    raise SystemExit(128 + died)  # a handler of the caller's let us go on


def _torchrun(folder: Path, program: str, processes: int, peers: Peers | None) -> Failures | signal.Signals | None:
    """Start the processes and wait for their end. None of them is left afterwards.

    Returns:
        None when all is well, the failures, or the signal that ended this process.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=peers.count if peers else 1,
        max_nodes=peers.count if peers else 1,
        nproc_per_node=processes,
        max_restarts=0,
        run_id=peers.run_id if peers else uuid4().hex,
        rdzv_backend="static",
        rdzv_endpoint=peers.endpoint if peers else f"127.0.0.1:{_free_port()}",
        rdzv_configs={"rank": peers.index if peers else 0},
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "torchrun")),
    )
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # we report the failure; each logger has its own level
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    handlers = {number: signal.getsignal(number) for number in handled}
    try:
        elastic_launch(config, sys.executable)("-P", "-c", program, str(folder))
    except ChildFailedError as error:
        return error.failures
    except SignalException as error:
        return error.sigval
    except Exception as error:
        if peers and is_disconnect(error):  # a pod was lost while the others started
            raise peers.error() from None
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # torchrun's stay behind otherwise
                signal.signal(number, handler)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _relayed(folder: Path, reporter: Reporter, standstill: Standstill) -> Iterator[None]:
    """Pass the children's reports on to the reporter, and end a child that hangs."""
    over = threading.Event()

    def watch() -> None:
        read: dict[Path, int] = {}
        last = False
        while not last:
            last = over.wait(POLL_S)
            standstill.look(POLL_S)
            for path in sorted(folder.glob(EVENTS)):
                with path.open("rb") as file:
                    file.seek(read.get(path, 0))
                    whole = file.read().rpartition(b"\n")[0]
                read[path] = read.get(path, 0) + len(whole) + bool(whole)
                if whole:
                    note_progress()
                for line in whole.splitlines():
                    method, arguments = json.loads(line)
                    with suppress(OSError):  # nobody reads stderr any more; a child that hangs must still be ended
                        getattr(reporter, method)(*arguments)

    note_progress()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
