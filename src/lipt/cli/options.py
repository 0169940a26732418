"""Options and context that several verbs share."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lipt.cli.suggestions import settings
from lipt.cli.verbose import is_quiet, is_verbose
from lipt.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from lipt.progress import Reporter
    from lipt.runtime.context import Context

F = TypeVar("F", bound=Callable[..., Any])


class Amount(click.FloatRange):
    """A finite number: `nan` would pass every comparison with a bound.

    Args:
        unit: which the number is given in, for messages.
    """

    def __init__(self, *, unit: str = "", **bounds: Any) -> None:
        super().__init__(**bounds)
        self.name = f"number of {unit}" if unit else "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def set_option(function: F) -> F:
    """--set."""
    text = "Override a setting, such as select.fraction=0.05; repeatable."
    return click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help=text, shell_complete=settings)(
        function
    )


def config_options(function: F) -> F:
    """CONFIG and --set."""
    return click.argument("config_path", metavar="CONFIG", type=click.Path(readable=False))(set_option(function))


def output_option(function: F) -> F:
    """-o text|json."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Format of stdout.",
    )(function)


def dry_run_option(shows: str) -> Callable[[F], F]:
    """--dry-run; `shows` ends the sentence "Validate, and …"."""
    return click.option("--dry-run", is_flag=True, help=f"Validate, and {shows}; run nothing.")


#: What the dry run of a command with many stages does.
PREDICTS = "predict how long the stages take on this machine"


def check_plan_as_text(dry_run: bool, output: str) -> None:
    """
    Raises:
        UsageError: a dry run lists its stages on stderr; there is no JSON.
    """
    if dry_run and output == "json":
        raise UsageError("--dry-run lists the stages as text", "remove -o json, or --dry-run")


def parse_pairs(
    option: str,
    pairs: tuple[str, ...],
    known: Collection[str] | None = None,
    of: str = "the pipeline",
    *,
    once: bool = False,
) -> dict[str, str]:
    """The values of a repeatable option such as `-p NAME=VALUE`, by name.

    Args:
        known: the valid names; None: the caller checks them.
        of: the owner of the parameters, for messages.
        once: refuse a name that is given twice; False: the last value counts.

    Raises:
        UsageError: a value is not of that form, or its name is not known, or given twice.
    """
    given = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if known is not None and name not in known:
            raise UsageError(f"{option} {text}: not a parameter of {of}", did_you_mean(name, known))
        if not (name and equals):
            raise UsageError(f"{option} {text}: not of the form NAME=VALUE", f"{option} {name or 'NAME'}=VALUE")
        if once and name in given:
            raise UsageError(f"{option} {name} is given twice", "give it once")
        given[name] = value
    return given


def check_target(option: str, target: str, inputs: Iterable[str]) -> None:
    """
    Raises:
        UsageError: the target is empty, a folder, or one of the inputs, perhaps under another name.
    """
    if not target or os.path.isdir(target.removeprefix("file://")):
        raise UsageError(f"{option} '{target}' is no file", f"name a file for {option}")
    path = target.removeprefix("file://")
    for each in inputs:
        if os.path.exists(path) and os.path.exists(each) and os.path.samefile(path, each):
            raise UsageError(
                f"{option} {target} is {each}, which this command reads", f"name another file for {option}"
            )


def refuse_seed(overrides: Iterable[str]) -> None:
    """
    Raises:
        UsageError: --set seed, of a command that runs the seeds of `compare.seeds`.
    """
    for text in overrides:
        name, _, value = text.partition("=")
        if name.strip() == "seed":
            raise UsageError(
                "--set seed has no effect here: each row runs with the seeds of compare.seeds",
                f"--set 'compare.seeds=[{value.strip() or 0}]'",
            )


@contextmanager
def open_reporter() -> Iterator[Reporter]:
    """The reporter of a verb; always releases the terminal."""
    from lipt.progress import make_reporter

    with closing(make_reporter(quiet=is_quiet(), verbose=is_verbose())) as reporter:
        yield reporter


@contextmanager
def open_context(config_path: str, overrides: tuple[str, ...], *, dry_run: bool = False) -> Iterator[Context]:
    """Configuration, workspace and reporter of a verb."""
    from lipt.config import load_config
    from lipt.runtime.context import Context

    config = load_config(config_path, list(overrides))
    with open_reporter() as reporter:
        yield Context.of(config, reporter, dry_run=dry_run)


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1))
