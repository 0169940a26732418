"""`lipt sweep --dry-run` and `lipt compare --dry-run`: the stages that are missing, and how long they take here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click

from lipt.cli.options import print_json
from lipt.config import Point
from lipt.pipeline import STAGE_NAMES
from lipt.report.numbers import format_count, format_seconds
from lipt.runtime.context import Context


def show_missing(ctx: Context, points: Sequence[Point], sizes: Mapping[str, int], output: str) -> None:
    """Print how often each stage would run at these points, and how long that takes. Equal stages run once.

    Args:
        sizes: the numbers of which the runs are the product, such as of seeds.
    """
    from lipt.cli.busy import warn_if_busy
    from lipt.flow.sweep import missing_stages
    from lipt.forecast.kept_speeds import how_to_measure
    from lipt.forecast.sizes import is_ingested
    from lipt.forecast.sweep import forecast_sweep

    missing = missing_stages(ctx, points)
    counted = Counter(each.stage for each in missing.values())
    stages = {name: counted[name] for name in STAGE_NAMES if name in counted}
    seconds, speeds = forecast_sweep(missing)
    warn_if_busy(speeds)
    notes = [] if is_ingested(ctx) else ["the images are not ingested yet: the time for this is not predicted"]
    notes += how_to_measure(speeds)
    if output == "json":
        wall_s = sum(seconds.values())
        print_json({**sizes, "stages": stages, "seconds": seconds, "wall_s": wall_s, "assumptions": notes})
        return
    click.echo(product(sizes))
    click.echo(f"{'stage':<12} {'times':>6}  time in all")
    for stage, count in stages.items():
        click.echo(f"{stage:<12} {count:>6,}  {format_seconds(seconds[stage])}")
    click.echo(f"{'all':<12} {sum(stages.values()):>6,}  {format_seconds(sum(seconds.values()))}")
    for line in notes:
        click.echo(line)


def product(sizes: Mapping[str, int]) -> str:
    """Such as `2 points x 3 rows x 1 seed`."""
    return " x ".join(format_count(number, name.removesuffix("s")) for name, number in sizes.items())
