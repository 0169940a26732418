"""Speeds of the stages, from finished runs on the same machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median

import numpy as np

from lipt.flow.address import read_report, report_folder
from lipt.forecast.machine import Fit, Machine
from lipt.forecast.work import Work
from lipt.ledger import Cost
from lipt.runtime.context import Context


def measured(ctx: Context) -> dict[str, list[Cost]]:
    """The costs of a finished run: stage -> its parts, in the order in which they were made.

    Raises:
        MissingObjectError: the run has no report.
    """
    document = read_report(ctx.workspace.store, report_folder(ctx.config))
    costs: dict[str, list[Cost]] = {}
    for row in document.ledger:
        costs.setdefault(row.stage, []).append(row.cost)
    return costs


def calibrate(runs: Sequence[tuple[Sequence[Work], Mapping[str, Sequence[Cost]]]], machine: Machine) -> dict[str, Fit]:
    """The speed of each stage, from (work, cost) of finished runs on this kind of machine.

    The predicted transfer time is subtracted first. Of a training that several processes shared, the seconds count once
    for each: the speeds are those of one process. Similar runs give only seconds per FLOP. If FLOPs per step differ by
    half or more between the runs, seconds per step are fitted too; small networks need them.
    """
    samples: dict[str, list[tuple[float, Work, Fit]]] = {}
    for works, costs in runs:
        for work in works:
            # The seconds of a stage that computed nothing, such as theta_* after 0 epochs, tell no speed.
            if (rows := costs.get(work.stage)) and (work.flops or work.items):
                seconds, first = _part(work, rows)
                io = machine.transfer_s(sum(work.read.values()) + sum(work.written.values()))
                io += machine.waiting_s(work.requests)
                done = mean(row.flops for row in rows) / work.flops if work.flops else 1
                alone_s = max(seconds - io, 0.2 * seconds) * mean(row.processes for row in rows)
                samples.setdefault(work.stage, []).append((alone_s, work, Fit(first_s=first, done=done)))
    fits = {stage: _fit(found) for stage, found in samples.items()}
    if "merge" in fits:
        fits.setdefault("group", fits["merge"])  # the same work, from runs without groups
    return fits


def _part(work: Work, costs: Sequence[Cost]) -> tuple[float, float]:
    """(seconds of a part, extra seconds of the first part, which reads what its process then caches)."""
    walls = [cost.wall_s for cost in costs]
    if work.parts == 1:  # select has a second cost if there is a baseline
        return sum(walls), 0.0
    if len(walls) < 3 or all(costs[1].read.get(kind, 0) >= costs[0].read.get(kind, 0) for kind in work.once):
        return median(walls), 0.0
    return median(walls[1:]), max(0.0, walls[0] - median(walls[1:]))


def _fit(samples: Sequence[tuple[float, Work, Fit]]) -> Fit:
    """Fit speeds by least squares of the relative errors; none is negative."""
    fits = [fit for _, _, fit in samples]
    first, done = median(fit.first_s for fit in fits), mean(fit.done for fit in fits)
    if not samples[0][1].flops:
        return Fit(per_item=median(seconds / max(1, work.items) for seconds, work, _ in samples), first_s=first)
    rows = np.array([(fit.done * work.flops, fit.done * work.steps) for _, work, fit in samples])
    rows /= np.array([seconds for seconds, _, _ in samples])[:, None]
    density = rows[:, 0] / rows[:, 1]
    if density.max() > 1.5 * density.min():
        per_flop, per_step = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
        if per_flop > 0 and per_step > 0:
            return Fit(per_flop=float(per_flop), per_step=float(per_step), first_s=first, done=done)
        if per_flop <= 0:
            return Fit(per_step=float(np.median(1 / rows[:, 1])), first_s=first, done=done)
    return Fit(per_flop=float(np.median(1 / rows[:, 0])), first_s=first, done=done)
