"""The five boxes as a pod runs them: documents in, documents out.

A pod knows nothing but what it is handed, so each box takes the run's plan (configuration and references, a small JSON
document) and returns another small document. Samples, weights and scores never pass through the pipeline engine: a pod
reads them from the workspace, by range and verified.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lipt.adapters.store import open_store
from lipt.config import PROFILES, Config, parse_config
from lipt.errors import IntegrityError, LiptError, RunError, UsageError
from lipt.progress import Reporter
from lipt.stages.context import Context
from lipt.stages.graph import (
    Outcome,
    Prepared,
    choose,
    combine,
    fit,
    has_swarm,
    jigsaw,
    prepare,
    random_baseline,
    with_config,
)  # fmt: skip
from lipt.stages.ingest import write_chunks
from lipt.stages.showing import MAX_CONFUSION_CLASSES, Finished
from lipt.stages.workspace import Artifact, Workspace

if TYPE_CHECKING:  # the report imports matplotlib: a second that only the last box spends
    from lipt.stages.report import Engine

#: Pipeline parameter -> the setting it stands for.
PARAMETERS = {
    "data": "data.source", "workspace": "workspace", "model": "model.name", "width": "model.width",
    "algorithm": "select.algorithm", "fraction": "select.fraction", "epoch_fraction": "train.epoch_fraction",
    "jigsaws": "dispatch.jigsaws", "batches": "dispatch.batches", "passes": "pretrain.passes", "epochs": "train.epochs",
    "seed": "seed", "seeds": "compare.seeds", "profile": "profile", "random_baseline": "train.random_baseline",
    "chunk_mb": "data.chunk_mb", "shuffle_seed": "data.shuffle_seed",
}  # fmt: skip
#: Those whose 0 means "not set": engines have no null for numbers.
UNSET_IF_ZERO = {"width", "epoch_fraction"}


def configure(config: str, **parameters: Any) -> Config:
    """The configuration of a run that was started with pipeline parameters.

    Args:
        config: YAML of the settings that have no parameter.
        parameters: by the names in `PARAMETERS`; what the engine shows as a run's parameters is what runs, so a setting
            is never taken silently from elsewhere.

    Raises:
        UsageError: not YAML, an invalid setting, or `config` (or the profile) contradicts a parameter; names both.
    """
    try:
        document = yaml.safe_load(config) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"config is not YAML: {' '.join(str(error).split())}", "correct that line") from None
    if not isinstance(document, dict):
        raise UsageError(f"config holds a {type(document).__name__}, not settings", "write `key: value` lines")
    parse_config(document, origin="config")
    profile: dict[str, Any] = PROFILES.get(parameters.get("profile", ""), {})
    conflicts = []
    for name, value in parameters.items():
        if name in UNSET_IF_ZERO and not value:
            continue
        section, _, key = PARAMETERS[name].rpartition(".")
        for origin, settings in (("config", document), ("the profile", profile)):
            found = (settings.get(section, {}) if section else settings).get(key, value)
            if found != value:
                conflicts.append(f"parameter {name} is {value!r}, {origin} says {PARAMETERS[name]}: {found!r}")
        (document.setdefault(section, {}) if section else document)[key] = value
    if conflicts:
        raise UsageError("; ".join(conflicts), "say it once, in the parameter")
    return parse_config(document, origin="pipeline parameters")


@contextmanager
def pod() -> Iterator[None]:
    """Errors as a pod reports them: one message, last in its log, and the documented exit code; no traceback."""
    try:
        yield
    except LiptError as error:
        print(f"lipt: {error}", file=sys.stderr, flush=True)
        raise SystemExit(error.exit_code) from None


def load(artifact: Any) -> str:
    """The text in an engine's input artifact (anything with a `path`)."""
    return Path(artifact.path).read_text(encoding="utf-8")


def save(artifact: Any, text: str, **metadata: Any) -> None:
    """Write an engine's output artifact (anything with a `path` and `metadata`): a short text and key figures."""
    Path(artifact.path).write_text(text, encoding="utf-8")
    artifact.metadata.update({name: value for name, value in metadata.items() if value is not None})


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
            raise IntegrityError(
                f"a worker's answer is damaged: {error}", "run again: its jigsaw is trained again"
            ) from None


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


def dispatch_box(config: Config, *, engine: Engine) -> Plan:
    """Box 1: make theta_* and the shards."""
    prepared = prepare(_context(config))
    return Plan(
        config=config.model_dump(mode="json"),
        dataset=prepared.dataset.ref,
        initial=tuple(artifact.ref for artifact in prepared.initial),
        plans=prepared.plans.ref if prepared.plans else None,
        engine=engine,
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
        ctx.reporter.say(f"pretrain[{index}] lost: {error.message}")
        return Worker(index=index, error=error.message)


def merge_box(plan: Plan, workers: Sequence[Worker]) -> Artifact | None:
    """Box 3: theta_p; None when there is no swarm."""
    ctx, prepared = _open(plan)
    if prepared.plans is None:
        return None
    for worker in workers:
        if worker.error:
            ctx.reporter.say(f"pretrain[{worker.index}] was lost: {worker.error}")
    return combine(ctx, prepared, [ctx.workspace.get(worker.ref) for worker in workers if worker.ref])


def select_box(plan: Plan, merged: str | None) -> Artifact:
    """Box 4: score and select."""
    ctx, prepared = _open(plan)
    return choose(ctx, prepared, ctx.workspace.get(merged) if merged else None)[1]


def train_box(plan: Plan, merged: str | None, subset: str, workers: Sequence[Worker]) -> Finished:
    """Box 5: train, evaluate, the random baseline beside it, report."""
    from lipt.stages.compare import run_entries
    from lipt.stages.report import write_report

    ctx, prepared = _open(plan)
    theta = ctx.workspace.get(merged) if merged else None
    chosen = ctx.workspace.get(subset)
    outcomes = {
        "selected": Outcome(
            config=ctx.config,
            prepared=prepared,
            jigsaws=tuple(ctx.workspace.get(worker.ref) for worker in workers if worker.ref),
            merged=theta,
            scores=next((ctx.workspace.get(ref) for ref in chosen.inputs if ref.startswith("score/")), None),
            subset=chosen,
            trained=fit(ctx, prepared, chosen, theta),
            failures={worker.index: worker.error for worker in workers if worker.error},
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


def _context(config: Config) -> Context:
    return Context(config=config, workspace=Workspace(config.workspace), reporter=Reporter())


def _open(plan: Plan) -> tuple[Context, Prepared]:
    ctx = _context(parse_config(plan.config, origin="the run's plan"))
    get = ctx.workspace.get
    return ctx, Prepared(
        dataset=get(plan.dataset), initial=tuple(map(get, plan.initial)), plans=get(plan.plans) if plan.plans else None
    )
