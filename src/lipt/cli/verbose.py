"""`-v` and `-q`: more output, and less."""

import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import TypeVar

import click

from lipt.errors import AGAIN

C = TypeVar("C", bound=click.Command)


@dataclass
class GlobalOptions:
    """Held by the context of the command line, so that it outlives the verb."""

    verbose: bool = False
    quiet: bool = False
    when_stopped: str = AGAIN
    """What to do when the command was stopped by a signal."""


def is_verbose() -> bool:
    """Whether -v was given, before or after the verb."""
    return _given().verbose


def set_when_stopped(remedy: str) -> None:
    """From now on, this is what to do when a signal stops the command."""
    _given().when_stopped = remedy


def is_quiet() -> bool:
    """Whether -q was given, before or after the verb."""
    return _given().quiet


def _given() -> GlobalOptions:
    context = click.get_current_context(silent=True)
    return (context.find_object(GlobalOptions) if context else None) or GlobalOptions()


def global_options(command: C) -> C:
    """-v and -q, on a command and on the commands below it."""
    if not any(parameter.name == "verbose" for parameter in command.params):
        text = "Show more: every column, requests, tracebacks of errors."
        option = click.Option(
            ["-v", "--verbose"], is_flag=True, expose_value=False, is_eager=True, callback=_note, help=text
        )
        command.params.append(option)
        text = "Show no progress."
        command.params.append(
            click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, is_eager=True, callback=_hush, help=text)
        )
    if isinstance(command, click.Group):
        for below in command.commands.values():
            global_options(below)
    return command


def _note(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not (options := context.ensure_object(GlobalOptions)).verbose:
        import logging

        options.verbose = True
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s: %(message)s")
        logging.getLogger("urllib3").setLevel(logging.DEBUG)  # requests to stores and clusters; no headers


def _hush(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(GlobalOptions).quiet = True


def complain(text: str) -> None:
    """Write lines on stderr. A terminal breaks them between words."""
    lines = text.splitlines()
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = [_filled(line, width) for line in lines]
    click.echo("\n".join(lines), err=True)


def _filled(line: str, width: int) -> str:
    indent = "     " if line.startswith("  -> ") else ""
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def print_traceback(error: BaseException) -> None:
    """Print the traceback with all causes, including those that the message omits."""
    import traceback

    cause: BaseException | None = error
    while cause is not None:
        cause.__suppress_context__ = False
        cause = cause.__cause__ or cause.__context__
    traceback.print_exception(error)
