"""The five boxes as a pod runs them: the address of the run specification and references in, a reference out.

Samples, weights and scores never pass through the pipeline engine. A pod receives addresses, reads the data from the
workspace by range, and verifies them.

Boxes start worker pods (`workers`): pretrain always, merge if there are groups, select if pods share the scoring or for
a race, dispatch for several models of `score.runs`; dispatch and train if pods share the training (`training`).
The pretrain box only waits for them, so this file imports torch in the boxes that use it, and there only after
`training.context` has set the number of threads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lipt.adapters.cluster.job_manifest import Pods
from lipt.adapters.cluster.job_status import NO_MEMORY
from lipt.adapters.store import open_store
from lipt.config import Config
from lipt.errors import LiptError, RunError, Terminated, UnexpectedError, end_terminated, say_why, stop_on_sigterm
from lipt.flow.prepared import Prepared
from lipt.flow.runs import note_ended, note_running
from lipt.pipeline import Engine
from lipt.pods.outputs import RunOutputs
from lipt.pods.spec import RunSpec
from lipt.pods.training import context, tell_without_gpu, use_threads
from lipt.pods.workers import arrived, note_loss, open_run, spread
from lipt.progress import Reporter
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from lipt.runtime.lease import at_work
from lipt.runtime.stage import Stage
from lipt.stages.pretrain import TRAIN_AGAIN, pretrain, quorum_of

if TYPE_CHECKING:
    from lipt.flow.dag import Groups


@contextmanager
def pod() -> Iterator[None]:
    """Report an error as a pod: one message at the end of the log, and the documented exit code.

    The traceback of a bug is printed too.
    """
    terminated = stop_on_sigterm()
    try:
        yield
    except LiptError as error:
        if terminated.explains(error):
            end_terminated()
        if isinstance(error, UnexpectedError):
            print(error.trace, file=sys.stderr)
        print(f"lipt: {error}", file=sys.stderr, flush=True)
        say_why(error)
        raise SystemExit(error.exit_code) from None
    except Terminated:
        end_terminated()
    except Exception as error:
        if terminated.explains(error):
            end_terminated()
        say_why(error)
        raise


def load(artifact: Any) -> str:
    """Read the text of an engine's input artifact (any object with a `path`)."""
    return Path(artifact.path).read_text(encoding="utf-8")


def save(artifact: Any, text: str, **metadata: Any) -> None:
    """Write an engine's output artifact (any object with `path` and `metadata`): a short text and key figures."""
    Path(artifact.path).write_text(text, encoding="utf-8")
    artifact.metadata.update({name: value for name, value in metadata.items() if value is not None})


def ingest_box(config: Config, location: str) -> dict[str, Any]:
    """Ingest images into a chunk store at `location`; returns its key figures."""
    from lipt.runtime.chunk_store import write_apart
    from lipt.runtime.dataset import open_apart

    store, reporter, started = open_store(location), Reporter(), time.monotonic()
    reporter.started("ingest")
    manifest = write_apart(config.data, store, reporter, open_apart(config.data, store))
    counts = {name: split.count for name, split in manifest.splits.items()}
    reporter.done("ingest", time.monotonic() - started, counts | {"classes": len(manifest.classes)})
    return {"digest": manifest.digest, "name": manifest.name, "num_classes": len(manifest.classes), **counts}


def compare_box(config: Config, *, engine: Engine, gpus: str, cpu: str) -> RunOutputs:
    """Run a configuration and all baselines under several seeds, on the CPUs that the pod requests."""
    use_threads(cpu)
    from lipt.flow.compare import run_comparison

    ctx = Context.of(config)
    tell_without_gpu(ctx, int(gpus))
    return RunOutputs(document=run_comparison(ctx, engine=engine), workspace=ctx.workspace.store.uri)


def dispatch_box(config: Config, *, engine: Engine, **pods: Any) -> str:
    """Box 1: ingest the data, train theta_*, draw the shards.

    Args:
        pods: the fields of `Pods`, for the worker pods.

    Returns:
        The address of the run specification.
    """
    parsed = Pods.parse(pods)
    ctx = context(config, parsed, trains=True)
    from lipt.flow.checks.validation import check_run
    from lipt.flow.dag import prepare
    from lipt.stages.initialise import initialise

    check_run(ctx)
    tell_without_gpu(ctx, parsed.gpus)

    def spec_of(prepared: Prepared) -> RunSpec:
        return RunSpec(
            config=config.model_dump(mode="json"),
            dataset=prepared.dataset.ref,
            initial=tuple(artifact.ref for artifact in prepared.initial),
            shards=prepared.shards.ref if prepared.shards else None,
            engine=engine,
            pods=parsed,
            failures=prepared.failures,
        )

    def train_in_pods(dataset: Artifact, indices: list[int]) -> dict[int, RunError]:
        if parsed.nodes == 1 or config.train.nodes > 1:  # then several pods share each training
            return {}

        def model(index: int) -> Stage:
            return initialise(ctx, dataset, index=index)

        spec, failed = spec_of(Prepared(dataset=dataset)), dict[int, RunError]()
        for index, loss in spread(spec, spec.save(), ctx, "initialise", indices, stage_of=model).items():
            if loss.noted:  # such as a training that diverges: it would do so here, too
                failed[index] = loss.noted
            else:
                ctx.reporter.alert(f"model {index} was lost, so the dispatch box trains it: {loss.why}")
        return failed

    with at_work(ctx.workspace.store):
        spec = spec_of(prepare(ctx, train_in_pods))
        ctx.reporter.close()  # models that are up to date wait for a common line
        address = spec.save()
        note_running(ctx.workspace, _name(address), spec.refs)
    return address


def _name(address: str) -> str:
    """The name of a run specification."""
    return address.rpartition("/")[2]


@contextmanager
def _opened(address: str, *, trains: bool = False) -> Iterator[tuple[RunSpec, Context, Prepared]]:
    """`open_run`, for the time in which this box works."""
    run = open_run(address, trains=trains)
    with at_work(run[1].workspace.store):
        yield run


_NO_SWARM = "nothing to do: these settings need no swarm"


def pretrain_box(address: str) -> tuple[int, int]:
    """Box 2: train the jigsaws in worker pods. Returns the numbers of (arrived, expected) jigsaws.

    A failed worker does not fail the box: the merge applies the quorum.
    """
    with _opened(address) as (spec, ctx, prepared):
        if prepared.shards is None:
            ctx.reporter.say(_NO_SWARM)
            return 0, 0
        count = ctx.config.dispatch.jigsaws

        def jigsaw(index: int) -> Stage:
            return pretrain(ctx, *prepared.swarm, index=index)

        may_fail = count - quorum_of(ctx.config)
        lost = spread(spec, address, ctx, "pretrain", range(count), stage_of=jigsaw, may_fail=may_fail)
        for index, loss in lost.items():
            if not loss.noted:
                remedy = "give them more `memory`" if loss.why == NO_MEMORY else TRAIN_AGAIN
                note_loss(ctx, jigsaw(index), RunError(loss.why, remedy))
        jigsaws, failures = arrived(ctx, prepared)
        for index, why in failures.items():
            ctx.reporter.alert(f"pretrain[{index}] lost: {why.message}")
        return len(jigsaws), count


def merge_box(address: str) -> Artifact | None:
    """Box 3: merge the jigsaws that arrived into theta_p; None without a swarm."""
    with _opened(address) as (spec, ctx, prepared):
        if prepared.shards is None:
            ctx.reporter.say(_NO_SWARM)
            return None
        from lipt.flow.dag import merge_jigsaws
        from lipt.stages.group import group

        tell_without_gpu(ctx, spec.pods.gpus)
        swarm, (jigsaws, failures) = prepared.swarm, arrived(ctx, prepared)

        def merge_in_pods(groups: Groups) -> None:
            if spec.pods.nodes != 1:

                def soup(index: int) -> Stage:
                    return group(ctx, *swarm, groups[index], index=index)

                for index, loss in spread(spec, address, ctx, "group", list(groups), stage_of=soup).items():
                    ctx.reporter.alert(f"group {index} was lost, so the merge box merges it: {loss.why}")

        return merge_jigsaws(ctx, prepared, list(jigsaws.values()), merge_in_pods, failures)


def select_box(address: str, merged: str | None) -> Artifact:
    """Box 4: score the candidates and select the subset."""
    with _opened(address) as (spec, ctx, prepared):
        from lipt.flow.dag import Scoring, score_and_select
        from lipt.runtime.algorithm import scoring_needs

        tell_without_gpu(ctx, spec.pods.gpus)
        theta = ctx.workspace.get(merged) if merged else None
        scoring = Scoring.of(ctx, prepared, theta)
        # One block is no more work for this box than for a pod; without a forward pass there is nothing to share.
        if spec.pods.nodes > 1 and scoring.blocks > 1 and scoring_needs(ctx.config).outputs:
            indices, block = range(scoring.blocks), partial(scoring.stage, ctx)
            for index, loss in spread(spec, address, ctx, "score", indices, stage_of=block, merged=merged).items():
                ctx.reporter.alert(f"score block {index} was lost, so the select box scores it: {loss.why}")

        def race_in_pods(indices: list[int], training: Callable[[int], Stage]) -> None:
            for index, loss in spread(spec, address, ctx, "race", indices, stage_of=training, merged=merged).items():
                ctx.reporter.alert(f"training {index} of the race was lost, so the select box does it: {loss.why}")

        return score_and_select(ctx, prepared, theta, race_in_pods)


def train_box(address: str, merged: str | None, subset: str) -> RunOutputs:
    """Box 5: train and evaluate on the subset, do the same for the baseline, write the report."""
    with _opened(address, trains=True) as (spec, ctx, prepared):
        from lipt.flow.compare import run_baseline, run_entries
        from lipt.flow.dag import train_and_evaluate
        from lipt.flow.reporting.report import write_report

        tell_without_gpu(ctx, spec.pods.gpus)
        theta = ctx.workspace.get(merged) if merged else None
        jigsaws, lost = arrived(ctx, prepared) if prepared.shards else ({}, {})
        failures = {index: why.message for index, why in lost.items()}
        chosen = ctx.workspace.get(subset)
        selected = train_and_evaluate(ctx, prepared, chosen, theta, jigsaws=jigsaws.values(), failures=failures)
        entries = run_entries(selected, run_baseline(ctx, selected))
        document = write_report(ctx, entries, engine=spec.engine, whole=False)
        note_ended(ctx.workspace, _name(address))
        return RunOutputs(
            document=document,
            workspace=ctx.workspace.store.uri,
            model=selected.trained.model.ref,
            confusion=selected.trained.evaluation.summary.get("confusion"),
        )
