"""`lipt sweep`: a comparison at each point of a grid. Points share every stage with equal settings and inputs."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lipt.adapters.store import StoreError
from lipt.config import Config, Point, override
from lipt.errors import FailedPointError, LiptError, RunError, all_in_one
from lipt.flow.checks.validation import check_comparison
from lipt.flow.compare import run_variants, scope
from lipt.flow.reporting.rows import all_artifacts, costs_of, rows_of
from lipt.flow.runs import note_point
from lipt.progress import Reporter
from lipt.report.names import LONGER
from lipt.report.sweep import Result
from lipt.runtime.context import Context
from lipt.runtime.lease import at_work
from lipt.stages.select import select


def run_sweep(ctx: Context, points: Sequence[Point], save: Callable[[Sequence[Result]], object]) -> list[Result]:
    """Run the comparison of every point. If one fails, such as a training that diverges, the others go on.

    Args:
        save: is called with all results so far, after each point.

    Raises:
        LiptError: names the point; before the first run, if a configuration is invalid.
        FailedPointError: points failed; names them. The others are finished.
    """
    check_points(ctx, points)
    with at_work(ctx.workspace.store):
        return _run_points(ctx, points, save)


def _run_points(ctx: Context, points: Sequence[Point], save: Callable[[Sequence[Result]], object]) -> list[Result]:
    results, failed = list[Result](), list[LiptError]()
    for number, point in enumerate(points, start=1):
        ctx.reporter.say(f"== point {number} of {len(points)}: {point}")
        own = replace(ctx, config=point.config)
        try:
            with scope(ctx.reporter, f"point {number}"):
                entries = run_variants(own, check_comparison(own))
        except StoreError:  # the other points need the same store
            raise
        except RunError as error:
            failed.append(FailedPointError(f"{point}: {error.message}", error.remedy))
            ctx.reporter.alert(f"failed: {error.message}")
            continue
        results.append(Result(point=dict(point.values), rows=rows_of(entries, costs_of(own, entries))))
        note_point(own.workspace, own.config, all_artifacts(entries))
        save(results)
    if failed:
        raise all_in_one(failed)
    return results


def check_points(ctx: Context, points: Sequence[Point]) -> None:
    """Check all configurations.

    Raises:
        LiptError: the first problem, with its point.
    """
    silent = replace(ctx, reporter=Reporter(io.StringIO()))
    for point in points:
        try:
            check_comparison(replace(silent, config=point.config))
        except LiptError as error:
            raise type(error)(f"{point}: {error.message}", error.remedy) from error


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A stage that a sweep would run."""

    stage: str
    config: Config
    """The configuration that needs it first."""
    longer: bool = False
    """Whether it trains longer than the configuration says: as many FLOPs more as its choice takes."""


def missing_stages(ctx: Context, points: Sequence[Point]) -> dict[str, Missing]:
    """The stages that a sweep would run, by address.

    As long as the cost of a choice is unknown, so is the address of the longer random training. It is then counted for
    each choice, although choices of equal cost share it. After a race, other winners need further trainings.
    """
    missing: dict[str, Missing] = {}
    silent = replace(ctx, reporter=Reporter(io.StringIO()), dry_run=True)
    for point in points:
        own = replace(silent, config=point.config)
        variants = {variant.name: variant for variant in check_comparison(own)}
        entries = {entry.name: entry for entry in run_variants(own, [*variants.values()])}
        for variant in variants.values():
            for outcome in entries[variant.name].outcomes:
                config = outcome.config
                if outcome.race:  # an outcome's configuration is that of the winner
                    config = override(own.config, variant.changes | {"seed": config.seed})
                for artifact in outcome.artifacts():
                    if not artifact.is_finished:
                        missing.setdefault(artifact.ref, Missing(stage=artifact.stage, config=config))
        if LONGER not in entries:
            continue
        known = {outcome.config.seed for outcome in entries[LONGER].outcomes}
        for chosen in (each for each in entries["lipt"].outcomes if each.config.seed not in known):
            seed = {"seed": chosen.config.seed}
            whole = override(own.config, seed)  # with its race
            config = override(own.config, variants[LONGER].changes | seed)
            subset = select(replace(own, config=config), chosen.prepared.dataset, [])
            if subset.find() is None:
                missing.setdefault(subset.ref, Missing(stage="select", config=whole))
            for stage in ("train", "evaluate"):
                longer = Missing(stage=stage, config=whole, longer=stage == "train")
                missing.setdefault(f"{stage}/{LONGER} {chosen.trained.model.key}", longer)
    return missing
