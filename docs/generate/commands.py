"""The page of commands: what `lipt VERB --help` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from lipt.cli import cli

PAGE = Path(__file__).parents[1] / "reference/commands.md"
_HEAD = """# Commands

This page lists every command and its options: each section is the output of `lipt VERB --help`. (`make reference`
writes this page.)
"""
_COLUMNS = 80


def text() -> str:
    """The page: one section per verb, in the order of `lipt --help`."""
    return "\n".join([_HEAD, *(_section(names, context) for names, context in _commands(cli, ("lipt",), None))])


def _commands(
    command: click.Command, names: tuple[str, ...], parent: click.Context | None
) -> Iterator[tuple[tuple[str, ...], click.Context]]:
    """The command and all below it, each with its names."""
    settings = command.context_settings  # so that -h is known, too
    context = click.Context(command, info_name=names[-1], parent=parent, max_content_width=_COLUMNS, **settings)
    yield names, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(child, (*names, name), context)


def _section(names: tuple[str, ...], context: click.Context) -> str:
    return f"## {' '.join(names)}\n\n```text\n{context.get_help()}\n```\n"
