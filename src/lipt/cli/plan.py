"""`lipt plan`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from lipt.cli.options import Amount, config_options, output_option, parse_pairs, print_json
from lipt.cli.verbose import is_verbose
from lipt.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from lipt.forecast.machine import Fit, Machine
    from lipt.forecast.time import Forecast
    from lipt.ledger import Cost
    from lipt.pipeline import Engine

#: The numbers of a `Machine`.
_NUMBERS = ("gpu_tflops", "store_gbps", "node_gbps", "latency_ms", "pod_start_s", "memory_gb")
#: Seconds to import matplotlib and write the report, per second that a process takes to start.
_REPORT = 0.55


@click.command()
@config_options
@click.option(
    "--calibrate",
    "runs",
    multiple=True,
    metavar="CONFIG",
    help="Take speeds from this finished run; repeat it for runs of other sizes.",
)
@click.option("--engine", type=click.Choice(["local", "argo", "kubeflow"]), default="local", show_default=True)
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes with a GPU.")
@click.option(
    "-m",
    "--machine",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Property of nodes or store, repeatable: {', '.join(_NUMBERS)}.",
)
@click.option("--images", type=click.IntRange(min=2), help="Plan for hypothetical data: number of training images.")
@click.option(
    "--image-kb",
    type=Amount(min=0, min_open=True),
    default=110,
    show_default=True,
    help="With --images: average size in kB.",
)
@click.option(
    "--classes", type=click.IntRange(min=2), default=1000, show_default=True, help="With --images: number of classes."
)
@click.option("--advise", is_flag=True, help="Show what keeping 1 to 30 % would cost instead, and advise settings.")
@click.option("--storage", type=Amount(min=0, min_open=True), metavar="GB", help="With --advise: room for images.")
@click.option("--transfer", type=Amount(min=0, min_open=True), metavar="GB", help="With --advise: images to read.")
@click.option("--gpu-hours", type=Amount(min=0, min_open=True), metavar="H", help="With --advise: the most to spend.")
@output_option
def plan(
    config_path: str,
    overrides: tuple[str, ...],
    runs: tuple[str, ...],
    engine: Engine,
    nodes: int,
    pairs: tuple[str, ...],
    images: int | None,
    image_kb: float,
    classes: int,
    advise: bool,
    storage: float | None,
    transfer: float | None,
    gpu_hours: float | None,
    output: str,
) -> None:
    """Predict time, GPU hours, bytes and memory of each stage of CONFIG, and the first bottleneck.

    Show measured times too, if the workspace holds a report of this run. With --advise, compare what could be kept.

    \b
    lipt plan big.yaml --calibrate small.yaml --calibrate wider.yaml
    lipt plan big.yaml --engine argo --nodes 100 -m gpu_tflops=80 \\
      --images 100000000 --set data.image_size=224
    lipt plan photos.yaml --advise --storage 0.5 --gpu-hours 2
    """
    if not advise and (storage or transfer or gpu_hours):
        raise UsageError("--storage, --transfer and --gpu-hours limit the options of --advise", "add --advise")
    source_of = click.get_current_context().get_parameter_source
    if images is None and ParameterSource.COMMANDLINE in (source_of("image_kb"), source_of("classes")):
        raise UsageError("--image-kb and --classes describe the data of --images", "add --images")
    from lipt.adapters.store import MissingObjectError
    from lipt.cli.advice import show_advice
    from lipt.cli.busy import warn_if_busy
    from lipt.config import load_config, override
    from lipt.flow.facts import Facts
    from lipt.flow.validation import problems, raise_all
    from lipt.forecast.advice import SHARES, Limits, configured
    from lipt.forecast.calibration import measured
    from lipt.forecast.machine import Machine
    from lipt.forecast.sizes import DataSize
    from lipt.forecast.speed import decoding_here, name_of_device, rates_here
    from lipt.forecast.stages import work_of
    from lipt.forecast.time import breaks, forecast
    from lipt.runtime.algorithm import reason_of_auto
    from lipt.runtime.context import Context
    from lipt.runtime.processes.parent import count_processes
    from lipt.selection.auto import AUTO

    start_s = time.process_time()  # this process has now imported what a run imports before its first stage
    given = _numbers(pairs)
    machine = Machine(engine=engine, nodes=nodes, **given)
    fits = _fits(runs, machine)
    if "gpu_tflops" in given:  # the planned GPU is another one
        fits = {stage: fit for stage, fit in fits.items() if not fit.per_flop and not fit.per_step}
    machine = replace(machine, fits=fits)
    config, costs = load_config(config_path, list(overrides)), {}
    ctx = Context.of(config)
    raise_all(problems(config, None))
    if images is None:
        data = DataSize.stored(ctx)
        with suppress(MissingObjectError, UsageError):  # it did not run yet, or is a comparison
            costs = measured(ctx)
    else:
        data = DataSize.described(config, images=images, image_kb=image_kb, classes=classes)
    if not advise:  # what the run would refuse
        size = (data.side, data.side) if config.data.image_size else None
        facts = Facts(train=data.train, classes=data.classes, size=size)
        raise_all(problems(config, facts, pods=1 if engine == "local" else config.train.nodes))
    if advise:  # measure the stages of a run that scores with theta_p
        ctx = replace(ctx, config=configured(config, "theta_p", SHARES[0]))
    if engine == "local" and not runs and "gpu_tflops" not in given and config.processes == "auto":
        config = override(config, {"processes": count_processes(ctx)})  # as a run here would start
        ctx = replace(ctx, config=override(ctx.config, {"processes": config.processes}))
    works = work_of(ctx, data)
    if engine == "local" and "gpu_tflops" not in given:
        warn_if_busy(ctx.device)
        rates, setups = rates_here(ctx, data, [work.stage for work in works if work.stage not in fits])
        machine = replace(
            machine,
            rates=rates,
            setups=setups,
            start_s=start_s,
            report_s=_REPORT * start_s,
            decode_s=decoding_here(ctx) if images is None else {},
            shares_cores=ctx.device.type == "cpu",
        )
    if advise:
        limits = Limits(
            storage_bytes=None if storage is None else 1e9 * storage,
            transfer_bytes=None if transfer is None else 1e9 * transfer,
            gpu_hours=gpu_hours,
        )
        show_advice(config_path, config, ctx, data, machine, limits, output)
        return
    stages = forecast(works, machine, config, data.side)
    notes = assumptions(machine, given, len(runs), name_of_device(ctx))
    if config.train.draw == "infobatch" and config.train.steps is None:
        notes.append("train: an upper bound, because draw: infobatch leaves out images by their losses")
    if config.select.algorithm == AUTO and not config.select.race:
        notes.append(reason_of_auto(config, data.candidates))
    _show(stages, costs, breaks(works, stages, machine, config), notes, machine, output)


def _fits(runs: tuple[str, ...], machine: Machine) -> dict[str, Fit]:
    """The speeds of the stages, from the reports of these finished runs.

    Raises:
        UsageError: a run has no report.
    """
    from lipt.adapters.store import MissingObjectError
    from lipt.config import load_config
    from lipt.forecast.calibration import calibrate, measured
    from lipt.forecast.sizes import DataSize
    from lipt.forecast.stages import work_of
    from lipt.runtime.context import Context

    finished = []
    for path in runs:
        ctx = Context.of(load_config(path))
        try:
            costs = measured(ctx)
        except MissingObjectError:
            raise UsageError(f"--calibrate {path}: no report in {ctx.config.workspace}", f"lipt run {path}") from None
        finished.append((work_of(ctx, DataSize.stored(ctx)), costs))
    return calibrate(finished, machine)


def assumptions(machine: Machine, given: Collection[str], runs: int, device: str) -> list[str]:
    """The assumptions behind the prediction, one per line.

    Args:
        given: the numbers of `machine` that the user gave.
        runs: number of finished runs that the speeds in its `fits` come from.
        device: the device on which its `rates` were measured.
    """
    lines = []
    if runs and any(fit.per_flop or fit.per_step for fit in machine.fits.values()):
        lines.append(f"compute: as fast as in {runs} finished run{'s' if runs > 1 else ''}")
    if machine.rates:
        rates = ", ".join(f"{stage} {_tflops(rate)}" for stage, rate in machine.rates.items())
        lines.append(f"compute, measured just now with this model on this machine ({device}): {rates}")
        if machine.decode_s:
            speeds = ", ".join(f"{1 / seconds:,.0f} images/s ({use})" for use, seconds in machine.decode_s.items())
            lines.append(f"decoding in one process, measured just now: {speeds}")
        lines.append(f"start of a process, measured just now: {machine.start_s:.2g} s")
        lines.append(f"report, estimated from the start: {machine.report_s:.2g} s")
    elif not lines:
        lines.append(f"compute: {_tflops(machine.gpu_tflops)} per GPU{_said('gpu_tflops', given)}")
        if "gpu_tflops" not in given:
            lines.append(
                "pods have no GPU unless you ask for one (-p gpus=1): for pods without one, plan with the speed of "
                "their CPUs, such as -m gpu_tflops=0.05, or --calibrate with a finished run"
            )
    link, store = f"{machine.node_gbps:g} Gbit/s", f"{machine.store_gbps:g} Gbit/s"
    lines.append(
        f"store: {store}{_said('store_gbps', given)}, {link} per node{_said('node_gbps', given)}, "
        f"{machine.latency_ms:g} ms per request{_said('latency_ms', given)}"
    )
    return lines


def _tflops(rate: float) -> str:
    return f"{1000 * rate:.3g} GFLOP/s" if rate < 1 else f"{rate:.3g} TFLOP/s"


def _said(name: str, given: Collection[str]) -> str:
    return "" if name in given else f" (assumed, -m {name}=…)"


def _numbers(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The numbers given with `-m`.

    Raises:
        UsageError: not one of `_NUMBERS`, or not a number above 0.
    """
    numbers = {}
    for name, text in parse_pairs("-m", pairs, _NUMBERS, of="a machine").items():
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = 0
        if not 0 < numbers[name] < math.inf:
            raise UsageError(f"-m {name}={text}: not a number above 0", f"write it like -m {name}=10")
    return numbers


def _show(
    stages: list[Forecast],
    costs: dict[str, list[Cost]],
    warnings: list[str],
    notes: list[str],
    machine: Machine,
    output: str,
) -> None:
    from lipt.ledger import elapsed_s
    from lipt.report.terminal import print_table, print_text

    measured_s = {stage.stage: elapsed_s(costs.get(stage.stage, [])) for stage in stages} if costs else {}
    if output == "json":
        print_json(
            {
                "wall_s": sum(stage.wall_s for stage in stages),
                "gpu_hours": sum(stage.gpu_hours for stage in stages),
                "stages": [asdict(stage) for stage in stages],
                "breaks": warnings,
                "measured_wall_s": measured_s,
                "machine": asdict(machine),
                "assumptions": notes,
            }
        )
        return
    print_table(lambda shown: _table(stages, measured_s, shown), _IMPORTANCE, whole=is_verbose())
    for line in (*(f"! {warning}" for warning in warnings), *notes):
        print_text(line)


#: Columns, the most important first.
_IMPORTANCE = (
    "wall-clock", "measured", "memory", "bottleneck", "pods", "GPU hours", "read", "written", "FLOPs", "starting",
)  # fmt: skip


def _table(stages: list[Forecast], measured_s: dict[str, float], shown: Collection[str]) -> Table:
    from rich.table import Column, Table

    from lipt.report.numbers import format_bytes, format_flops, format_number, format_seconds

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
    headings = [heading for heading in ("pods", *columns, "bottleneck") if heading in shown]
    right = [Column(heading, justify="right", no_wrap=True) for heading in headings]
    table = Table(Column("stage", no_wrap=True), *right, box=None, header_style="bold", pad_edge=False)
    for stage in stages:
        name = f"{stage.stage} x {stage.parts:,}" if stage.parts > 1 else stage.stage
        cells = {"pods": f"{stage.pods:,}", "bottleneck": stage.bottleneck}
        cells |= {heading: text(of(stage)) for heading, (of, text) in columns.items()}
        table.add_row(name, *(cells[heading] for heading in headings))
    total = {name: text((max if name == "memory" else sum)(map(of, stages))) for name, (of, text) in columns.items()}
    table.add_row("total", *(total.get(heading, "") for heading in headings), style="bold")
    return table
