"""Worker pods do the jigsaws of the pretrain box, the groups of merge, the score blocks and the race of select, and the
models of `score.runs` of dispatch.

Outside a cluster, the box's own process does this work. In both cases all GPUs are used (`runtime.processes.parts`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lipt.adapters.cluster.fanout import ThisPod, run_job, running_arguments
from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.store import MissingObjectError
from lipt.config import parse_config
from lipt.errors import LiptError, RunError
from lipt.flow.prepared import Prepared
from lipt.pods.spec import RunSpec
from lipt.pods.training import context, raise_bug, tell_without_gpu
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from lipt.runtime.stage import Stage
from lipt.stages.pretrain import TRAIN_AGAIN, pretrain

if TYPE_CHECKING:
    from lipt.runtime.processes.parts import Made

#: The file in the folder of a lost jigsaw or model that holds the reason.
_LOST = "lost.json"
#: The stages that leave it.
_NOTING = ("initialise", "pretrain")
_ASKED_AT_ONCE = 32


class Loss(NamedTuple):
    """Why an item is lost."""

    why: str
    """What its pod said last."""
    noted: RunError | None
    """What its pod stored, because the item is lost for good."""


def open_run(address: str, *, trains: bool = False) -> tuple[RunSpec, Context, Prepared]:
    """Read the run specification and the artifacts it refers to."""
    spec = RunSpec.load(address)
    ctx = context(parse_config(spec.config, origin="the run's spec"), spec.pods, trains=trains)
    get = ctx.workspace.get
    prepared = Prepared(
        dataset=get(spec.dataset),
        initial=tuple(map(get, spec.initial)),
        shards=get(spec.shards) if spec.shards else None,
        failures=spec.failures,
    )
    return spec, ctx, prepared


def worker(address: str, stage: str, items: Sequence[int], merged: str | None = None) -> None:
    """Do a worker pod's share of the jigsaws, groups, score blocks, models or trainings of a race.

    Raises:
        RunError: some items failed; all others are done.
        TransientError: the store cannot be reached; the pod is retried.
    """
    spec, ctx, prepared = open_run(address)
    ctx = replace(ctx, pods=None)  # a worker pod starts no others
    if "JOB_COMPLETION_INDEX" in os.environ:
        tell_without_gpu(ctx, spec.pods.gpus)
    theta = ctx.workspace.get(merged) if merged else None
    _, lost = _do(ctx, prepared, stage, items, theta)
    ctx.reporter.close()  # parts that are up to date wait for a common line
    for index, error in lost.items():
        _note_loss(ctx, prepared, stage, index, error)
    if lost:
        remedy = "; ".join(dict.fromkeys(error.remedy for error in lost.values()))
        raise RunError("; ".join(f"{stage}[{item}]: {error.message}" for item, error in lost.items()), remedy)


def _do(ctx: Context, prepared: Prepared, stage: str, items: Sequence[int], theta: Artifact | None) -> Made:
    """The artifacts of these items, and the error of each lost one."""
    from lipt.flow.dag import Scoring, merge_groups, train_jigsaws  # a process that waits needs no torch
    from lipt.flow.initial_models import train_models
    from lipt.stages.merge import members

    match stage:
        case "initialise":
            return train_models(ctx, prepared.dataset, items)
        case "pretrain":
            return train_jigsaws(ctx, prepared, items)
        case "group":
            dealt = {index: list(arrived(ctx, prepared, members(ctx.config, index))[0].values()) for index in items}
            return merge_groups(ctx, prepared, dealt)
        case "score":
            return Scoring.of(ctx, prepared, theta).run(ctx, items)
        case "race":
            return Scoring.of(ctx, prepared, theta).race(ctx).train(items)
        case _:
            raise KeyError(stage)


def _note_loss(ctx: Context, prepared: Prepared, stage: str, index: int, error: RunError) -> None:
    """Store why a jigsaw or a model is lost, if it is for good: a killed process may succeed in the box."""
    from lipt.runtime.processes.failures import KilledError  # a process that waits needs no torch
    from lipt.stages.initialise import initialise

    try:
        if stage == "pretrain":
            note_loss(ctx, pretrain(ctx, *prepared.swarm, index=index), error)
        elif stage == "initialise" and not isinstance(error, KilledError):
            note_loss(ctx, initialise(ctx, prepared.dataset, index=index), error)
    except LiptError as down:  # the store is down or full; the pod's last message holds the reason too
        ctx.reporter.alert(f"{stage}[{index}]: the reason of its loss could not be stored: {down.message}")


def spread(
    spec: RunSpec,
    address: str,
    ctx: Context,
    stage: str,
    items: Sequence[int],
    *,
    stage_of: Callable[[int], Stage],
    may_fail: int | None = None,
    merged: str | None = None,
) -> dict[int, Loss]:
    """Do what is missing of the items in worker pods, or in this process without a cluster; returns the reasons for
    each item that is still missing then. If the box of another run does so already, this one waits first.

    Args:
        stage_of: the stage of an item.

    Raises:
        UnexpectedError: a worker hit a bug.
    """
    missing = _missing(items, stage_of)
    if not missing:
        ctx.reporter.note(stage, f"up to date  {len(items):,} of {len(items):,}")
        return {}
    here = ThisPod.find()
    if here is None:
        for item in missing if stage in _NOTING else ():
            ctx.workspace.store.delete(f"{stage_of(item).ref}/{_LOST}")
        try:
            worker(address, stage, missing, merged)
            return {}
        except RunError as error:
            lost = {item: Loss(error.message, noted_loss(ctx, stage_of(item))) for item in missing}
    else:
        with stage_of(items[0]).leased("box"):
            missing = _missing(missing, stage_of)
            notes = {item: f"{stage_of(item).ref}/{_LOST}" for item in missing}
            said = _in_pods(spec.pods, here, address, ctx, stage, notes, may_fail, merged) if missing else {}
            # Before the next holder of the lease deletes the notes.
            lost = {item: Loss(why, noted_loss(ctx, stage_of(item))) for item, why in said.items()}
    return {item: lost[item] for item in _missing(list(lost), stage_of)}


def _missing(items: Sequence[int], stage_of: Callable[[int], Stage]) -> list[int]:
    found = _find_all(map(stage_of, items))
    return [item for item, artifact in zip(items, found, strict=True) if artifact is None]


def _find_all(stages: Iterable[Stage]) -> list[Artifact | None]:
    """What each stage has made, or None. A thousand, asked one after the other, would take a minute."""
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return list(pool.map(Stage.find, stages))


def _in_pods(
    pods: Pods,
    here: ThisPod,
    address: str,
    ctx: Context,
    stage: str,
    notes: Mapping[int, str],
    may_fail: int | None,
    merged: str | None,
) -> dict[int, str]:
    """Do the items of `notes` in pods.

    Args:
        notes: item -> key of the object in which a pod says why it lost the item.
    """
    items: Sequence[int] = list(notes)
    fixed = ["box", "worker", address, stage, *(["--merged", merged] if merged else [])]
    arguments = [
        *fixed,
        "--of",
        str(count_pods(pods, len(items))),
        "--items",
        json.dumps(list(items), separators=(",", ":")),
    ]
    for running in running_arguments(here, stage):  # its box was stopped; what is missing is among its work
        if running[: len(fixed)] == fixed and set(items) <= set(_items(running)):
            arguments = running
            break
    else:
        for note in notes.values():  # a reason of an earlier Job would hide the one of this
            ctx.workspace.store.delete(note)
    items, count = _items(arguments), int(arguments[arguments.index("--of") + 1])
    shares = sorted(len(share_of(items, share, count)) for share in range(count))
    needed = len(items) - may_fail if may_fail is not None else None
    ctx.reporter.started(stage)
    try:
        lost = run_job(
            here,
            pods,
            name=stage,
            arguments=arguments,
            completions=count,
            may_fail=count if may_fail is None or count < len(items) else may_fail,
            say=ctx.reporter.say,
            advance=lambda done, total: ctx.reporter.advance(stage, done, total, "pods"),
            # This box itself holds a node. If there is no other node, it does the work itself after this time.
            room_within_s=None if stage == "pretrain" else 60,
            quorum=None if needed is None else sum(sum(shares[:done]) < needed for done in range(count)),
        )
    finally:
        ctx.reporter.stopped(stage)
    raise_bug(stage, lost)
    return {item: why for share, why in lost.items() for item in share_of(items, share, count)}


def _items(arguments: Sequence[str]) -> list[int]:
    """The work of a Job's pods, from their arguments."""
    found: list[int] = json.loads(arguments[arguments.index("--items") + 1])
    return found


def count_pods(pods: Pods, items: int) -> int:
    """The number of pods that share `items` items."""
    return min(pods.nodes or math.ceil(items / max(1, pods.gpus)), items)


def share_of(items: Sequence[int], index: int, count: int) -> Sequence[int]:
    """The items of worker pod `index` of `count`."""
    return items[index::count]


def note_loss(ctx: Context, lost: Stage, why: RunError) -> None:
    """Store the reason why a jigsaw or a model is lost, for later boxes."""
    document = json.dumps({"error": why.message, "remedy": why.remedy}).encode()
    ctx.workspace.store.write(f"{lost.ref}/{_LOST}", document, kind="other")


def noted_loss(ctx: Context, lost: Stage) -> RunError | None:
    """What `note_loss` stored; None without it, or if it is damaged."""
    try:
        note = json.loads(ctx.workspace.store.read(f"{lost.ref}/{_LOST}", kind="other"))
        why = str(note["error"]), str(note.get("remedy", ""))
    except (MissingObjectError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return RunError(*why)


def arrived(ctx: Context, prepared: Prepared, indices: Iterable[int] | None = None) -> Made:
    """The finished jigsaws (of `indices`, or of all), and the error of each lost one."""
    jigsaws, failures = dict[int, Artifact](), dict[int, RunError]()
    wanted = list(range(ctx.config.dispatch.jigsaws) if indices is None else indices)
    stages = [pretrain(ctx, *prepared.swarm, index=index) for index in wanted]
    for index, stage, found in zip(wanted, stages, _find_all(stages), strict=True):
        if found is not None:
            jigsaws[index] = found
            continue
        failures[index] = noted_loss(ctx, stage) or RunError("its pod left no message", TRAIN_AGAIN)
    return jigsaws, failures
