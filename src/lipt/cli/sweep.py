"""`lipt sweep`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lipt.adapters.store import Store
from lipt.adapters.store.file import FileStore
from lipt.cli.missing_stages import product, show_missing
from lipt.cli.options import (
    PREDICTS,
    check_target,
    dry_run_option,
    open_reporter,
    output_option,
    print_json,
    refuse_seed,
    set_option,
)
from lipt.cli.submission import Place, check_submittable, pipeline_parameters, place_option, warn
from lipt.cli.verbose import complain, is_verbose
from lipt.config import Config, Sweep, load_sweep
from lipt.config.sweep import name_of
from lipt.errors import FailedPointError, IntegrityError, RunError, UsageError
from lipt.report.sweep import LEGEND, Result, read_lines, table, table_texts, to_lines
from lipt.report.sweep_verdict import sweep_verdict
from lipt.runtime.context import Context

if TYPE_CHECKING:
    from lipt.pods.sweep import SweepRuns


@click.command()
@click.argument("sweep_path", metavar="FILE", type=click.Path(readable=False))
@set_option
@place_option
@click.option("--results", metavar="FILE.jsonl", type=click.Path(), help="Default: named as FILE, in this folder.")
@output_option
@dry_run_option(PREDICTS)
def sweep(
    sweep_path: str, overrides: tuple[str, ...], place: Place | None, results: str | None, output: str, dry_run: bool
) -> None:
    """Run a comparison at each point of a grid over settings.

    FILE contains `base` (settings, or the path of a configuration) and `grid` (for each setting a list of values).
    --set changes `base`. After an interruption, run the same command again to continue.

    With --engine, each row of each point is a run on a cluster. The command starts the runs that are missing, waits for
    them and collects the results. If you stop it, the runs in progress go on.
    """
    refuse_seed(overrides)
    found = load_sweep(sweep_path, overrides)
    target = f"{Path(sweep_path).stem}.jsonl" if results is None else results
    check_target("--results", target, found.files)
    path = Path(target)
    if dry_run:
        show_plan(found, output, place)
        return
    done = run_and_save(found, path, place)
    if output == "json":
        print_json(as_json(done.results))
    elif done.results:
        _print(done, path)
    if done.failed:
        sys.stdout.flush()  # before the message
        raise done.failed


def _print(done: Done, path: Path) -> None:
    """Print the table of the finished points, the verdict and the file of the results."""
    from lipt.report.terminal import print_sweep, print_text

    if sys.stdout.isatty():
        print_sweep(table_texts(done.results), whole=is_verbose())
    else:
        click.echo(f"{table(done.results)}\n{LEGEND}")
    print_text(f"\n{sweep_verdict(done.results)}")
    if done.saved:
        click.echo(f"\nresults: {path}")


@dataclass(frozen=True)
class Done:
    """What a sweep has made."""

    results: Sequence[Result]
    """Of the points that are finished."""
    saved: bool
    """Whether the file has these results. If not, it keeps earlier ones."""
    failed: FailedPointError | None = None
    """Names the points that failed."""


def run_and_save(found: Sweep, path: Path, place: Place | None) -> Done:
    """Run a sweep; its results are in the file after each point, unless earlier results of it would be lost.

    Args:
        place: where runs start on a cluster; None: run on this machine.

    Raises:
        UsageError: the file holds something else.
        RunError: the file cannot be read or written.
    """
    finished, stale = list[Result](), False

    def save(results: Sequence[Result]) -> None:
        nonlocal finished, stale
        try:  # read anew each time: the same sweep may go on in another process, too
            earlier = _names_in(path, found)
        except UsageError:  # another sweep has taken the file, after this one had begun
            earlier = set()
        finished, stale = list(results), len(results) < len(found.points) and not earlier <= _names(results)
        if not stale:
            store.write(path.name, to_lines(results).encode(), kind="other")

    new = not os.path.exists(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()  # fails now, and not after the first point
        _names_in(path, found)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}", "name another file with --results") from None
    store = FileStore(path.parent)  # it writes atomically, also beside another sweep with the same file
    try:
        if place:
            with runs_of(found, place) as runs:
                return Done(runs.run(save), saved=True)
        from lipt.flow.sweep import run_sweep

        with open_reporter() as reporter:
            return Done(run_sweep(Context.of(found.base, reporter), found.points, save), saved=True)
    except RunError as error:
        if stale:
            complain(f"lipt: {path} keeps its earlier results until all of their points are finished again")
        if isinstance(error, FailedPointError):
            return Done(finished, saved=not stale, failed=error)
        raise
    finally:
        if new:
            _remove_if_empty(path)


def _remove_if_empty(path: Path) -> None:
    """Remove a file of results that got none: its sweep ended before its first point."""
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


def _names_in(path: Path, found: Sweep) -> set[str]:
    """The points of this sweep whose results are in the file; none without a file.

    Raises:
        UsageError: it holds something else, which would be lost.
        RunError: it cannot be read.
    """
    remedy = "name another file with --results, or move this one"
    try:
        names = _names(read_lines(path.read_text(encoding="utf-8"), str(path)))
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}", "name another file with --results") from None
    except (UnicodeDecodeError, IntegrityError):
        raise UsageError(f"{path} is no file of a sweep's results", remedy) from None
    if others := names - {name_of(point.values) for point in found.points}:
        raise UsageError(f"{path} has results of other points, such as {min(others)}", remedy)
    return names


def _names(results: Sequence[Result]) -> set[str]:
    return {name_of(result.point) for result in results}


@contextmanager
def runs_of(found: Sweep, place: Place) -> Iterator[SweepRuns]:
    """The runs of a sweep on a cluster; always releases the terminal.

    Raises:
        LiptError: a point cannot run there; names it.
    """
    from lipt.adapters.cluster.api import Cluster
    from lipt.adapters.cluster.runs import engine_client
    from lipt.adapters.cluster.runs_store import open_store_of_runs
    from lipt.pods.sweep import SweepRuns

    unknown = dict.fromkeys(check_submittable(found.base))  # first, because it needs no cluster
    cluster = Cluster()
    client = engine_client(place.engine, cluster, place.namespace)
    known = client.parameters()

    def checked(config: Config) -> dict[str, Any]:
        unknown.update(dict.fromkeys(check_submittable(config)))
        return pipeline_parameters(config, known, place.pairs)

    parameters = known | checked(found.base)
    warn(cluster, place.engine, place.namespace, parameters)

    def opened() -> AbstractContextManager[Store]:
        return open_store_of_runs(cluster, place.namespace, str(parameters["s3"]), found.base.workspace)

    with open_reporter() as reporter:
        runs = SweepRuns(
            found.points,
            client=client,
            place=str(place),
            parameters=checked,
            opened=opened,
            say=reporter.say,
            at_once=place.at_once,
        )
        for what in unknown:
            reporter.alert(f"not checked: {what}")
        yield runs


def as_json(results: Sequence[Result]) -> list[dict[str, object]]:
    """The points, each with its rows and its gains over random and over random that is trained longer."""
    documents = []
    for result in results:
        gains = {"gain": result.gain, "gain_over_longer": result.gain_over_longer}
        told = {name: asdict(gain) | {"level": gain.level} for name, gain in gains.items() if gain}
        documents.append(result.model_dump(mode="json") | told)
    return documents


def show_plan(found: Sweep, output: str, place: Place | None) -> None:
    """How many stages a sweep would run, and how long they take; on a cluster, how many runs it would start."""
    rows, seeds = len(found.points[0].config.compare.variants), len(found.base.compare.seeds)
    sizes = {"points": len(found.points), "rows": rows, "seeds": seeds}
    if place is None:
        from lipt.flow.sweep import check_points

        with open_reporter() as reporter:
            ctx = Context.of(found.base, reporter)
            check_points(ctx, found.points)
            show_missing(ctx, found.points, sizes, output)
        return
    with runs_of(found, place) as runs, runs.opened() as store:
        runs.look(store)
        total, finished = runs.cells.counts()
    if output == "json":
        print_json(sizes | {"runs": total, "finished": finished})
    else:
        click.echo(f"{product(sizes)}: {total:,} runs, of which {finished:,} are finished")
