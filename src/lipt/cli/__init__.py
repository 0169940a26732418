"""The command line: one file per group of verbs.

`lipt --help` must be fast, so only click is imported before a verb runs. stdout carries only the result; everything
else goes to stderr.
"""

import importlib
import io
import os
import re
import signal
import sys

import click

from lipt.cli.verbose import GlobalOptions, complain, global_options, print_traceback
from lipt.cli.verbs import VERBS
from lipt.errors import (
    LiptError,
    RunError,
    Stop,
    Terminated,
    UnexpectedError,
    UsageError,
    did_you_mean,
    end_interrupted,
    end_terminated,
    of_missing_module,
    say_why,
    stop_on_sigterm,
)
from lipt.version import __version__

#: Where to begin, and how.
_BEGIN = [
    ("an example", "lipt init quickstart, then lipt run 01-quickstart.yaml"),
    ("your images", "lipt init your-folder"),
]


class _Verbs(click.Group):
    """Imports a verb's module only when that verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for verbs in VERBS.values() for name in verbs]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        known = {name: verb for verbs in VERBS.values() for name, verb in verbs.items()}
        if name not in known:
            raise UsageError(f"no command {name!r}", did_you_mean(name, known))
        verb = known[name]
        command: click.Command = getattr(importlib.import_module(f"lipt.cli.{verb.module}"), verb.attribute or name)
        command.epilog = f"\b\nExample: {verb.example}"
        return global_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, verbs in VERBS.items():
            with formatter.section(group):
                formatter.write_dl([(name, verb.text) for name, verb in verbs.items()])
        with formatter.section("Begin"):
            formatter.write_dl(_BEGIN)


@global_options
@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 run failed, 2 usage or configuration, 3 transient (try again), 130 interrupted, "
    "143 terminated.",
)
@click.version_option(__version__, prog_name="lipt")
def cli() -> None:
    """Train on a well-chosen part of the data."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point. An error that a user can fix becomes one message and a documented exit code.

    Any other exception is a bug: its traceback is shown, and the exit code is 1.
    """
    # torch reads this when it loads. Waiting threads spin briefly, then sleep. Endless spinning stalls a run on shared
    # cores; without spinning, small models are three times slower on free cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    _mend_streams()
    terminated, interrupted = stop_on_sigterm(), Stop(KeyboardInterrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores Ctrl-C
        interrupted.on(signal.SIGINT)
    options = GlobalOptions()
    try:
        try:
            _check_folder()
            cli.main(args=arguments, prog_name="lipt", standalone_mode=False, obj=options)
            sys.stdout.flush()
        except ModuleNotFoundError as error:
            raise of_missing_module(error) from None
    except LiptError as error:
        _end_if_stopped(error, terminated, interrupted, options)
        if options.verbose:
            print_traceback(error)
        if isinstance(error, UnexpectedError):
            click.echo(error.trace, err=True)
        complain(f"lipt: {error}")
        say_why(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.2: `lipt` alone
            error.show()
        else:
            complain(_in_our_form(error, sys.argv[1:] if arguments is None else arguments))
        sys.exit(error.exit_code if error.exit_code != 1 else 2)
    except (click.Abort, KeyboardInterrupt):
        end_interrupted(options.when_stopped)
    except Terminated:
        end_terminated(options.when_stopped)
    except Exception as error:
        _end_if_stopped(error, terminated, interrupted, options)
        if isinstance(error, OSError) and not error.filename and (lost := _lost_stdout()):
            if not isinstance(error, BrokenPipeError):  # nobody reads on, such as `head`: there is nothing to say
                complain(f"lipt: {lost}")
                say_why(lost)
            sys.exit(lost.exit_code)
        say_why(error)
        raise


def _mend_streams() -> None:
    """Open the null device in place of standard streams that the caller closed: Python has None there. A terminal whose
    encoding lacks a character shows a question mark."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _check_folder() -> None:
    """
    Raises:
        UsageError: somebody has deleted the current folder.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the current folder does not exist any more", "cd into another one") from None


def _lost_stdout() -> RunError | None:
    """The error if stdout cannot be written, as on a full disk. The interpreter then has nothing left to write."""
    try:
        print(flush=True)  # fails once more: what failed to be written is gone from the buffer
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return RunError(f"stdout: {error.strerror or error}", "send it to a place that can be written")
    return None


def _end_if_stopped(error: Exception, terminated: Stop, interrupted: Stop, options: GlobalOptions) -> None:
    """End as after the signal, if one of them explains the error."""
    if terminated.explains(error):
        end_terminated(options.when_stopped)
    if interrupted.explains(error):
        end_interrupted(options.when_stopped)


def _in_our_form(error: click.ClickException, arguments: list[str]) -> str:
    """What click does not understand, with a remedy, as all other errors."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message().rstrip(".")
    remedy = _hint(error, arguments)
    if isinstance(error, click.NoSuchOption) and context:
        text = f"no option {error.option_name}"
        options = [name for each in context.command.params for name in each.opts if name.startswith("--")]
        remedy = remedy or did_you_mean(error.option_name, options)
    where = context.command_path if context else "lipt"
    return f"{where}: {text[:1].lower()}{text[1:]}\n  -> {remedy or f'{where} --help'}"


def _hint(error: click.ClickException, arguments: list[str]) -> str:
    """How to write a setting that was given as an argument or as an option of its own, `config` without its verb, or
    `ingest` with a configuration; empty if it was none.
    """
    if isinstance(error, click.NoSuchOption):
        from lipt.cli.suggestions import setting_values

        leaf = error.option_name.lstrip("-").replace("-", "_")
        found = [name for name in setting_values() if name.rpartition(".")[2] == leaf or name == leaf]
        return f"settings are written --set {' or --set '.join(f'{name}=…' for name in found)}" if found else ""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = re.search(r"No such command '(.+)'", str(error.message))
    if command and context and context.command.name == "config":
        return f"lipt config show {command[1]}"
    is_config = any(word.endswith((".yaml", ".yml")) for word in arguments)
    if isinstance(error, click.MissingParameter) and context and context.command.name == "ingest" and is_config:
        return "the images of a configuration are ingested by: lipt stage ingest CONFIG"
    argument = re.search(r"unexpected extra arguments? \((.*)\)", str(error.message))
    if argument and "=" in argument[1].partition(" ")[0].lstrip("="):
        return f"settings are written --set {argument[1]}"
    return (
        "settings are written --set A.B=VALUE, without spaces around =, and in quotes if VALUE has spaces"
        if argument and "--set" in arguments
        else ""
    )
