"""Predict how long a sweep takes: each stage that is missing, once."""

from collections.abc import Mapping

from lipt.config import override
from lipt.flow.sweep import Missing
from lipt.forecast.kept_speeds import Speeds, speeds_here, speeds_key
from lipt.forecast.machine import Machine
from lipt.forecast.sizes import DataSize, is_ingested
from lipt.forecast.stages import work_of
from lipt.forecast.time import forecast
from lipt.runtime.artifact import canonical_json
from lipt.runtime.context import Context


def forecast_sweep(missing: Mapping[str, Missing]) -> tuple[dict[str, float], list[Speeds]]:
    """Seconds per stage on this machine, and the speeds that they were computed with.

    Args:
        missing: as `flow.sweep.missing_stages` returns it.

    Raises:
        UsageError: the size of the images is unknown.
    """
    total: dict[str, float] = {}
    speeds: dict[bytes, Speeds] = {}
    found: dict[bytes, dict[str, float]] = {}
    for each in missing.values():
        alone = override(each.config, {"seed": 0, "train": {"random_baseline": False}})
        name = canonical_json(alone.model_dump(mode="json"))
        if name not in found:
            found[name] = _part_seconds(Context.of(alone), speeds)
        seconds = found[name]
        spent = seconds.get(each.stage, 0) * (1 + _cost_of_choice(Context.of(alone)) if each.longer else 1)
        total[each.stage] = total.get(each.stage, 0) + spent
    return total, list(speeds.values())


def _cost_of_choice(ctx: Context) -> float:
    """FLOPs of all stages before the main training, per FLOP of the main training."""
    flops = {work.stage: work.parts * work.flops for work in work_of(ctx, _data_of(ctx))}
    trained = flops.pop("train")
    return (sum(flops.values()) - flops["evaluate"]) / trained


def _part_seconds(ctx: Context, speeds: dict[bytes, Speeds]) -> dict[str, float]:
    """Seconds of one part of each stage of a run. Configurations with equal networks and batches are measured once."""
    data = _data_of(ctx)
    works = work_of(ctx, data)
    names = [work.stage for work in works]
    key = speeds_key(ctx, data, names)
    if key not in speeds:
        speeds[key] = speeds_here(ctx, data, names)
    stages = forecast(works, speeds[key].of(Machine(), ctx), ctx.config, data.side)
    # Only ingestion tells the blocks that are scored. Until then a dry run counts one, for all candidates.
    whole = set() if is_ingested(ctx) else {"score"}
    parts = {each.stage: 1 if each.stage in whole else each.parts for each in stages}
    return {each.stage: (each.wall_s - each.start_s) / parts[each.stage] for each in stages}


def _data_of(ctx: Context) -> DataSize:
    return DataSize.stored(ctx) if is_ingested(ctx) else DataSize.listed(ctx)
