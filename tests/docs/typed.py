"""Commands outside shell blocks: those within sentences, and the examples in the help of each verb."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from lipt.cli import cli
from lipt.errors import UsageError
from tests.docs.pages import ROOT, inline_commands
from tests.docs.places import is_local

#: The page that shows the help of every verb.
HELP = "docs/reference/commands.md"
#: A line of help that is a command, with the lines that go on with it: indented ones, or to the end of the help.
_EXAMPLE = re.compile(
    r"^  (?:(?:bash|zsh|fish) +)?(lipt .+(?:\n {4,}\S.*)*)$|Example: (lipt [^`]+)\n```$", re.MULTILINE
)
#: What a reader fills in, where it depends on the verb.
_FILLED = {"init": {"EXAMPLE": "quickstart", "NAME": "quickstart"}, "sweep": {"FILE": "sweep.yaml"}}
#: Sweeps of all nine tables: minutes on digits. A page's shell block runs one of them.
_LONG = "lipt reproduce all --set"


def typed(page: str) -> list[tuple[str, ...]]:
    """The commands of a page that a reader can type without a cluster; `lipt run` alone names a verb."""
    lines = [line for where, line in sorted(set(inline_commands())) if where == page and not line.startswith(_LONG)]
    if page == HELP:
        lines += dict.fromkeys(_examples())
    return [words for line in lines if (words := _filled(line)) and is_local(words) and _parses(words[1:])]


def _examples() -> Iterator[str]:
    for found in _EXAMPLE.finditer((ROOT / HELP).read_text(encoding="utf-8")):
        yield (found[1] or found[2]).replace("\\\n", " ").partition(" >")[0]


def _filled(line: str) -> tuple[str, ...]:
    """The words; empty if some are left out."""
    words = shlex.split(line)
    values = _FILLED.get(words[1], {})
    return () if "…" in line else tuple(values.get(word, word) for word in words)


def _parses(words: tuple[str, ...]) -> bool:
    """Whether the command line takes it: no argument is missing."""
    command: click.Command = cli
    context, rest = click.Context(cli, **cli.context_settings), list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest.pop(0))
        assert found is not None, words
        command, context = found, click.Context(found, parent=context)
    if isinstance(command, click.Group) or words == ("select",):  # it needs one of its options
        return False
    try:
        command.make_context(command.name, rest, parent=context)
    except (click.UsageError, UsageError):
        return False
    except click.exceptions.Exit:  # --help
        return True
    return True
