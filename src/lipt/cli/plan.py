"""`lipt plan`."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import click

from lipt.cli.options import config_options, output_option, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from lipt.ledger import Cost
    from lipt.stages.context import Context
    from lipt.stages.costs import Data, Work
    from lipt.stages.forecast import Forecast, Machine


@click.command()
@config_options
@click.option("--calibrate", "runs", multiple=True, metavar="CONFIG", help="A finished run to take speeds from; again "
              "for runs of other sizes.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "argo", "kubeflow"]), default="local", show_default=True)
@click.option("--nodes", type=click.IntRange(min=1), help="Nodes with a GPU.")
@click.option("--gpu-tflops", type=click.FloatRange(min=0, min_open=True), help="Sustained by one GPU.")
@click.option("--store-gbps", type=click.FloatRange(min=0, min_open=True), help="Gbit/s of the whole store.")
@click.option("--node-gbps", type=click.FloatRange(min=0, min_open=True), help="Gbit/s between store and one node.")
@click.option("--latency", type=click.FloatRange(min=0), help="Milliseconds of a request to the store.")
@click.option("--pod-start-s", type=click.FloatRange(min=0), help="Seconds until a pod works.")
@click.option("--memory-gb", type=click.FloatRange(min=0, min_open=True), help="GB of a node.")
@click.option("--images", type=click.IntRange(min=2), help="Plan for so many training images that are not there,")
@click.option("--image-kb", type=click.FloatRange(min=0, min_open=True), default=110, show_default=True,
              help="of so many kB each,")  # fmt: skip
@click.option("--classes", type=click.IntRange(min=2), default=1000, show_default=True, help="of so many classes.")
@output_option
def plan(
    config_path: str, overrides: tuple[str, ...], runs: tuple[str, ...], engine: str, output: str, images: int | None,
    image_kb: float, classes: int, **options: float | None,
) -> None:  # fmt: skip
    """Predict what CONFIG takes: seconds, GPU hours, bytes and memory of each stage, and what breaks first.

    Beside what it took, where the workspace holds its report.

    \b
    lipt plan big.yaml --calibrate small.yaml --calibrate wider.yaml
    lipt plan big.yaml --engine argo --nodes 100 --gpu-tflops 80 --images 100000000 --set data.image_size=224
    """
    from lipt.adapters.store import MissingObjectError
    from lipt.errors import UsageError
    from lipt.stages import forecast as model

    machine = _machine(engine, options)
    if runs:
        finished = []
        for path in runs:
            ctx = _context(path, ())
            try:
                took = model.measured(ctx)
            except MissingObjectError:
                raise UsageError(
                    f"--calibrate {path}: no report in {ctx.config.workspace}", f"lipt run {path}"
                ) from None
            finished.append((_work(ctx)[1], took))
        fits = model.calibrate(finished, machine)
        if options["gpu_tflops"] is not None:  # the GPU planned for is another one
            fits = {stage: fit for stage, fit in fits.items() if not fit.per_flop and not fit.per_step}
        machine = replace(machine, fits=fits)
    ctx = _context(config_path, overrides)
    data, works = _work(ctx, images, image_kb, classes)
    stages = model.forecast(works, machine, ctx.config, data.side)
    costs: dict[str, list[Cost]] = {}
    if images is None:
        try:
            costs = model.measured(ctx)
        except (MissingObjectError, UsageError):
            costs = {}
    _show(stages, costs, model.breaks(works, stages, machine, ctx.config), machine, output)


#: option -> (field of Machine, its unit in the field's)
_OPTIONS = {
    "nodes": ("nodes", 1), "gpu_tflops": ("gpu_flops_s", 1e12), "store_gbps": ("store_bytes_s", 1e9 / 8),
    "node_gbps": ("node_bytes_s", 1e9 / 8), "latency": ("latency_s", 1e-3), "pod_start_s": ("pod_start_s", 1),
    "memory_gb": ("memory_bytes", 1e9),
}  # fmt: skip


def _machine(engine: str, options: dict[str, float | None]) -> Machine:
    from lipt.stages.forecast import Machine

    given: dict[str, Any] = {_OPTIONS[k][0]: v * _OPTIONS[k][1] for k, v in options.items() if v is not None}
    return Machine(engine=engine, **given)  # type: ignore[arg-type]


def _context(path: str, overrides: tuple[str, ...]) -> Context:
    from lipt.config import load_config
    from lipt.progress import Reporter
    from lipt.stages.context import Context
    from lipt.stages.workspace import Workspace

    config = load_config(path, list(overrides))
    return Context(config=config, workspace=Workspace(config.workspace), reporter=Reporter())


def _work(ctx: Context, images: int | None = None, image_kb: float = 0, classes: int = 0) -> tuple[Data, list[Work]]:
    from lipt.stages.costs import Data, Net, work_of

    if images is None:
        data = Data.stored(ctx)
    else:
        data = Data.described(ctx.config, images=images, image_kb=image_kb, classes=classes)
    return data, work_of(ctx.config, data, Net.of(ctx, data))


def _show(
    stages: list[Forecast], costs: dict[str, list[Cost]], warnings: list[str], machine: Machine, output: str
) -> None:
    from lipt.stages.forecast import took

    if output == "json":
        wall_s = {stage.stage: took(stage, costs[stage.stage]) for stage in stages if stage.stage in costs}
        print_json({
            "wall_s": sum(stage.wall_s for stage in stages), "gpu_hours": sum(stage.gpu_hours for stage in stages),
            "stages": [asdict(stage) for stage in stages], "breaks": warnings, "measured_wall_s": wall_s,
            "machine": {item.name: getattr(machine, item.name) for item in fields(machine) if item.name != "fits"},
            "fits": {stage: asdict(fit) for stage, fit in machine.fits.items()},
        })  # fmt: skip
        return
    from rich.console import Console

    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 140).print(_table(stages, costs))
    for warning in warnings:
        click.echo(f"! {warning}")


def _table(stages: list[Forecast], costs: dict[str, list[Cost]]) -> Table:
    from rich.table import Table

    from lipt.report.humanize import format_bytes, format_flops, format_number, format_seconds
    from lipt.stages.forecast import took

    headings = ["pods", "wall-clock", *(["measured", "error"] if costs else []), "starting", "GPU hours"]
    headings += ["FLOPs", "read", "written", "memory", "bottleneck"]
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("stage", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    worked = [took(stage, costs.get(stage.stage, [])) for stage in stages]
    total, start = sum(stage.wall_s for stage in stages), sum(stage.start_s for stage in stages)
    for stage, seconds in zip(stages, worked, strict=True):
        name = f"{stage.stage} x {stage.pieces:,}" if stage.pieces > 1 else stage.stage
        beside = _beside(stage.wall_s - stage.start_s, seconds) if costs else []
        table.add_row(
            name, f"{stage.pods:,}", format_seconds(stage.wall_s), *beside, format_seconds(stage.start_s),
            format_number(stage.gpu_hours), format_flops(stage.flops), format_bytes(sum(stage.read.values())),
            format_bytes(sum(stage.written.values())), format_bytes(stage.memory_bytes), stage.bottleneck,
        )  # fmt: skip
    hours = sum(stage.gpu_hours for stage in stages)
    read = sum(sum(stage.read.values()) for stage in stages)
    written = sum(sum(stage.written.values()) for stage in stages)
    flops, memory = sum(stage.flops for stage in stages), max(stage.memory_bytes for stage in stages)
    table.add_row(
        "total", "", format_seconds(total), *(_beside(total - start, sum(worked)) if costs else []),
        format_seconds(start), format_number(hours), format_flops(flops), format_bytes(read), format_bytes(written),
        format_bytes(memory), "", style="bold",
    )  # fmt: skip
    return table


def _beside(predicted: float, worked: float) -> list[str]:
    """What the pods worked, and by how much the prediction, without the start of the pods, is off."""
    from lipt.report.humanize import format_seconds

    return [format_seconds(worked), f"{100 * (predicted / worked - 1):+.0f} %" if worked else ""]
