"""The five boxes as a pod runs them: documents in, documents out.

A pod knows nothing but what it is handed, so each box takes the run's plan (configuration and references, a small JSON
document) and returns another small document. Samples, weights and scores never pass through the pipeline engine: a pod
reads them from the workspace, by range and verified.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lipt.config import Config, parse_config
from lipt.errors import IntegrityError, RunError
from lipt.progress import Reporter
from lipt.report.document import Document
from lipt.stages.compare import run_entries
from lipt.stages.context import Context
from lipt.stages.graph import RANDOM, Outcome, Prepared, choose, combine, fit, has_swarm, jigsaw, prepare, with_config
from lipt.stages.report import Engine, write_report
from lipt.stages.workspace import Artifact, Workspace


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all boxes of one run share."""

    config: dict[str, Any]
    dataset: str
    initial: tuple[str, ...]
    plans: str | None
    engine: Engine

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Raises IntegrityError when it is not a plan."""
        try:
            document = json.loads(text)
            return cls(**{**document, "initial": tuple(document["initial"])})
        except (ValueError, TypeError, KeyError) as error:
            raise IntegrityError(f"the run's plan is damaged: {error}", "start the run again") from None

    def workers(self) -> list[dict[str, int]]:
        """One item per worker for the engine's fan-out; a single one, index -1, when there is nothing to pre-train.

        Engines refuse an empty list.
        """
        config = parse_config(self.config)
        return [{"index": index} for index in (range(config.dispatch.jigsaws) if has_swarm(config) else [-1])]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What one pretrain pod came back with: a jigsaw, or why there is none."""

    index: int
    ref: str | None = None
    error: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Worker:
        """Raises IntegrityError when it is not a worker's answer."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise IntegrityError(f"a worker's answer is damaged: {error}", "run again: its jigsaw is trained again") from None


def dispatch_box(settings: dict[str, Any], *, engine: Engine) -> Plan:
    """Box 1: validate the settings, make theta_* and the shards."""
    config = parse_config(settings, origin="pipeline parameters")
    prepared = prepare(_context(config))
    return Plan(
        config=config.model_dump(mode="json"), dataset=prepared.dataset.ref, initial=tuple(artifact.ref for artifact in prepared.initial),
        plans=prepared.plans.ref if prepared.plans else None, engine=engine,
    )


def pretrain_box(plan: Plan, index: int) -> Worker:
    """Box 2: one jigsaw. A run error is an answer, not a failure of the pod, so that the quorum decides; a transient
    error is raised, so that the pod is repeated."""
    if index < 0:
        return Worker(index=index)
    ctx, prepared = _open(plan)
    try:
        return Worker(index=index, ref=jigsaw(ctx, prepared, index).ref)
    except RunError as error:
        ctx.reporter.say(f"pretrain[{index}] lost: {error}")
        return Worker(index=index, error=error.message)


def merge_box(plan: Plan, workers: Sequence[Worker]) -> Artifact | None:
    """Box 3: theta_p; None when there is no swarm."""
    ctx, prepared = _open(plan)
    if prepared.plans is None:
        return None
    return combine(ctx, prepared, [ctx.workspace.get(worker.ref) for worker in workers if worker.ref])


def select_box(plan: Plan, merged: str | None) -> Artifact:
    """Box 4: score and select."""
    ctx, prepared = _open(plan)
    return choose(ctx, prepared, ctx.workspace.get(merged) if merged else None)[1]


def train_box(plan: Plan, merged: str | None, subset: str, workers: Sequence[Worker]) -> tuple[Document, str]:
    """Box 5: train, evaluate, the random baseline beside it, report. Returns the document and the report's HTML."""
    from lipt.report.render import render

    ctx, prepared = _open(plan)
    theta = ctx.workspace.get(merged) if merged else None
    chosen = ctx.workspace.get(subset)
    outcomes = {
        "selected": Outcome(
            config=ctx.config, prepared=prepared, jigsaws=tuple(ctx.workspace.get(worker.ref) for worker in workers if worker.ref), merged=theta,
            scores=next((ctx.workspace.get(ref) for ref in chosen.inputs if ref.startswith("score/")), None), subset=chosen,
            trained=fit(ctx, prepared, chosen, theta), failures={worker.index: worker.error for worker in workers if worker.error},
        )
    }
    if ctx.config.train.random_baseline and ctx.config.select.algorithm != "random":
        baseline = with_config(ctx, RANDOM)
        bare = Prepared(dataset=prepared.dataset)
        _, drawn = choose(baseline, bare, None)
        outcomes["random"] = Outcome(config=baseline.config, prepared=bare, subset=drawn, trained=fit(baseline, bare, drawn, None))
    document = write_report(ctx, run_entries(outcomes), engine=plan.engine)
    return document, render(document)


def _context(config: Config) -> Context:
    return Context(config=config, workspace=Workspace(config.workspace), reporter=Reporter())


def _open(plan: Plan) -> tuple[Context, Prepared]:
    ctx = _context(parse_config(plan.config, origin="the run's plan"))
    get = ctx.workspace.get
    return ctx, Prepared(dataset=get(plan.dataset), initial=tuple(map(get, plan.initial)), plans=get(plan.plans) if plan.plans else None)
