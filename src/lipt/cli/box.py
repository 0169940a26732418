"""`lipt box`: the command of all pods under Argo, and of worker pods under every engine."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import click

from lipt.cli.options import parse_pairs
from lipt.errors import UsageError
from lipt.pipeline import SPREAD
from lipt.version import __version__

#: In examples.
_SPEC = "s3://lipt/photos/specs/KEY.json"
#: The last box writes the verdict here; the engine shows it.
_VERDICT = "/tmp/verdict"


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside the block, what anybody writes to stdout goes to stderr, what child processes write too.

    Argo takes all of stdout for the result of a box, and a model of the user's own may print.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _example(command: str) -> str:
    """The end of a help. A shell takes the example as it is shown on 80 columns."""
    return f"\b\nExample: lipt box {command}"


@click.group()
def box() -> None:
    """Run one box of the pipeline; SPEC is the address that dispatch prints. A box prints only its result."""


@box.command(
    short_help="Validate, ingest, train theta_*, draw the shards.",
    epilog=_example(f'dispatch -p image=lipt:{__version__} -p config="$(cat photos.yaml)"'),
)
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter of the pipeline.")
def dispatch(parameters: tuple[str, ...]) -> None:
    """Validate the settings, ingest if necessary, train theta_* and draw the shards. Prints the spec's address."""
    from lipt.pods.boxes import dispatch_box
    from lipt.pods.spec import PARAMETERS, configure

    given = parse_pairs("-p", parameters)
    config = configure(given.pop("config", ""), **{name: given.pop(name) for name in PARAMETERS if name in given})
    with _quiet():
        address = dispatch_box(config, engine="argo", **given)
    click.echo(address)


@box.command(epilog=_example(f"pretrain {_SPEC}"))
@click.argument("spec")
def pretrain(spec: str) -> None:
    """Train the jigsaws in worker pods. With GPUs each pod has a node to itself. Prints how many jigsaws arrived."""
    from lipt.pods.boxes import pretrain_box

    with _quiet():
        arrived, expected = pretrain_box(spec)
    click.echo(f"{arrived} of {expected}")


@box.command(epilog=_example(f"merge {_SPEC}"))
@click.argument("spec")
def merge(spec: str) -> None:
    """Merge the jigsaws that arrived. Prints the reference of theta_p, or nothing if there is no swarm."""
    from lipt.pods.boxes import merge_box

    with _quiet():
        theta = merge_box(spec)
    click.echo(theta.ref if theta else "")


@box.command(epilog=_example(f"select {_SPEC} --merged merge/KEY"))
@click.argument("spec")
@click.option("--merged", default="", metavar="REF", help="theta_p; empty if there is none.")
def select(spec: str, merged: str) -> None:
    """Score the candidates and select the subset. Prints the reference of the subset."""
    from lipt.pods.boxes import select_box

    with _quiet():
        subset = select_box(spec, merged.strip() or None)
    click.echo(subset.ref)


@box.command(
    short_help="Train and evaluate; write the report.",
    epilog=_example(f"train {_SPEC} \\\n    --merged merge/KEY --subset select/KEY"),
)
@click.argument("spec")
@click.option("--merged", default="", metavar="REF", help="theta_p; empty if there is none.")
@click.option("--subset", required=True, metavar="REF", help="The reference that select printed.")
def train(spec: str, merged: str, subset: str) -> None:
    """Train on the subset and on the baseline, evaluate both, write the report. Prints the report's location."""
    from lipt.pods.boxes import train_box

    with _quiet():
        finished = train_box(spec, merged.strip() or None, subset.strip())
    Path(_VERDICT).write_text(finished.markdown, encoding="utf-8")
    click.echo(finished.location)


@box.command(
    short_help="Do this pod's share of a fan-out.",
    epilog=_example(f"worker {_SPEC} pretrain \\\n    --items '[0, 1, 2, 3]' --of 2"),
)
@click.argument("spec")
@click.argument("stage", type=click.Choice(SPREAD))
@click.option("--items", required=True, metavar="JSON", help="Numbers of all work items, a list.")
@click.option("--of", "count", type=click.IntRange(min=1), required=True, help="Number of pods that share them.")
@click.option("--merged", default="", metavar="REF", help="theta_p, for score.")
def worker(spec: str, stage: str, items: str, count: int, merged: str) -> None:
    """Do this pod's share of a fan-out; JOB_COMPLETION_INDEX is the number of the pod."""
    from lipt.pods import workers

    try:
        numbers = [int(item) for item in json.loads(items)]
    except (TypeError, ValueError):
        raise UsageError("worker: --items is not a list of numbers", "an Indexed Job sets it") from None
    workers.worker(spec, stage, workers.share_of(numbers, _index(), count), merged or None)


@box.command(
    short_help="Take part in a training that pods share.",
    epilog=_example("join s3://lipt/photos/specs/KEY.json --of 2"),
)
@click.argument("request")
@click.option("--of", "count", type=click.IntRange(min=1), required=True, help="Number of pods.")
def join(request: str, count: int) -> None:
    """Take part in a training that several pods share; JOB_COMPLETION_INDEX is the number of the pod."""
    from lipt.pods import training

    training.join(request, index=_index(), count=count)


def _index() -> int:
    try:
        return int(os.environ["JOB_COMPLETION_INDEX"])
    except (KeyError, ValueError):
        raise UsageError("JOB_COMPLETION_INDEX is not a number", "an Indexed Job sets it") from None
