"""`lipt report`."""

from __future__ import annotations

import click

from lipt.cli.options import config_options, make_context, output_option
from lipt.errors import RunError


@click.command()
@config_options
@output_option
def report(config_path: str, overrides: tuple[str, ...], output: str) -> None:
    """Show what a finished `run` or `compare` of CONFIG found, and render its HTML report again."""
    ctx = make_context(config_path, overrides)
    from lipt.adapters.store import MissingObjectError
    from lipt.cli.run import show
    from lipt.report.document import Document
    from lipt.report.render import render
    from lipt.stages.report import report_key

    try:
        data = ctx.workspace.store.read(report_key(ctx.config, "json"), kind="other")
    except MissingObjectError:
        raise RunError(
            f"{ctx.workspace.store.uri} has no report of this configuration", "run it first: lipt run"
        ) from None
    document = Document.model_validate_json(data)
    ctx.workspace.store.write(report_key(ctx.config, "html"), render(document).encode(), kind="other")
    ctx.reporter.close()
    show(ctx, document, output)
