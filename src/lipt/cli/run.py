"""`lipt run` and `lipt compare`."""

import click

from lipt.cli.busy import warn_if_slow
from lipt.cli.options import check_plan_as_text, config_options, dry_run_option, open_context, output_option
from lipt.cli.report import show_report
from lipt.flow.address import folder_of, page_of


@click.command()
@config_options
@output_option
@dry_run_option
def run(config_path: str, overrides: tuple[str, ...], output: str, dry_run: bool) -> None:
    """Run CONFIG from data to report.

    Finished stages are skipped. After an interruption, run the same command again to continue.
    """
    check_plan_as_text(dry_run, output)
    with open_context(config_path, overrides, dry_run=dry_run) as ctx:
        from lipt.flow.compare import run_with_baseline

        warn_if_slow()

        document = run_with_baseline(ctx)
    if document is not None:
        show_report(document, page_of(ctx.workspace.store, folder_of(document)), output, config_path, overrides)


@click.command()
@config_options
@output_option
@dry_run_option
def compare(config_path: str, overrides: tuple[str, ...], output: str, dry_run: bool) -> None:
    """Run CONFIG and its baselines over `compare.seeds`: full data, random, RS2, classic pre-training and more."""
    check_plan_as_text(dry_run, output)
    with open_context(config_path, overrides, dry_run=dry_run) as ctx:
        from lipt.flow.compare import run_comparison

        warn_if_slow()

        document = run_comparison(ctx)
    if document is not None:
        show_report(document, page_of(ctx.workspace.store, folder_of(document)), output, config_path, overrides)
