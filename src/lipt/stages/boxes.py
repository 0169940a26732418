"""The five boxes as a pod runs them: the plan's address and references in, a reference out.

A pod knows nothing but what it is handed, and it is handed addresses: samples, weights and scores never pass through
the pipeline engine, a pod reads them from the workspace, by range and verified.

Two boxes spread their work over worker pods: pretrain always, select where scoring is shared. Outside a cluster the
same work is done in place, one piece after the other.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lipt.adapters.cluster.fanout import Self, run_job
from lipt.adapters.cluster.manifest import Pods
from lipt.adapters.store import MissingObjectError, open_store
from lipt.config import Config, parse_config
from lipt.errors import LiptError, RunError, say_why, stop_on_sigterm
from lipt.progress import Reporter
from lipt.stages.context import Context
from lipt.stages.graph import (
    Outcome,
    Prepared,
    Scoring,
    choose,
    combine,
    fit,
    jigsaw,
    prepare,
    random_baseline,
    with_config,
)  # fmt: skip
from lipt.stages.ingest import write_chunks
from lipt.stages.plan import Plan
from lipt.stages.showing import MAX_CONFUSION_CLASSES, Finished
from lipt.stages.swarm import jigsaw_ref
from lipt.stages.workspace import Artifact, Workspace

if TYPE_CHECKING:
    from lipt.stages.report import Engine

#: Beside where a jigsaw would lie: why it does not.
_LOST = "lost.json"


@contextmanager
def pod() -> Iterator[None]:
    """Errors as a pod reports them: one message, last in its log, and the documented exit code; no traceback."""
    stop_on_sigterm()
    try:
        yield
    except LiptError as error:
        print(f"lipt: {error}", file=sys.stderr, flush=True)
        say_why(error)
        raise SystemExit(error.exit_code) from None


def load(artifact: Any) -> str:
    """The text in an engine's input artifact (anything with a `path`)."""
    return Path(artifact.path).read_text(encoding="utf-8")


def save(artifact: Any, text: str, **metadata: Any) -> None:
    """Write an engine's output artifact (anything with a `path` and `metadata`): a short text and key figures."""
    Path(artifact.path).write_text(text, encoding="utf-8")
    artifact.metadata.update({name: value for name, value in metadata.items() if value is not None})


def ingest_box(config: Config, location: str) -> dict[str, Any]:
    """Images into a chunk store at `location`; returns its key figures."""
    manifest = write_chunks(config.data, open_store(location), Reporter(), "ingest")
    counts = {name: split.count for name, split in manifest.splits.items()}
    return {"digest": manifest.digest, "name": manifest.name, "num_classes": len(manifest.classes), **counts}


def compare_box(config: Config) -> Finished:
    """A configuration beside all baselines, over seeds."""
    from lipt.stages.compare import run_comparison

    ctx = _context(config)
    document = run_comparison(ctx)
    assert document is not None  # not a dry run
    return Finished(document=document, workspace=ctx.workspace.store.uri, config=config)


def dispatch_box(config: Config, *, engine: Engine, **pods: Any) -> str:
    """Box 1: make theta_* and the shards.

    Args:
        pods: parameters for worker pods, as `Pods` has them.

    Returns:
        The address of the plan.
    """
    parsed = Pods.parse(pods)
    prepared = prepare(_context(config))
    plan = Plan(
        config=config.model_dump(mode="json"),
        dataset=prepared.dataset.ref,
        initial=tuple(artifact.ref for artifact in prepared.initial),
        plans=prepared.plans.ref if prepared.plans else None,
        engine=engine,
        pods=parsed,
    )
    return plan.save()


def pretrain_box(address: str) -> tuple[int, int]:
    """Box 2: the jigsaws, each in a pod on a node of its own. Returns (arrived, expected).

    A worker that fails is an answer, not a failure of the box: the merge applies the quorum.
    """
    plan, ctx, prepared = _open(address)
    if prepared.plans is None:
        return 0, 0
    count = ctx.config.dispatch.jigsaws
    missing = [index for index in range(count) if ctx.workspace.find(_jigsaw_ref(ctx, prepared, index)) is None]
    may_fail = count - math.ceil(ctx.config.merge.quorum * count)
    for index, why in _spread(plan, address, ctx, "pretrain", missing, may_fail=may_fail).items():
        if ctx.workspace.find(_jigsaw_ref(ctx, prepared, index)) is None:
            _note_loss(ctx, prepared, index, why, overwrite=False)
    jigsaws, failures = _arrived(ctx, prepared)
    for index, why in failures.items():
        ctx.reporter.say(f"pretrain[{index}] lost: {why}")
    return len(jigsaws), count


def merge_box(address: str) -> Artifact | None:
    """Box 3: theta_p, of the jigsaws that arrived; None when there is no swarm."""
    _, ctx, prepared = _open(address)
    if prepared.plans is None:
        return None
    jigsaws, failures = _arrived(ctx, prepared)
    try:
        return combine(ctx, prepared, jigsaws)
    except RunError as error:
        reasons = "; ".join(f"jigsaw {index}: {why}" for index, why in failures.items())
        raise RunError(f"{error.message} ({reasons})" if reasons else error.message, error.remedy) from None


def select_box(address: str, merged: str | None) -> Artifact:
    """Box 4: score and select."""
    plan, ctx, prepared = _open(address)
    theta = ctx.workspace.get(merged) if merged else None
    if plan.pods and plan.pods.nodes > 1:
        scoring = Scoring.of(ctx, prepared, theta)
        missing = [index for index in range(scoring.blocks) if ctx.workspace.find(scoring.ref(ctx, index)) is None]
        for index, why in _spread(plan, address, ctx, "score", missing, merged=merged).items():
            ctx.reporter.say(f"score block {index} was lost, it is scored here: {why}")
    return choose(ctx, prepared, theta)[1]


def train_box(address: str, merged: str | None, subset: str) -> Finished:
    """Box 5: train, evaluate, the random baseline beside it, report."""
    from lipt.stages.compare import run_entries
    from lipt.stages.report import write_report

    plan, ctx, prepared = _open(address)
    theta = ctx.workspace.get(merged) if merged else None
    chosen = ctx.workspace.get(subset)
    jigsaws, failures = _arrived(ctx, prepared) if prepared.plans else ([], {})
    outcomes = {
        "selected": Outcome(
            config=ctx.config,
            prepared=prepared,
            jigsaws=tuple(jigsaws),
            merged=theta,
            scores=tuple(ctx.workspace.get(ref) for ref in chosen.inputs if ref.startswith("score/")),
            subset=chosen,
            trained=fit(ctx, prepared, chosen, theta),
            failures=failures,
        )
    }
    if changes := random_baseline(ctx.config):
        baseline = with_config(ctx, changes)
        bare = Prepared(dataset=prepared.dataset)
        _, drawn = choose(baseline, bare, None)
        outcomes["random"] = Outcome(
            config=baseline.config, prepared=bare, subset=drawn, trained=fit(baseline, bare, drawn, None)
        )
    document = write_report(ctx, run_entries(outcomes), engine=plan.engine)
    trained, confusion = outcomes["selected"].trained, outcomes["selected"].trained.evaluation.summary["confusion"]
    return Finished(
        document=document,
        workspace=ctx.workspace.store.uri,
        config=ctx.config,
        model=trained.model.ref,
        confusion=confusion if len(confusion) <= MAX_CONFUSION_CLASSES else None,
    )


def worker(address: str, stage: str, items: Sequence[int], merged: str | None = None) -> None:
    """What a worker pod does: its share of the jigsaws or of the score blocks, one after the other.

    Raises:
        RunError: some of it failed; the rest is done.
    """
    _, ctx, prepared = _open(address)
    work = _WORK[stage](ctx, prepared, merged)
    failed = {}
    for item in items:
        try:
            work(item)
        except RunError as error:  # a transient error ends the pod, so that it is repeated
            failed[item] = error.message
    if failed:
        raise RunError("; ".join(f"{stage}[{item}]: {message}" for item, message in failed.items()))


def _jigsaw_work(ctx: Context, prepared: Prepared, _merged: str | None) -> Callable[[int], None]:
    def work(index: int) -> None:
        try:
            jigsaw(ctx, prepared, index)
        except RunError as error:
            _note_loss(ctx, prepared, index, error.message, overwrite=True)
            raise

    return work


def _score_work(ctx: Context, prepared: Prepared, merged: str | None) -> Callable[[int], None]:
    scoring = Scoring.of(ctx, prepared, ctx.workspace.get(merged) if merged else None)

    def work(index: int) -> None:
        scoring.run(ctx, index)

    return work


_WORK = {"pretrain": _jigsaw_work, "score": _score_work}


def _spread(
    plan: Plan,
    address: str,
    ctx: Context,
    stage: str,
    items: Sequence[int],
    *,
    may_fail: int | None = None,
    merged: str | None = None,
) -> dict[int, str]:
    """Do the items in worker pods, or here when there is no cluster; returns why, for each that was not done."""
    if not items:
        return {}
    here = Self.find()
    if here is None or plan.pods is None:
        try:
            worker(address, stage, items, merged)
        except RunError as error:
            return dict.fromkeys(items, error.message)
        return {}
    count = min(plan.pods.nodes, len(items)) if plan.pods.nodes else len(items)
    arguments = ["box", "worker", address, stage, "--of", str(count)]
    arguments += ["--items", json.dumps(list(items), separators=(",", ":"))]
    lost = run_job(
        here,
        plan.pods,
        name=stage,
        arguments=[*arguments, *(["--merged", merged] if merged else [])],
        completions=count,
        may_fail=count if may_fail is None or count < len(items) else may_fail,
        say=ctx.reporter.say,
        # This box holds a node itself; where there is no other it does the scoring, rather than wait for ever.
        room_within_s=60 if stage == "score" else None,
    )
    return {item: why for share, why in lost.items() for item in share_of(items, share, count)}


def share_of(items: Sequence[int], index: int, count: int) -> Sequence[int]:
    """The items of worker pod `index` of `count`."""
    return items[index::count]


def _jigsaw_ref(ctx: Context, prepared: Prepared, index: int) -> str:
    assert prepared.plans is not None
    return jigsaw_ref(ctx, prepared.dataset, prepared.initial[0], prepared.plans, index=index)


def _note_loss(ctx: Context, prepared: Prepared, index: int, why: str, *, overwrite: bool) -> None:
    key, store = f"{_jigsaw_ref(ctx, prepared, index)}/{_LOST}", ctx.workspace.store
    if overwrite or store.size(key) is None:
        store.write(key, json.dumps({"error": why}).encode(), kind="other")


def _arrived(ctx: Context, prepared: Prepared) -> tuple[list[Artifact], dict[int, str]]:
    """The jigsaws that are there, and why each of the others is not."""
    jigsaws, failures = [], {}
    for index in range(ctx.config.dispatch.jigsaws):
        ref = _jigsaw_ref(ctx, prepared, index)
        if (found := ctx.workspace.find(ref)) is not None:
            jigsaws.append(found)
            continue
        try:
            note = ctx.workspace.store.read(f"{ref}/{_LOST}", kind="other")
            failures[index] = str(json.loads(note)["error"])
        except (MissingObjectError, ValueError, KeyError):
            failures[index] = "its pod left no message"
    return jigsaws, failures


def _context(config: Config) -> Context:
    return Context(config=config, workspace=Workspace(config.workspace), reporter=Reporter())


def _open(address: str) -> tuple[Plan, Context, Prepared]:
    plan = Plan.load(address)
    ctx = _context(parse_config(plan.config, origin="the run's plan"))
    get = ctx.workspace.get
    prepared = Prepared(
        dataset=get(plan.dataset), initial=tuple(map(get, plan.initial)), plans=get(plan.plans) if plan.plans else None
    )
    return plan, ctx, prepared
