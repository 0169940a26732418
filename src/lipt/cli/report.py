"""`lipt report`."""

from __future__ import annotations

import click

from lipt.cli.options import config_options, open_context, output_option
from lipt.errors import RunError


@click.command()
@config_options
@output_option
def report(config_path: str, overrides: tuple[str, ...], output: str) -> None:
    """Show what a finished `run` or `compare` of CONFIG found, and render its HTML report again."""
    from lipt.adapters.store import MissingObjectError
    from lipt.cli.run import show
    from lipt.report.document import Document
    from lipt.report.render import render

    with open_context(config_path, overrides) as ctx:
        from lipt.stages.report import report_key

        store = ctx.workspace.store
        try:
            document = Document.model_validate_json(store.read(report_key(ctx.config, "json"), kind="other"))
        except MissingObjectError:
            raise RunError(f"{store.uri} has no report of this configuration", "run it first: lipt run") from None
        store.write(report_key(ctx.config, "html"), render(document).encode(), kind="other")
    show(ctx, document, output)
