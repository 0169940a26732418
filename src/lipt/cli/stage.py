"""`lipt stage`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from lipt.cli.options import config_options, open_context, output_option, print_json
from lipt.cli.suggestions import completes
from lipt.errors import UsageError, did_you_mean
from lipt.pipeline import STAGE_NAMES

if TYPE_CHECKING:
    from lipt.runtime.workspace import Workspace

#: The stage that makes an input. The others take what several stages make.
_MADE_BY = {
    "dataset": "ingest", "theta": "initialise", "base": "initialise", "shards": "dispatch", "jigsaws": "pretrain",
    "groups": "group", "scores": "score", "subset": "select",
}  # fmt: skip


@click.command()
@click.argument("name", shell_complete=completes(lambda: STAGE_NAMES))
@config_options
@click.option("--in", "inputs", multiple=True, metavar="NAME=REF", help="An input artifact; repeat a name for a list.")
@click.option("--index", type=click.IntRange(min=0), help="Index of the worker, group, score block or run.")
@output_option
def stage(
    name: str,
    config_path: str,
    overrides: tuple[str, ...],
    inputs: tuple[str, ...],
    index: int | None,
    output: str,
) -> None:
    """Run one stage on finished artifacts. Prints the reference of the new artifact.

    \b
    lipt stage initialise CONFIG --in dataset=ingest/0123456789abcdef
    lipt stage merge CONFIG --in dataset=… --in theta=… --in shards=… \\
      --in jigsaws=… --in jigsaws=…
    """
    from lipt.stages import stage_function

    if name not in STAGE_NAMES:
        raise UsageError(f"no stage {name!r}", did_you_mean(name, STAGE_NAMES))
    function = stage_function(name)
    with open_context(config_path, overrides) as ctx:
        artifact = function(ctx, **_arguments(name, function, inputs, index, ctx.workspace)).make()
    if output == "json":
        print_json({"ref": artifact.ref, "summary": artifact.summary})
    else:
        click.echo(artifact.ref)


def _arguments(
    name: str, function: Any, inputs: tuple[str, ...], index: int | None, workspace: Workspace
) -> dict[str, Any]:
    """Match --in and --index with the parameters of the stage's function."""
    given: dict[str, list[Any]] = {}
    _, *signature = inspect.signature(function, eval_str=True).parameters.values()
    parameters = {each.name: str(each.annotation) for each in signature}
    for text in inputs:
        key, equals, ref = text.partition("=")
        if not equals or key not in parameters or "Artifact" not in parameters[key]:
            raise UsageError(
                f"--in {text}: {name} has no such input",
                f"inputs: {', '.join(k for k in parameters if 'Artifact' in parameters[k])}",
            )
        artifact = workspace.get(ref)
        if (maker := _MADE_BY.get(key, artifact.stage)) != artifact.stage:
            raise UsageError(f"--in {text}: {key} is made by {maker}, not by {artifact.stage}", f"pass {maker}/KEY")
        given.setdefault(key, []).append(artifact)
    arguments: dict[str, Any] = {
        key: value if "Sequence" in parameters[key] else value[-1] for key, value in given.items()
    }
    for each in signature:
        is_index = each.annotation is int
        if is_index and index is not None:
            arguments[each.name] = index
        elif each.name not in arguments and each.default is each.empty:
            option = "--index NUMBER" if is_index else f"--in {each.name}=STAGE/KEY"
            raise UsageError(f"{name} needs {each.name}", f"add {option}")
    return arguments
