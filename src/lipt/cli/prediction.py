"""The prediction of `lipt plan`: what it is made from, and how it is shown."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from rich.table import Column, Table

from lipt.adapters.store import MissingObjectError
from lipt.cli.advice import show_advice
from lipt.cli.busy import warn_if_busy
from lipt.cli.options import print_json
from lipt.cli.verbose import is_verbose
from lipt.config import Config, load_config, override
from lipt.errors import UsageError
from lipt.flow.checks.facts import Facts
from lipt.flow.checks.validation import problems, raise_all
from lipt.forecast.advice import Limits
from lipt.forecast.calibration import calibrate, measured
from lipt.forecast.kept_speeds import Speeds, how_to_measure, speeds_here
from lipt.forecast.machine import Fit, Machine
from lipt.forecast.sample import Sample
from lipt.forecast.sizes import SIZES, DataSize, is_ingested, stored_dataset
from lipt.forecast.speed import name_of_device
from lipt.forecast.stages import work_of
from lipt.forecast.time import Forecast, breaks, forecast
from lipt.forecast.ways import SHARES, configured
from lipt.ledger import Cost, elapsed_s
from lipt.pipeline import Engine
from lipt.report.numbers import format_bytes, format_flops, format_number, format_seconds
from lipt.report.terminal import print_table, print_text
from lipt.runtime.algorithm import reason_of_auto
from lipt.runtime.context import Context
from lipt.runtime.processes.parent import count_processes
from lipt.selection.auto import AUTO

#: Seconds to import matplotlib and write the report, per second that a process takes to start.
_REPORT = 0.55


def predict(
    config_path: str,
    overrides: Sequence[str],
    runs: Sequence[str],
    *,
    engine: Engine,
    nodes: int,
    given: Mapping[str, Any],
    described: Mapping[str, Any] | None,
    limits: Limits | None,
    command: str,
    output: str,
) -> None:
    """Predict the stages of a configuration and show them, or advise.

    Args:
        runs: configurations of finished runs, from which the speeds come.
        given: the numbers of the machine that the user gave.
        described: the arguments of `DataSize.described`; None: the data set of the configuration.
        limits: of the advice; None: no advice.
        command: the one that was typed, for the advice.

    Raises:
        UsageError: a run of `runs` has no report, or the size of the data is unknown.
        LiptError: the run would refuse the configuration.
    """
    start_s = time.process_time()  # this process has now imported what a run imports before its first stage
    machine = Machine(engine=engine, nodes=nodes, **given)
    machine = replace(machine, fits=_fits(runs, machine, given))
    config, costs = load_config(config_path, list(overrides)), dict[str, list[Cost]]()
    ctx = Context.of(config)
    raise_all(problems(config, None))
    sample = dataset = None
    if described is None:
        sample = _sample(ctx)
        typed = shlex.join([config_path, *(word for each in overrides for word in ("--set", each))])
        data = DataSize.listed(ctx, sample) if sample else DataSize.stored(ctx, typed)
        dataset = sample.dataset if sample else stored_dataset(ctx)
        with suppress(MissingObjectError, UsageError):  # it did not run yet, or is a comparison
            costs = measured(ctx)
    else:
        data = DataSize.described(config, **described)
    if limits is None:
        _check_data(config, data, engine)
    else:  # measure the stages of a run that scores with theta_p
        ctx = replace(ctx, config=configured(config, "theta_p", SHARES[0]))
    here = engine == "local" and "gpu_tflops" not in given
    if here and config.processes == "auto":
        config = override(config, {"processes": count_processes(ctx)})  # as a run here would start
        ctx = replace(ctx, config=override(ctx.config, {"processes": config.processes}))
    works = work_of(ctx, data)
    speeds = None
    if here:
        unknown = [work.stage for work in works if work.stage not in machine.fits]
        speeds = speeds_here(ctx, data, unknown, dataset)
        warn_if_busy([speeds])
        machine = replace(speeds.of(machine, ctx), start_s=start_s, report_s=_REPORT * start_s)
    about = [sample.about] if sample else []
    if limits is not None:
        show_advice(command, config, ctx, data, machine, speeds, limits, about, output)
        return
    stages = forecast(works, machine, config, data.side)
    notes = about + _assumptions(machine, given, len(runs), name_of_device(ctx), speeds)
    if config.train.draw == "infobatch":
        bound = "an upper bound" if config.train.steps is None else "an estimate"
        notes.append(f"train: {bound}, because draw: infobatch leaves out images by their losses")
    if config.select.algorithm == AUTO and not config.select.race:
        notes.append(reason_of_auto(config, data.candidates))
    _show(stages, costs, breaks(works, stages, machine, config), notes, machine, output)


def _check_data(config: Config, data: DataSize, engine: Engine) -> None:
    """
    Raises:
        LiptError: the run would refuse data of this size.
    """
    size = (data.side, data.side) if config.data.image_size else None
    facts = Facts(train=data.train, classes=data.classes, size=size)
    raise_all(problems(config, facts, pods=1 if engine == "local" else config.train.nodes))


def _fits(runs: Sequence[str], machine: Machine, given: Collection[str]) -> dict[str, Fit]:
    """The speeds of the stages, from the reports of these finished runs.

    Raises:
        UsageError: a run has no report.
    """
    finished = []
    for path in runs:
        ctx = Context.of(load_config(path))
        try:
            costs = measured(ctx)
        except MissingObjectError:
            raise UsageError(f"--calibrate {path}: no report in {ctx.config.workspace}", f"lipt run {path}") from None
        finished.append((work_of(ctx, DataSize.stored(ctx)), costs))
    fits = calibrate(finished, machine)
    if "gpu_tflops" in given:  # the planned GPU is another one
        return {stage: fit for stage, fit in fits.items() if not fit.per_flop and not fit.per_step}
    return fits


def _assumptions(machine: Machine, given: Collection[str], runs: int, device: str, speeds: Speeds | None) -> list[str]:
    """The assumptions behind the prediction, one per line.

    Args:
        given: the numbers of `machine` that the user gave.
        runs: number of finished runs that the speeds in its `fits` come from.
        device: the device on which its `rates` were measured.
        speeds: those of `machine` that were measured on this one.
    """
    lines = []
    if runs and any(fit.per_flop or fit.per_step for fit in machine.fits.values()):
        lines.append(f"compute: as fast as in {runs} finished run{'s' if runs > 1 else ''}")
    if machine.rates and speeds:
        rates = ", ".join(f"{stage} {_tflops(rate)}" for stage, rate in machine.rates.items())
        lines.append(f"compute, measured {speeds.when} with this model on this machine ({device}): {rates}")
        if machine.decode_s:
            decoding = ", ".join(f"{1 / seconds:,.0f} images/s ({use})" for use, seconds in machine.decode_s.items())
            lines.append(f"decoding in one process, measured {speeds.when}: {decoding}")
        lines.append(f"start of a process, measured just now: {machine.start_s:.2g} s")
        lines.append(f"report, estimated from the start: {machine.report_s:.2g} s")
        lines += how_to_measure([speeds])
    elif not lines:
        lines.append(f"compute: {_tflops(machine.gpu_tflops)} per GPU{_said('gpu_tflops', given)}")
        if "gpu_tflops" not in given:
            lines.append(
                "pods have no GPU unless you ask for one (-p gpus=1): for pods without one, plan with the speed of "
                "their CPUs, such as -m gpu_tflops=0.05, or --calibrate CONFIG of a finished run"
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


def _sample(ctx: Context) -> Sample | None:
    """As `Sample.of`, or None if the images are ingested. Errors also say how to predict data that are elsewhere."""
    try:
        return None if is_ingested(ctx) else Sample.of(ctx)
    except UsageError as error:
        elsewhere = f"if the images are elsewhere, give their sizes: {SIZES}"
        raise UsageError(error.message, f"{error.remedy}; {elsewhere}") from None


def _show(
    stages: list[Forecast],
    costs: dict[str, list[Cost]],
    warnings: list[str],
    notes: list[str],
    machine: Machine,
    output: str,
) -> None:
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
    first = ("wall-clock", "measured", "memory", "bottleneck", "pods")
    gpus = [] if machine.shares_cores else ["GPU hours"]  # without a GPU, they would repeat the wall-clock
    importance = (*first, *gpus, "read", "written", "FLOPs", "starting")
    print_table(lambda shown: _table(stages, measured_s, shown), importance, whole=is_verbose())
    for line in (*(f"! {warning}" for warning in warnings), *notes):
        print_text(line, hanging=True)


def _table(stages: list[Forecast], measured_s: dict[str, float], shown: Collection[str]) -> Table:
    """A row per stage, and the total.

    Args:
        shown: headings of columns.
    """
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
