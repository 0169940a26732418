"""The work that three boxes spread over worker pods: the jigsaws of pretrain, the groups of merge, the score blocks of
select.

Outside a cluster the same work is done in place. Each pod, and that place, uses all of its GPUs (`parts`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from lipt.adapters.cluster.fanout import ThisPod, run_job
from lipt.adapters.cluster.manifest import Pods
from lipt.adapters.store import MissingObjectError
from lipt.config import parse_config
from lipt.errors import UNEXPECTED, LiptError, RunError, UnexpectedError
from lipt.flow.graph import Prepared, Scoring, merge_groups, train_jigsaws
from lipt.pods.spec import RunSpec
from lipt.run.artifact import Artifact
from lipt.run.context import Context
from lipt.run.processes.parts import Made
from lipt.stages.merge import members
from lipt.stages.pretrain import pretrain

#: Beside where a jigsaw would lie: why it does not.
_LOST = "lost.json"


def open_run(address: str) -> tuple[RunSpec, Context, Prepared]:
    """What every pod of a run starts from, looked up in the workspace."""
    spec = RunSpec.load(address)
    ctx = Context.of(parse_config(spec.config, origin="the run's spec"))
    get = ctx.workspace.get
    prepared = Prepared(
        dataset=get(spec.dataset),
        initial=tuple(map(get, spec.initial)),
        shards=get(spec.shards) if spec.shards else None,
    )
    return spec, ctx, prepared


def worker(address: str, stage: str, items: Sequence[int], merged: str | None = None) -> None:
    """What a worker pod does: its share of the jigsaws, groups or score blocks.

    Raises:
        RunError: some of it failed; the rest is done.
        TransientError: the pod is to be repeated.
    """
    _, ctx, prepared = open_run(address)
    _, lost = _WORK[stage](ctx, prepared, items, merged)
    if lost:
        raise RunError("; ".join(f"{stage}[{item}]: {error.message}" for item, error in lost.items()))


def _jigsaws(ctx: Context, prepared: Prepared, items: Sequence[int], _merged: str | None) -> Made:
    made, lost = train_jigsaws(ctx, prepared, items)
    for index, error in lost.items():
        try:
            note_loss(ctx, prepared, index, error.message, overwrite=True)
        except LiptError as down:  # the store is down or full; this pod's last message says it as well
            ctx.reporter.say(f"pretrain[{index}]: no note of why it is lost: {down.message}")
    return made, lost


def _groups(ctx: Context, prepared: Prepared, items: Sequence[int], _merged: str | None) -> Made:
    dealt = {index: arrived(ctx, prepared, members(ctx.config, index))[0] for index in items}
    return merge_groups(ctx, prepared, dealt)


def _blocks(ctx: Context, prepared: Prepared, items: Sequence[int], merged: str | None) -> Made:
    return Scoring.of(ctx, prepared, ctx.workspace.get(merged) if merged else None).run(ctx, items)


_WORK = {"pretrain": _jigsaws, "group": _groups, "score": _blocks}


def spread(
    spec: RunSpec,
    address: str,
    ctx: Context,
    stage: str,
    items: Sequence[int],
    *,
    may_fail: int | None = None,
    merged: str | None = None,
) -> dict[int, str]:
    """Do the items in worker pods, or here when there is no cluster; returns why, for each that was not done.

    Raises:
        UnexpectedError: a worker met a bug.
    """
    if not items:
        return {}
    here = ThisPod.find()
    if here is None or spec.pods is None:
        try:
            worker(address, stage, items, merged)
        except RunError as error:
            return dict.fromkeys(items, error.message)
        return {}
    count = count_pods(spec.pods, len(items))
    arguments = ["box", "worker", address, stage, "--of", str(count)]
    arguments += ["--items", json.dumps(list(items), separators=(",", ":"))]
    ctx.reporter.started(stage)
    try:
        lost = run_job(
            here,
            spec.pods,
            name=stage,
            arguments=[*arguments, *(["--merged", merged] if merged else [])],
            completions=count,
            may_fail=count if may_fail is None or count < len(items) else may_fail,
            say=ctx.reporter.say,
            advance=lambda done, total: ctx.reporter.advance(stage, done, total, "pods"),
            # This box holds a node itself; where there is no other it does the work, rather than wait for ever.
            room_within_s=None if stage == "pretrain" else 60,
        )
    finally:
        ctx.reporter.stopped(stage)
    raise_bug(stage, lost)
    return {item: why for share, why in lost.items() for item in share_of(items, share, count)}


def raise_bug(stage: str, lost: Mapping[int, str]) -> None:
    """A pod that is lost is an answer; a bug in it is not, however many pods may fail."""
    for share, why in lost.items():
        _, found, bug = why.partition(f"lipt: {UNEXPECTED}")
        if found:
            raise UnexpectedError(f"{stage}, worker pod {share}: {bug}", "its traceback is in the log of that pod")


def count_pods(pods: Pods, items: int) -> int:
    """How many pods share so many items."""
    return min(pods.nodes or math.ceil(items / max(1, pods.gpus)), items)


def share_of(items: Sequence[int], index: int, count: int) -> Sequence[int]:
    """The items of worker pod `index` of `count`."""
    return items[index::count]


def note_loss(ctx: Context, prepared: Prepared, index: int, why: str, *, overwrite: bool) -> None:
    """Leave word for the boxes that follow why a jigsaw is not there."""
    key, store = f"{pretrain(ctx, *prepared.swarm, index=index).ref}/{_LOST}", ctx.workspace.store
    if overwrite or store.size(key) is None:
        store.write(key, json.dumps({"error": why}).encode(), kind="other")


def arrived(
    ctx: Context, prepared: Prepared, indices: Iterable[int] | None = None
) -> tuple[list[Artifact], dict[int, str]]:
    """The jigsaws that are there, of all or of `indices`, and why each of the others is not."""
    jigsaws, failures = [], {}
    for index in range(ctx.config.dispatch.jigsaws) if indices is None else indices:
        stage = pretrain(ctx, *prepared.swarm, index=index)
        if (found := stage.find()) is not None:
            jigsaws.append(found)
            continue
        try:
            note = ctx.workspace.store.read(f"{stage.ref}/{_LOST}", kind="other")
            failures[index] = str(json.loads(note)["error"])
        except (MissingObjectError, ValueError, KeyError, TypeError, RecursionError):
            failures[index] = "its pod left no message"
    return jigsaws, failures
