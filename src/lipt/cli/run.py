"""`lipt run` and `lipt compare`."""

import click

from lipt.cli.busy import warn_if_slow
from lipt.cli.missing_stages import show_missing
from lipt.cli.options import (
    PREDICTS,
    check_plan_as_text,
    config_options,
    dry_run_option,
    open_context,
    output_option,
    refuse_seed,
)
from lipt.cli.report import show_report
from lipt.config import Point
from lipt.flow.address import folder_of, page_of
from lipt.report.next_step import Origin


@click.command()
@config_options
@output_option
@dry_run_option("list the stages")
def run(config_path: str, overrides: tuple[str, ...], output: str, dry_run: bool) -> None:
    """Run CONFIG from data to report.

    Finished stages are skipped. After an interruption, run the same command again to continue.
    """
    check_plan_as_text(dry_run, output)
    with open_context(config_path, overrides, dry_run=dry_run) as ctx:
        from lipt.flow.compare import run_with_baseline

        if not dry_run:
            warn_if_slow()
        document = run_with_baseline(ctx)
    if document is not None:
        page = page_of(ctx.workspace.store, folder_of(document))
        show_report(document, page, output, {document.run_id: Origin(config_path, overrides)})


@click.command()
@config_options
@output_option
@dry_run_option(PREDICTS)
def compare(config_path: str, overrides: tuple[str, ...], output: str, dry_run: bool) -> None:
    """Run CONFIG and its baselines over `compare.seeds`: full data, random, RS2, classic pre-training and more."""
    refuse_seed(overrides)
    with open_context(config_path, overrides) as ctx:
        from lipt.flow.checks.validation import check_comparison
        from lipt.flow.compare import run_comparison

        if dry_run:
            rows = len(check_comparison(ctx))
            sizes = {"rows": rows, "seeds": len(ctx.config.compare.seeds)}
            show_missing(ctx, [Point(values={}, config=ctx.config)], sizes, output)
            return
        warn_if_slow()
        document = run_comparison(ctx)
    page = page_of(ctx.workspace.store, folder_of(document))
    show_report(document, page, output, {document.run_id: Origin(config_path, overrides)})
