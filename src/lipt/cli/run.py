"""`lipt run` and `lipt compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lipt.cli.options import config_options, dry_run_option, open_context, output_option, print_json
from lipt.cli.verbose import is_verbose

if TYPE_CHECKING:
    from lipt.report.document import Document
    from lipt.run.context import Context


@click.command()
@config_options
@output_option
@dry_run_option
def run(config_path: str, overrides: tuple[str, ...], output: str, dry_run: bool) -> None:
    """Run CONFIG from data to report.

    Finished stages are skipped. After an interruption, run the same command again to continue.
    """
    with open_context(config_path, overrides, dry_run=dry_run) as ctx:
        from lipt.flow.compare import run_with_baseline

        document = run_with_baseline(ctx)
    if document is not None:
        show(document, location_of(ctx), output)


@click.command()
@config_options
@output_option
@dry_run_option
def compare(config_path: str, overrides: tuple[str, ...], output: str, dry_run: bool) -> None:
    """Run CONFIG and its baselines over `compare.seeds`: full data, random, RS2, classic pre-training and more."""
    with open_context(config_path, overrides, dry_run=dry_run) as ctx:
        from lipt.flow.compare import run_comparison

        document = run_comparison(ctx)
    if document is not None:
        show(document, location_of(ctx), output)


def location_of(ctx: Context) -> str:
    """Path or address of a configuration's report, as a person opens it."""
    from lipt.flow.report import report_key

    return f"{ctx.workspace.store.uri.removeprefix('file://')}/{report_key(ctx.config, 'html')}"


def show(document: Document, location: str, output: str) -> None:
    """Verdict and table; the last line on stdout is the report's location."""
    from lipt.report.costs import spent
    from lipt.report.verdict import judge

    verdict = judge(document.rows)
    if output == "json":
        rows = [row.model_dump(mode="json") for row in document.rows]
        this_run, earlier = spent(document.ledger)
        print_json(
            {
                "run_id": document.run_id,
                "report": location,
                "rows": rows,
                "spent": {"this_run": this_run.as_dict(), "earlier_runs": earlier.as_dict()},
                "verdict": {"level": verdict.level, "headline": verdict.headline, "sentences": verdict.sentences},
            }
        )
        return
    from lipt.report.terminal import print_report

    print_report(document, verdict, whole=is_verbose())
    click.echo(f"\n{location}")
