"""`lipt sweep`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from lipt.cli.options import dry_run_option, output_option, print_json, set_option
from lipt.cli.verbose import is_quiet
from lipt.config import Sweep, load_sweep
from lipt.errors import RunError, UsageError
from lipt.progress import make_reporter
from lipt.report.numbers import format_seconds
from lipt.report.sweep import Result, table, to_lines
from lipt.runtime.context import Context


@click.command()
@click.argument("sweep_path", metavar="FILE", type=click.Path())
@set_option
@click.option("--results", metavar="FILE.jsonl", type=click.Path(), help="Default: named as FILE, in this folder.")
@output_option
@dry_run_option
def sweep(sweep_path: str, overrides: tuple[str, ...], results: str | None, output: str, dry_run: bool) -> None:
    """Run a comparison at each point of a grid over settings.

    FILE contains `base`, the settings or the path of a configuration, and `grid`: for each setting a list of values.
    --set changes `base`. After an interruption, run the same command again to continue.
    """
    path = Path(results or f"{Path(sweep_path).stem}.jsonl")
    found = load_sweep(sweep_path, overrides)
    if dry_run:
        show_plan(found, output)
        return
    made = run_and_save(found, path)
    if output == "json":
        print_json(as_json(made))
    else:
        click.echo(f"{table(made)}\n{path}")


@contextmanager
def context_of(found: Sweep) -> Iterator[Context]:
    """The context of a sweep's base; always releases the terminal."""
    reporter = make_reporter(quiet=is_quiet())
    try:
        yield Context.of(found.base, reporter)
    finally:
        reporter.close()


def run_and_save(found: Sweep, path: Path) -> list[Result]:
    """Run a sweep; its results are in the file after each point.

    Raises:
        RunError: the file cannot be written.
    """
    from lipt.flow.sweep import run_sweep

    def save(results: Sequence[Result]) -> None:
        unfinished = path.with_name(f"{path.name}.part")
        unfinished.write_text(to_lines(results), encoding="utf-8")
        unfinished.replace(path)

    with context_of(found) as ctx:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a").close()  # fails now, and not after the first point
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}", "choose another file") from None
        return run_sweep(ctx, found.points, save)


def as_json(results: Sequence[Result]) -> list[dict[str, object]]:
    """The points, each with its rows and its gains over random and over random that is trained longer."""
    documents = []
    for result in results:
        gains = {"gain": result.gain, "gain_over_longer": result.gain_over_longer}
        told = {name: asdict(gain) | {"level": gain.level} for name, gain in gains.items() if gain}
        documents.append(result.model_dump(mode="json") | told)
    return documents


def show_plan(found: Sweep, output: str) -> None:
    """How many stages a sweep would run, and how long they take."""
    from lipt.flow.sweep import check_points, missing_stages
    from lipt.forecast.sweep import forecast_sweep

    with context_of(found) as ctx:
        check_points(ctx, found.points)
        missing = missing_stages(ctx, found.points)
        stages, unknown = Counter(each.stage for each in missing.values()), ""
        try:
            seconds = forecast_sweep(ctx, missing)
        except UsageError as error:  # the data set is not ingested
            seconds, unknown = {}, error.message
    seeds, rows = len(found.base.compare.seeds), len(found.points[0].config.compare.variants)
    if output == "json":
        document = {"points": len(found.points), "rows": rows, "seeds": seeds, "stages": stages}
        print_json(document | {"seconds": seconds, "wall_s": sum(seconds.values()) if seconds else None})
        return
    click.echo(f"{len(found.points)} points x {rows} rows x {seeds} seeds")
    for stage, count in stages.items():
        click.echo(f"{stage:<12} {count:>6,}  {format_seconds(seconds.get(stage))}".rstrip())
    if unknown:
        click.echo(f"{unknown}. The time can be predicted once a run has ingested it")
    else:
        click.echo(f"{'all':<12} {sum(stages.values()):>6,}  {format_seconds(sum(seconds.values()))}")
