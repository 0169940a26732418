"""Predict how long a sweep takes: each stage that is missing, once."""

from collections.abc import Mapping

from lipt.config import override
from lipt.flow.sweep import Missing
from lipt.forecast.machine import Machine
from lipt.forecast.sizes import DataSize
from lipt.forecast.speed import rates_here
from lipt.forecast.stages import work_of
from lipt.forecast.time import forecast
from lipt.runtime.artifact import canonical_json
from lipt.runtime.context import Context


def forecast_sweep(missing: Mapping[str, Missing]) -> dict[str, float]:
    """Seconds per stage, on this machine.

    Args:
        missing: as `flow.sweep.missing_stages` returns it.

    Raises:
        UsageError: the data set is not ingested yet.
    """
    total: dict[str, float] = {}
    speeds: dict[bytes, Machine] = {}
    found: dict[bytes, dict[str, float]] = {}
    for each in missing.values():
        alone = override(each.config, {"seed": 0, "train": {"random_baseline": False}})
        name = canonical_json(alone.model_dump(mode="json"))
        if name not in found:
            found[name] = _part_seconds(Context.of(alone), speeds)
        seconds = found[name]
        spent = seconds.get(each.stage, 0) * (1 + _cost_of_choice(Context.of(alone)) if each.longer else 1)
        total[each.stage] = total.get(each.stage, 0) + spent
    return total


def _cost_of_choice(ctx: Context) -> float:
    """FLOPs of all stages before the main training, per FLOP of the main training."""
    flops = {work.stage: work.parts * work.flops for work in work_of(ctx, DataSize.stored(ctx))}
    trained = flops.pop("train")
    return (sum(flops.values()) - flops["evaluate"]) / trained


def _part_seconds(ctx: Context, speeds: dict[bytes, Machine]) -> dict[str, float]:
    """Seconds of one part of each stage of a run. Configurations with equal networks and batches are measured once."""
    data = DataSize.stored(ctx)
    works = work_of(ctx, data)
    config = ctx.config
    sections = ctx.settings("data", "model", "initialise", "dispatch", "pretrain", "score", seeded=False)
    name = canonical_json(sections | {"train": config.train.batch_size, "stages": [work.stage for work in works]})
    if name not in speeds:
        rates, setups = rates_here(ctx, data, [work.stage for work in works])
        speeds[name] = Machine(rates=rates, setups=setups, shares_cores=ctx.device.type == "cpu")
    stages = forecast(works, speeds[name], config, data.side)
    return {each.stage: (each.wall_s - each.start_s) / each.parts for each in stages}
