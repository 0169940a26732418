"""`lipt sweep`: a comparison at each point of a grid. Points share every stage with equal settings and inputs."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace

from lipt.config import Config, Point
from lipt.errors import LiptError
from lipt.flow.compare import run_variants
from lipt.flow.report import all_artifacts, rows_of
from lipt.flow.runs import note_point
from lipt.flow.validation import check_comparison
from lipt.progress import Reporter
from lipt.report.sweep import Result
from lipt.runtime.context import Context


def run_sweep(ctx: Context, points: Sequence[Point], save: Callable[[Sequence[Result]], object]) -> list[Result]:
    """Run the comparison of every point.

    Args:
        save: is called with all results so far, after each point.

    Raises:
        LiptError: names the point; before the first run, if a configuration is invalid.
    """
    check_points(ctx, points)
    results: list[Result] = []
    for number, point in enumerate(points, start=1):
        ctx.reporter.say(f"== point {number} of {len(points)}: {point}")
        own = replace(ctx, config=point.config)
        entries = run_variants(own, check_comparison(own))
        results.append(Result(point=dict(point.values), rows=rows_of(own, entries)))
        note_point(own.workspace, own.config, all_artifacts(entries))
        save(results)
    return results


def check_points(ctx: Context, points: Sequence[Point]) -> None:
    """Check all configurations.

    Raises:
        LiptError: the first problem, with its point.
    """
    for point in points:
        try:
            check_comparison(replace(ctx, config=point.config))
        except LiptError as error:
            raise type(error)(f"{point}: {error.message}", error.remedy) from error


def missing_stages(ctx: Context, points: Sequence[Point]) -> dict[str, tuple[str, Config]]:
    """The stages that a sweep would run: address -> (stage, the configuration that needs it first)."""
    missing: dict[str, tuple[str, Config]] = {}
    silent = replace(ctx, reporter=Reporter(io.StringIO()), dry_run=True)
    for point in points:
        own = replace(silent, config=point.config)
        for entry in run_variants(own, check_comparison(own)):
            for outcome in entry.outcomes:
                for artifact in outcome.artifacts():
                    finished = artifact.files or artifact.summary
                    if not finished and artifact.ref not in missing:
                        missing[artifact.ref] = artifact.stage, outcome.config
    return missing
