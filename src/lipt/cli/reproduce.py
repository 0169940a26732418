"""`lipt reproduce`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from lipt.cli.options import PREDICTS, dry_run_option, parse_pairs, refuse_seed, set_option
from lipt.cli.submission import Place, place_option
from lipt.cli.sweep import run_and_save, show_plan
from lipt.cli.verbose import complain, is_verbose
from lipt.errors import FailedPointError, LiptError, RunError, UsageError, all_in_one
from lipt.flow.paper import NAMES, PaperSweep, Profile


@click.command()
@click.argument("name", type=click.Choice([*NAMES, "all"]))
@click.option(
    "--profile",
    type=click.Choice(["cpu", "full"]),
    default="cpu",
    show_default=True,
    help="cpu: a small network on digits, minutes on two cores. full: the paper's protocol, for GPUs.",
)
@set_option
@place_option
@click.option(
    "--only",
    multiple=True,
    metavar="AXIS=VALUE",
    help="Only points with this value, such as select.fraction=0.1; repeatable. Their files carry it in their names.",
)
@click.option(
    "--results",
    default="paper",
    show_default=True,
    metavar="FOLDER",
    type=click.Path(),
    help="Folder for the .jsonl, .md and .svg files.",
)
@click.option("--draw", is_flag=True, help="Draw table and figure again from the results; run nothing.")
@dry_run_option(PREDICTS)
def reproduce(
    name: str,
    profile: Profile,
    overrides: tuple[str, ...],
    place: Place | None,
    only: tuple[str, ...],
    results: str,
    draw: bool,
    dry_run: bool,
) -> None:
    """Repeat a table or figure of the paper as a sweep. Beside our numbers stand the paper's, and those of random
    subsets.

    --set changes the base of the sweep. After an interruption, run the same command again to continue. With --engine,
    the runs start on a cluster, as with `lipt sweep`.
    """
    if draw and (dry_run or overrides or place):
        excluded = "--dry-run, --set and --engine"
        raise UsageError(f"--draw draws finished results; it excludes {excluded}", "remove them")
    if not results:
        raise UsageError("--results is empty", "name a folder; . is the current one")
    refuse_seed(overrides)
    wanted = parse_pairs("--only", only)
    paper_sweeps = {each: PaperSweep.load(each) for each in (NAMES if name == "all" else (name,))}
    # All of them are checked before the first runs.
    sweeps = {each: found.sweep(profile, overrides).only(wanted) for each, found in paper_sweeps.items()}
    failed = list[LiptError]()
    for each, sweep in sweeps.items():
        paper_sweep, path = paper_sweeps[each], Path(results) / f"{each}-{profile}{_part(wanted)}.jsonl"
        if dry_run:
            from lipt.report.terminal import print_text

            print_text(paper_sweep.title)
            show_plan(sweep, "text", place)
            continue
        done = None if draw else run_and_save(sweep, path, place)
        if done and (error := done.failed):  # the other tables do not need these points
            failed += [FailedPointError(f"{each}: {one.message}", one.remedy) for one in error.problems or [error]]
            if done.results and done.saved:
                named = [*(f"--only={axis}={value}" for axis, value in wanted.items()), f"--results={results}"]
                command = shlex.join(["lipt", "reproduce", each, f"--profile={profile}", *named, "--draw"])
                complain(f"lipt: {path} has the finished points of {each}; to draw them: {command}")
            continue
        _draw(paper_sweep, path)
    if failed:
        raise all_in_one(failed)


def _part(wanted: Mapping[str, str]) -> str:
    """What a part of a table adds to the names of its files: they must not replace those of the whole."""
    return "".join(re.sub(r"[^\w.]+", "-", f"-{axis}-{value}") for axis, value in wanted.items())


def _draw(paper_sweep: PaperSweep, path: Path) -> None:
    """Write table and figure beside the results; print the table and the place of both.

    Raises:
        RunError: there are no results, or the files cannot be written.
    """
    from lipt.report.sweep import claim_rows, read_lines, table_texts
    from lipt.report.sweep_figure import figure

    try:
        found = read_lines(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}", "run it first, without --draw") from None
    if not found:  # it was stopped before its first point
        raise RunError(f"{path} holds no results yet", "run it without --draw")
    page = paper_sweep.page(found)
    drawn = {".md": page, ".svg": figure(found, paper_sweep.number, over=paper_sweep.figure)}
    try:
        for suffix, text in drawn.items():
            path.with_suffix(suffix).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write beside {path}: {error.strerror}", "choose another folder") from None
    if sys.stdout.isatty():
        from lipt.report.terminal import print_sweep, print_text

        print_text(f"{paper_sweep.title}\n")
        claims = claim_rows(paper_sweep.claims, found)
        print_sweep(table_texts(found, paper_sweep.number), claims, whole=is_verbose())
    else:
        click.echo(page)
    click.echo("\n" + "\n".join(str(path.with_suffix(suffix)) for suffix in drawn))
