"""A training on several pods (`train.nodes`): the box starts them and waits, each runs processes of one group.

The box writes a request to the workspace. The pods train, keep checkpoints and write the files of the stage. The first
pod leaves the result beside them, and the box finishes the stage with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from lipt.adapters.cluster.fanout import ThisPod, run_job
from lipt.adapters.cluster.job_manifest import FIRST_POD, THREADS, Pods, threads_of
from lipt.adapters.cluster.job_status import Bug
from lipt.adapters.cluster.job_watch import ROOM_WITHIN_S, NeverRan
from lipt.adapters.store import Store
from lipt.config import Config, parse_config
from lipt.errors import RunError, TransientError, UnexpectedError, UsageError
from lipt.liveness import note_progress
from lipt.pods.attempts import count_attempt, forget_attempts
from lipt.pods.notes import read_note
from lipt.pods.spec import load_spec, save_spec
from lipt.runtime.artifact import PODS_RESULT
from lipt.runtime.context import Context, InPods


def context(config: Config, pods: Pods, *, trains: bool) -> Context:
    """The context of a box or of a worker pod: its trainings run in pods if `train.nodes` says so.

    A box calls this before it imports torch, because it sets the number of threads.

    Args:
        trains: the box computes nothing but trainings and evaluations, so it has no GPU if these run in pods.
    """
    here = ThisPod.find()
    if here is None:
        return Context.of(config)
    use_threads(pods.cpu)
    return Context.of(config, pods=_start(here, pods), waits=trains and pods.gpus > 0 and config.train.nodes > 1)


def tell_without_gpu(ctx: Context, gpus: int) -> None:
    """Say that this pod computes on the CPU although it asked for GPUs: its driver or its image has a fault."""
    if gpus and ctx.config.device == "auto" and ctx.device.type == "cpu" and not ctx.waits:
        ctx.reporter.alert(
            f"this pod has asked for {gpus} GPU{'s' * (gpus > 1)}, but torch sees none, so it computes on the CPU: "
            "check the driver of its node, and that the image is not of VARIANT=cpu. `device: cuda` makes this an error"
        )


def use_threads(cpu: str) -> None:
    """Set the number of CPU threads of this box, before torch is imported. Kubeflow's manifest cannot compute it."""
    os.environ.setdefault(THREADS, threads_of(cpu))


def _start(here: ThisPod, pods: Pods) -> InPods:
    def start(ctx: Context, asked: dict[str, Any], count: int) -> dict[str, Any] | None:
        """Run the request in `count` pods; None if there is no room for them, and this box can do it.

        Raises:
            RunError: a pod failed; the message names the first one.
            UnexpectedError: a pod hit a bug.
        """
        store, key = ctx.workspace.store, f"{asked['ref']}/{PODS_RESULT}"
        if found := _result(store, key, asked):  # left for an earlier attempt of this box
            return found
        name = asked["ref"].partition("/")[0]
        more = {"config": ctx.config.model_dump(mode="json"), "gpus": pods.gpus}
        address = save_spec(ctx.config.workspace, asked | more)
        lost = run_job(
            here,
            pods,
            name=name,
            arguments=["box", "join", address, "--of", str(count)],
            completions=count,
            may_fail=0,
            say=ctx.reporter.say,
            room_within_s=ROOM_WITHIN_S if count > 1 else None,  # then one pod trains alone, or the box
            together=True,
        )
        raise_bug(name, lost)
        if count > 1 and any(isinstance(why, NeverRan) for why in lost.values()):
            other = "one pod" if ctx.waits else "this box"
            ctx.reporter.alert(f"{name}: no room for {count} pods at a time, so {other} trains alone")
            return start(ctx, asked, 1) if ctx.waits else None
        for index, why in lost.items():
            raise RunError(f"{name}, pod {index} of {count}: {why}", "run again: it continues from its checkpoint")
        found = _result(store, key, asked)
        if found is None:
            raise TransientError(f"{name}: its pods have ended, but their result is gone", "run again")
        return found

    return start


def join(address: str, *, index: int, count: int) -> None:
    """Take part in a training as pod `index` of `count`. A single pod may also run another stage.

    Raises:
        TransientError: another pod was lost or never started; the Job restarts this one.
        RunError: attempt after attempt has left no new checkpoint.
    """
    from lipt.runtime.processes.child import run_stage
    from lipt.runtime.processes.parent import count_processes, launch
    from lipt.runtime.processes.peers import Peers

    request = load_spec(address)
    ctx = Context.of(parse_config(request.pop("config"), origin="the run's spec"))
    store, key = ctx.workspace.store, f"{request['ref']}/{PODS_RESULT}"
    if _result(store, key, request):  # an earlier attempt ended after the training: nobody to wait for
        return
    tell_without_gpu(ctx, request.pop("gpus", 0))
    if FIRST_POD not in os.environ:
        raise UsageError(f"join: {FIRST_POD} is not set", "the Job of a training sets it")
    note_progress()  # from here on the probe counts, so that a pod which hangs before its first step is noticed too
    most = max(1, request.pop("batch_size") // count)
    processes, peers = min(count_processes(ctx, most), most), None
    if index == 0:
        count_attempt(store, request["ref"])
    if count > 1:
        ctx.reporter.say(f"{request['label']}: pod {index} of {count} waits for the others")
        peers = Peers.meet(index, count, os.environ[FIRST_POD])
    result = launch(ctx, request["label"], run_stage, processes, request, peers)
    if index == 0:
        store.write(key, json.dumps(result).encode(), kind="other")
        forget_attempts(store, request["ref"])
    if peers:
        peers.finish()


def raise_bug(stage: str, lost: Mapping[int, str]) -> None:
    """Raise the bug that a worker pod reported: unlike a lost pod, a bug always fails the box."""
    for share, why in lost.items():
        if isinstance(why, Bug):
            raise UnexpectedError(
                f"{stage}, worker pod {share}: {why.exception}", "the traceback is in the log of that pod"
            )


class _Result(BaseModel, extra="allow"):
    """What the first pod of a training leaves, as `run_stage` returns it."""

    made_from: list[str]


_RESULT = TypeAdapter(_Result)


def _result(store: Store, key: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result that a pod has left; None without one, or if an input was made again since then and has changed.

    Raises:
        IntegrityError: it is damaged.
    """
    result = read_note(store, key, _RESULT)
    return result.model_dump() if result and result.made_from == asked["made_from"] else None
