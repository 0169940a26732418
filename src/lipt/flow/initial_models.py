"""theta_*, or the models of `score.runs`: trained here or in worker pods, some of which may be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lipt.config import Config
from lipt.errors import RunError
from lipt.runtime import Artifact, Context
from lipt.runtime.algorithm import scoring_needs
from lipt.runtime.processes.parent import count_processes
from lipt.runtime.processes.parts import Made, make_in_turn, make_parts
from lipt.stages.initialise import initialise
from lipt.stages.pretrain import TRAIN_AGAIN

#: Trains models of `score.runs`, given by index, in worker pods. Returns the error of each one that would fail again.
TrainElsewhere = Callable[[Artifact, list[int]], Mapping[int, RunError]]


def initial_models(ctx: Context, dataset: Artifact, train_elsewhere: TrainElsewhere) -> Made:
    """The finished models, and the error of each lost one.

    Args:
        train_elsewhere: is asked first, if there are several models. What else it leaves is trained here.

    Raises:
        RunError: fewer models of `score.runs` than the quorum arrived.
    """
    indices = range(ctx.config.score.runs if ctx.config.score.has_own_models else 1)
    failed = train_elsewhere(dataset, list(indices)) if len(indices) > 1 else {}
    made, lost = _models(ctx, dataset, [index for index in indices if index not in failed], failed=len(failed))
    lost = dict(sorted((lost | dict(failed)).items()))
    for index, error in lost.items():
        ctx.reporter.alert(f"initialise[{index}] lost: {error.message}")
    _check_models(ctx.config, made, lost)
    return made, lost


def _models(ctx: Context, dataset: Artifact, indices: Sequence[int], *, failed: int) -> Made:
    """The models of `score.runs` (or theta_*) of these indices.

    Args:
        failed: number of other models that are lost already.
    """
    runs, needed = failed + len(indices), _models_needed(ctx.config)
    if len(indices) < needed:  # the rest would be trained in vain
        found = {index: initialise(ctx, dataset, index=index).find() for index in indices}
        return {index: artifact for index, artifact in found.items() if artifact is not None}, {}
    on_several_nodes = ctx.pods is not None and ctx.config.train.nodes > 1
    if not on_several_nodes and 1 < count_processes(ctx) <= runs:  # each process trains whole models
        return train_models(ctx, dataset, indices)
    if runs == needed:  # here and below, all processes share each batch
        return {index: initialise(ctx, dataset, index=index).make() for index in indices}, {}
    may_fail = len(indices) - needed
    return make_in_turn(ctx, initialise, dict.fromkeys(indices, (dataset,)), may_fail=may_fail)


def _models_needed(config: Config) -> int:
    """Number of models that must arrive: 1 for theta_*, all disjoint models, else the quorum of `score.runs`."""
    runs = config.score.runs if config.score.has_own_models else 1
    if config.score.disjoint:
        return runs
    return max(config.merge.needed(runs), min(scoring_needs(config).models, runs))


def _check_models(config: Config, made: Mapping[int, Artifact], lost: Mapping[int, RunError]) -> None:
    """
    Raises:
        RunError: fewer models of `score.runs` than needed arrived; names the lost ones.
    """
    needed, runs = _models_needed(config), config.score.runs
    if not lost or len(made) >= needed:
        return
    first, error = next(iter(lost.items()))
    if needed == runs:
        raise error
    remedies = "; ".join(dict.fromkeys(each.remedy or TRAIN_AGAIN for each in lost.values()))
    raise RunError(
        f"{len(made)} of {runs} models of score.runs arrived, the quorum is {needed}; "
        f"lost: {', '.join(map(str, lost))} (model {first}: {error.message})",
        f"for the lost ones: {remedies}{config.merge.or_lower(needed, runs, len(made))}",
    )


def train_models(ctx: Context, dataset: Artifact, indices: Iterable[int]) -> Made:
    """Train models of `score.runs`; returns the finished ones, and the error of each lost one."""
    return make_parts(ctx, initialise, dict.fromkeys(indices, (dataset,)))
