"""`lipt ls` and `lipt gc`: list the runs of a workspace, and remove unused artifacts."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from lipt.adapters.store.file import FileStore
from lipt.cli.options import Amount, output_option, print_json
from lipt.cli.verbose import complain, is_verbose
from lipt.config import Config
from lipt.errors import RunError, UsageError
from lipt.flow.listing import Run, list_runs
from lipt.flow.runs import DAY_S, Unused, list_running, list_unused, remove, sizes_of
from lipt.report.numbers import DASH, format_bytes, format_count, format_percent, format_seconds
from lipt.runtime.workspace import Workspace

_DEFAULT = Config.model_fields["workspace"].default
#: What to do in a workspace that holds artifacts, but no finished run.
_BEGUN = "if one is going on, wait until it has ended; else repeat the command that began it, such as lipt run CONFIG"


@click.command()
@click.argument("workspace", default=_DEFAULT)
@output_option
def ls(workspace: str, output: str) -> None:
    """List the finished runs and sweeps of WORKSPACE (default: runs): name, date, artifacts, test accuracy, size.

    Below a run are the settings in which it differs from most runs of its name. Runs share artifacts, so the sizes add
    up to more than the workspace holds.
    """
    place = _existing(workspace)
    runs, unread = list_runs(place)
    for error in unread:
        complain(f"lipt: not listed: {error}")
    if output == "json":
        print_json([asdict(run) for run in runs])
        return
    if not runs:
        if not unread:
            begun = bool(sizes_of(place.store.sizes()))
            complain(f"lipt: {workspace} has no finished run\n  -> {_BEGUN if begun else 'lipt run CONFIG'}")
        return
    lines = [("run", "date (UTC)", "artifacts", "accuracy", "size"), *map(_cells, runs)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for (name, *rest), run in zip(lines, (None, *runs), strict=True):
        cells = [f"{text:>{width}}" for text, width in zip(rest, widths[1:], strict=True)]
        click.echo("  ".join([f"{name:<{widths[0]}}", *cells]))
        if run and run.differs:
            click.echo(_shortened(f"  {', '.join(f'{key}={value}' for key, value in run.differs.items())}"))


def _cells(run: Run) -> tuple[str, ...]:
    """The cells of a line of `lipt ls`."""
    name = f"{run.run} (sweeps, {format_count(run.points, 'finished point')})" if run.points else run.run
    created = run.created[:16].replace("T", " ") or DASH
    return name, created, str(run.stages), format_percent(run.accuracy), format_bytes(run.num_bytes)


def _shortened(line: str) -> str:
    """The part of a line that fits the terminal; all of it with -v, and for a pipe."""
    width = shutil.get_terminal_size().columns
    fits = is_verbose() or not sys.stdout.isatty() or len(line) <= width
    return line if fits else f"{line[: width - 1]}…"


@click.command()
@click.argument("workspace", default=_DEFAULT)
@click.option(
    "--days",
    type=Amount(min=0, unit="days"),
    metavar="DAYS",
    default=7,
    show_default=True,
    help="Keep artifacts that are younger, and what they were made from.",
)
@click.option("--dry-run", is_flag=True, help="List them; remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def gc(workspace: str, days: float, dry_run: bool, yes: bool, output: str) -> None:
    """List the artifacts that no report and no sweep of WORKSPACE (default: runs) refers to, ask, and remove them.

    A run writes down what it needs when it ends, a sweep after each point. So `gc` removes nothing while a run or a
    sweep goes on in WORKSPACE. Start none there while it removes.

    The artifacts of a stopped run, its last checkpoint among them, are listed once they, and all that was made from
    them, are older than --days. A run on a cluster keeps what it needs to continue until it has ended, for 30 days at
    most.

    To give up a run or a sweep, first delete its folder in WORKSPACE/reports or its files in WORKSPACE/sweeps. To give
    up the last one, delete WORKSPACE.

    A file that a killed process left half written (.lipt-tmp-*) is removed, too, once it is a day old.
    """
    if output == "json" and not (yes or dry_run):
        raise UsageError("-o json asks no question", "add --yes, or --dry-run")
    place, unused = _existing(workspace), list[Unused]()
    files = place.store if isinstance(place.store, FileStore) else None
    leftovers = files.leftovers(older_s=DAY_S) if files else {}
    try:
        for run in list_running(place):
            what = f"what it goes on from stays; if it has failed, delete {place.store.uri}/{run.key}"
            ago = f"{run.days:.1f} days" if run.days >= 1 else format_seconds(DAY_S * run.days)
            complain(f"lipt: a run on a cluster that began {ago} ago has not ended: {what}")
        unused = list_unused(place, days=days)
    except RunError as error:
        if not leftovers:
            raise
        complain(f"lipt: artifacts stay: {error}")
    lines = [
        f"{each.ref}  {format_bytes(each.num_bytes)}  {format_count(round(each.days), 'day')} old"
        + ("" if each.finished else "  unfinished")
        for each in unused
    ] + [f"{path}  {format_bytes(num_bytes)}  half written" for path, num_bytes in leftovers.items()]
    if lines and output == "text":
        click.echo("\n".join(lines))
    total = _total(unused, leftovers)
    removed = bool(unused or leftovers) and not dry_run and (yes or _confirmed(f"Remove {total}?"))
    if removed:
        if unused and not yes:  # a run may have begun to use them while the question was open
            shown = {each.ref for each in unused}
            unused = [each for each in list_unused(place, days=days) if each.ref in shown]
            total = _total(unused, leftovers)
        remove(place, unused)
        if files:
            for path in leftovers:
                files.remove_leftover(path)
    if output == "json":
        print_json({"removed": removed, "artifacts": [asdict(each) for each in unused], "leftovers": leftovers})
    else:
        old = f" that is {days:g} days old or older" if days else ""
        nothing = f"{total}, nothing removed" if lines else f"nothing to remove{old}"
        click.echo(f"removed {total}" if removed else nothing)


def _confirmed(question: str) -> bool:
    """
    Raises:
        UsageError: nobody can answer.
    """
    try:
        return click.confirm(question, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):  # and not Ctrl-C
            raise UsageError("no answer; nothing was removed", "add --yes, or --dry-run") from None
        raise


def _total(unused: Sequence[Unused], leftovers: Mapping[str, int]) -> str:
    """Number and size of what can be removed."""
    total = f"{format_count(len(unused), 'artifact')}, {format_bytes(sum(each.num_bytes for each in unused))}"
    if leftovers:
        total += f", and {format_count(len(leftovers), 'half-written file')}, {format_bytes(sum(leftovers.values()))}"
    return total


def _existing(workspace: str) -> Workspace:
    """
    Raises:
        UsageError: the folder does not exist. A bucket always has every prefix.
    """
    found = Workspace(workspace)
    if isinstance(found.store, FileStore) and not os.path.isdir(found.store.root):
        if _is_handle(workspace):
            raise UsageError(
                f"{workspace} is the handle of a run, not its workspace",
                "name the workspace, such as s3://BUCKET/NAME (docs/howto/cluster-rights.md, Secrets, says how to "
                f"reach it); `lipt status {workspace}` shows the run",
            )
        raise UsageError(
            f"there is no folder {workspace}", "name the `workspace` of a run, or make one: lipt run CONFIG"
        )
    return found


def _is_handle(text: str) -> bool:
    from lipt.adapters.cluster.runs import Handle  # not needed otherwise, and slow to import

    try:
        Handle.parse(text)
    except UsageError:
        return False
    return True
