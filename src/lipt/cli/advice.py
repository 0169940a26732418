"""`lipt plan --advise`: cost and measured gain of each share, and the settings to paste."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from decimal import Decimal

import click
import yaml
from rich.table import Column, Table

from lipt.cli.options import print_json
from lipt.cli.verbose import is_verbose
from lipt.config import Config
from lipt.forecast.advice import Advice, Limits, advise
from lipt.forecast.kept_speeds import Speeds, how_to_measure, speeds_here
from lipt.forecast.machine import Machine
from lipt.forecast.sizes import DataSize
from lipt.forecast.stages import work_of
from lipt.forecast.time import Forecast, forecast
from lipt.forecast.ways import LABELS, SHARES, Option, configured, is_own, nearest_measured, options
from lipt.forecast.work import Work
from lipt.report.numbers import format_budget, format_bytes, format_seconds
from lipt.report.terminal import print_table, print_text
from lipt.runtime.algorithm import proxy_width
from lipt.runtime.budgets import passes_of
from lipt.runtime.context import Context
from lipt.selection.measured import WORTH

_SEEN = min(each.passes[0] for each in WORTH)
_AT = " and ".join(f"{100 * share:g}" for share in sorted({each.share for each in WORTH}))
_NOTES = (
    "gain: points above a class-balanced random subset of the same size, on CIFAR-10 with small networks; docs/results "
    "has the tables.",
    "On other data most gains were smaller, and some choices lost (docs/results/other-data.md): measure on your data "
    "with `lipt compare` before you rely on one.",
    "in steps: length of the training in which we measured that gain. Compare only rows of the same length: in longer "
    "trainings fresh draws gain more.",
    "You pay for the 10 epochs once. Trainings can start from their weights (`start`), which gained most. For "
    "trainings from random weights the 10 epochs pay if many of them use one subset, or if one sees each kept image "
    f"often enough: {_SEEN:g} times at {_AT} %. Otherwise spend the time on more steps.",
)

#: Marks the row of the configuration.
_OWN = "*"


def show_advice(
    command: str,
    config: Config,
    ctx: Context,
    data: DataSize,
    machine: Machine,
    speeds: Speeds | None,
    limits: Limits,
    about: Sequence[str],
    output: str,
) -> None:
    """Print the options of a configuration, and the advice.

    Args:
        command: the one that was typed, for the last line.
        ctx: of the configuration or of one like it: its workspace and device count.
        machine: with the speeds of all stages.
        speeds: those of `machine` that were measured on this one; None: none were.
        about: where the sizes of the data come from, unless they are those of an ingested data set.
    """

    narrow = _machine_of_proxy(ctx, data, machine)

    def predict(changed: Config) -> tuple[Sequence[Work], Sequence[Forecast]]:
        works = work_of(replace(ctx, config=changed), data)
        return works, forecast(works, narrow if changed.score.proxy else machine, changed, data.side)

    found = options(config, data, predict, storage_bytes=limits.storage_bytes)
    own = next((each for each in found if is_own(config, each)), None)
    advice = advise(found, limits, data.classes)
    best, notes = advice.option, [*_NOTES, *about, *how_to_measure([speeds] if speeds else [])]
    if output == "json":
        options_found = [asdict(each) | _gain(each) for each in found]
        chosen = {"way": best.way, "share": best.share, "settings": best.settings} if best else None
        print_json({"options": options_found, "advice": chosen, "why": advice.why, "assumptions": notes})
        return
    print_text(_training(config, ctx, data))
    listed = [each for each in found if is_verbose() or _is_listed(each, limits) or each in (own, best)]
    ordered = sorted(listed, key=lambda each: (each.gain_steps or 0, each.share))
    time = "time" if machine.shares_cores else "GPU time"
    importance = ("gain", time, "in steps", "stored", "steps", "read", "of it scoring")
    beyond = "" if limits == Limits() else "beyond your limits or "
    hidden = [f"options {beyond}without a measurable gain"] if len(ordered) < len(found) else []
    print_table(lambda shown: _table(ordered, advice, own, time, shown), importance, whole=is_verbose(), hidden=hidden)
    if own:
        print_text(f"{_OWN} your configuration")
    if few := [share for share in SHARES if share not in {each.share for each in found}]:
        print_text(f"left out, because there are more classes than images: {', '.join(map(format_budget, few))}")
    for line in notes:
        print_text(line, hanging=True)
    if limits == Limits():
        tenth = 0.1 * max(each.stored_bytes for each in found) / 1e9
        storage = format(Decimal(f"{tenth:.2g}"), "f")  # without an exponent
        click.echo(f"\nFor one recommendation, give a limit:\n\n{command} --storage {storage}")  # not to be broken
        return
    print_text(
        f"\nAdvice: {_named(advice.option)}.\nWhy: {advice.why}." if advice.option else f"\nAdvice: {advice.why}."
    )
    if advice.option:
        click.echo(
            yaml.safe_dump(advice.option.settings, sort_keys=False, allow_unicode=True, default_flow_style=None),
            nl=False,
        )


def _gain(option: Option) -> dict[str, float | None]:
    """The measured gain of an option, as numbers for programs."""
    points, half_width = option.gain_interval if option.gain else (None, None)
    return {"gain_points": points, "gain_half_width_points": half_width, "gain_steps": option.gain_steps}


def _machine_of_proxy(ctx: Context, data: DataSize, machine: Machine) -> Machine:
    """The machine with the speeds of a narrower scorer in place of measured ones: it does fewer FLOPs per second."""
    stages = [stage for stage in ("initialise", "score") if stage in machine.rates]
    if not stages or not proxy_width(ctx.config):
        return machine
    narrow = speeds_here(replace(ctx, config=configured(ctx.config, "proxy", SHARES[0])), data, stages)
    return replace(machine, rates={**machine.rates, **narrow.rates}, setups={**machine.setups, **narrow.setups})


def _training(config: Config, ctx: Context, data: DataSize) -> str:
    """How long the configured training is, and which measurement is nearest."""
    steps = next(work.steps for work in work_of(replace(ctx, config=config), data) if work.stage == "train")
    passes = passes_of(config, data.candidates)
    often = f"{passes:,.0f} times" if passes >= 10 else f"{passes:.2g} times"
    times = often if passes >= 1.5 else "about once" if passes >= 0.5 else "at most once"
    nearest = nearest_measured(steps)
    return (
        f"Your configuration keeps {format_budget(config.select.fraction)}, trains {steps:,.0f} steps, and sees each "
        f"kept image {times}. "
        f"The nearest of our measurements has {nearest:,} steps.\n"
    )


def _is_listed(option: Option, limits: Limits) -> bool:
    """Whether an option is shown without -v: it keeps to the limits, and either gained measurably or is a reference for
    the gains. Random images of the same size cost no more than an option that did not."""
    points, half_width = option.gain_interval
    return limits.hold(option) and (option.way in ("random", "all") or points > half_width)


def _named(option: Option) -> str:
    if option.way == "all":
        return "train on all images"
    if option.way == "rs2":
        return f"keep all images, and draw {format_budget(option.share)} of them afresh in each epoch"
    kept = f"{format_budget(option.share)} ({option.images:,} images)"
    if option.way == "continued":
        return f"keep a random {kept}, and start from the weights of ten epochs on all images"
    return f"keep {kept}, choose by {LABELS[option.way]}"


def _table(found: Sequence[Option], advice: Advice, own: Option | None, time: str, shown: Collection[str]) -> Table:
    """A row per option.

    Args:
        own: that of the configuration.
        time: the heading of the time that its GPUs compute, or without a GPU this machine.
        shown: headings of columns.
    """
    order = ("stored", "read", "steps", time, "of it scoring", "gain", "in steps")
    headings = [heading for heading in order if heading in shown]
    right = [Column(heading, justify="right", no_wrap=True) for heading in headings]
    columns = [Column("keep (images)", no_wrap=True), Column("choose by", no_wrap=True), *right]
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for each in found:
        cells = {
            "stored": format_bytes(each.stored_bytes),
            "read": format_bytes(each.read_bytes),
            "steps": f"{each.steps:,.0f}",
            time: format_seconds(3600 * each.gpu_hours),
            "of it scoring": format_seconds(3600 * each.scoring_hours),
            "gain": each.gain,
            "in steps": f"{each.gain_steps:,}" if each.gain_steps else "",
        }
        share = "all" if each.way == "all" else format_budget(each.share)
        drawn, fixed = f"all, {share} per epoch", f"{share} ({each.images:,})"
        kept = drawn if each.way == "rs2" else fixed
        kept += f" {_OWN}" if each is own else ""
        style = "bold" if each is advice.option else ""
        table.add_row(kept, LABELS[each.way], *(cells[heading] for heading in headings), style=style)
    return table
