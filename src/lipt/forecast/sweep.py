"""Predict how long a sweep takes: each stage that is missing, once."""

from collections.abc import Mapping

from lipt.config import Config, override
from lipt.forecast.sizes import DataSize
from lipt.forecast.speed import rates_here
from lipt.forecast.stages import work_of
from lipt.forecast.time import Machine, forecast
from lipt.runtime.artifact import canonical_json
from lipt.runtime.context import Context


def forecast_sweep(ctx: Context, missing: Mapping[str, tuple[str, Config]]) -> dict[str, float]:
    """Seconds per stage, on this machine.

    Args:
        missing: as `flow.sweep.missing_stages` returns it.

    Raises:
        UsageError: the data set is not ingested yet.
    """
    total: dict[str, float] = {}
    speeds: dict[bytes, Machine] = {}
    found: dict[bytes, dict[str, float]] = {}
    for stage, config in missing.values():
        alone = override(config, {"seed": 0, "train": {"random_baseline": False}})
        name = canonical_json(alone.model_dump(mode="json"))
        if name not in found:
            own = Context.of(alone)
            found[name] = _part_seconds(own, speeds)
        total[stage] = total.get(stage, 0) + found[name].get(stage, 0)
    return total


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
