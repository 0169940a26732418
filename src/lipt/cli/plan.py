"""`lipt plan`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from lipt.cli.options import config_options, output_option, parse_pairs, print_json
from lipt.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from lipt.ledger import Cost
    from lipt.stages.forecast import Engine, Forecast, Machine

#: The numbers of a `Machine`.
_NUMBERS = ("gpu_tflops", "store_gbps", "node_gbps", "latency_ms", "pod_start_s", "memory_gb")


@click.command()
@config_options
@click.option("--calibrate", "runs", multiple=True, metavar="CONFIG", help="A finished run to take speeds from; again "
              "for runs of other sizes.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "argo", "kubeflow"]), default="local", show_default=True)
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes with a GPU.")
@click.option("-m", "--machine", "pairs", multiple=True, metavar="NAME=VALUE",
              help=f"What is known of node and store: {', '.join(_NUMBERS)}.")  # fmt: skip
@click.option("--images", type=click.IntRange(min=2), help="Plan for so many training images that are not there,")
@click.option("--image-kb", type=click.FloatRange(min=0, min_open=True), default=110, show_default=True,
              help="of so many kB each,")  # fmt: skip
@click.option("--classes", type=click.IntRange(min=2), default=1000, show_default=True, help="of so many classes.")
@output_option
def plan(
    config_path: str, overrides: tuple[str, ...], runs: tuple[str, ...], engine: Engine, nodes: int,
    pairs: tuple[str, ...], images: int | None, image_kb: float, classes: int, output: str,
) -> None:  # fmt: skip
    """Predict what CONFIG takes: seconds, GPU hours, bytes and memory of each stage, and what breaks first.

    Beside what it took, where the workspace holds its report.

    \b
    lipt plan big.yaml --calibrate small.yaml --calibrate wider.yaml
    lipt plan big.yaml --engine argo --nodes 100 -m gpu_tflops=80 --images 100000000 --set data.image_size=224
    """
    from lipt.adapters.store import MissingObjectError
    from lipt.config import load_config
    from lipt.stages.context import Context
    from lipt.stages.costs import work_of
    from lipt.stages.forecast import Machine, breaks, calibrate, forecast, measured
    from lipt.stages.sizes import Data

    given = _numbers(pairs)
    machine = Machine(engine=engine, nodes=nodes, **given)
    finished = []
    for path in runs:
        ctx = Context.of(load_config(path))
        try:
            costs = measured(ctx)
        except MissingObjectError:
            raise UsageError(f"--calibrate {path}: no report in {ctx.config.workspace}", f"lipt run {path}") from None
        finished.append((work_of(ctx, Data.stored(ctx)), costs))
    fits = calibrate(finished, machine)
    if "gpu_tflops" in given:  # the GPU planned for is another one
        fits = {stage: fit for stage, fit in fits.items() if not fit.per_flop and not fit.per_step}
    machine = replace(machine, fits=fits)
    ctx, costs = Context.of(load_config(config_path, list(overrides))), {}
    if images is None:
        data = Data.stored(ctx)
        with suppress(MissingObjectError, UsageError):  # it did not run yet, or is a comparison
            costs = measured(ctx)
    else:
        data = Data.described(ctx.config, images=images, image_kb=image_kb, classes=classes)
    works = work_of(ctx, data)
    stages = forecast(works, machine, ctx.config, data.side)
    _show(stages, costs, breaks(works, stages, machine, ctx.config), machine, output)


def _numbers(pairs: tuple[str, ...]) -> dict[str, Any]:
    """What `-m` gave.

    Raises:
        UsageError: not one of `_NUMBERS`, or not a number above 0.
    """
    numbers = {}
    for name, text in parse_pairs("-m", pairs, _NUMBERS, of="a machine").items():
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = 0
        if not numbers[name] > 0:
            raise UsageError(f"-m {name}={text}: not a number above 0", f"write it like -m {name}=10")
    return numbers


def _show(
    stages: list[Forecast], costs: dict[str, list[Cost]], warnings: list[str], machine: Machine, output: str
) -> None:
    from rich.console import Console

    from lipt.ledger import elapsed_s

    measured_s = {stage.stage: elapsed_s(costs.get(stage.stage, [])) for stage in stages} if costs else {}
    if output == "json":
        print_json({
            "wall_s": sum(stage.wall_s for stage in stages), "gpu_hours": sum(stage.gpu_hours for stage in stages),
            "stages": [asdict(stage) for stage in stages], "breaks": warnings, "measured_wall_s": measured_s,
            "machine": asdict(machine),
        })  # fmt: skip
        return
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 140).print(_table(stages, measured_s))
    for warning in warnings:
        click.echo(f"! {warning}")


def _table(stages: list[Forecast], measured_s: dict[str, float]) -> Table:
    from rich.table import Column, Table

    from lipt.report.humanize import format_bytes, format_flops, format_number, format_seconds

    columns: dict[str, tuple[Callable[[Forecast], float], Callable[[float], str]]] = {
        "wall-clock": (lambda stage: stage.wall_s, format_seconds),
        "measured": (lambda stage: measured_s[stage.stage], format_seconds),
        "starting": (lambda stage: stage.start_s, format_seconds),
        "GPU hours": (lambda stage: stage.gpu_hours, format_number),
        "FLOPs": (lambda stage: stage.flops, format_flops),
        "read": (lambda stage: sum(stage.read.values()), format_bytes),
        "written": (lambda stage: sum(stage.written.values()), format_bytes),
        "memory": (lambda stage: stage.memory_bytes, format_bytes),
    }
    if not measured_s:
        del columns["measured"]
    right = [Column(heading, justify="right") for heading in ("pods", *columns, "bottleneck")]
    table = Table(Column("stage", no_wrap=True), *right, box=None, header_style="bold", pad_edge=False)
    for stage in stages:
        name = f"{stage.stage} x {stage.pieces:,}" if stage.pieces > 1 else stage.stage
        cells = [text(of(stage)) for of, text in columns.values()]
        table.add_row(name, f"{stage.pods:,}", *cells, stage.bottleneck)
    total = [text((max if name == "memory" else sum)(map(of, stages))) for name, (of, text) in columns.items()]
    table.add_row("total", "", *total, "", style="bold")
    return table
