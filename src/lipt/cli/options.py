"""Options that several verbs share, and how a verb gets its context."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from lipt.stages.context import Context

F = TypeVar("F", bound=Callable[..., Any])


def set_option(function: F) -> F:
    """--set."""
    text = "Override a setting; repeatable."
    return click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help=text)(function)


def config_options(function: F) -> F:
    """CONFIG and --set."""
    return click.argument("config_path", metavar="CONFIG", type=click.Path())(set_option(function))


def output_option(function: F) -> F:
    """-o text|json."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="What stdout carries.",
    )(function)


def dry_run_option(function: F) -> F:
    """--dry-run."""
    return click.option("--dry-run", is_flag=True, help="Validate and list the stages; run nothing.")(function)


@contextmanager
def open_context(config_path: str, overrides: tuple[str, ...], *, dry_run: bool = False) -> Iterator[Context]:
    """Configuration, workspace and reporter of a verb; gives the terminal back whatever happens."""
    from lipt.config import load_config
    from lipt.progress import make_reporter
    from lipt.stages.context import Context
    from lipt.stages.workspace import Workspace

    config = load_config(config_path, list(overrides))
    workspace, reporter = Workspace(config.workspace), make_reporter()
    try:
        yield Context(config=config, workspace=workspace, reporter=reporter, dry_run=dry_run)
    finally:
        reporter.close()


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1))
