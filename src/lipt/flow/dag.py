"""The stages of one configuration in their order, as `lipt run` and the pipelines execute them.

    [ingest -> initialise, dispatch] -> [pretrain x n] -> [group x g -> merge] -> [score -> select]
        -> [train -> evaluate]

A bracket is a box of the pipeline and one function here. A pod calls one of these functions; `run` calls all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lipt.config import Config, override
from lipt.errors import RunError
from lipt.flow.initial_models import TrainElsewhere, initial_models
from lipt.flow.outcome import Outcome, Trained
from lipt.flow.prepared import Prepared
from lipt.flow.race import Elsewhere, Race, of_winner
from lipt.runtime import Artifact, Context, Stage
from lipt.runtime.algorithm import check_trajectory, scoring_needs
from lipt.runtime.processes.parts import Made, make_parts
from lipt.stages.dispatch import dispatch
from lipt.stages.evaluate import evaluate
from lipt.stages.group import group
from lipt.stages.ingest import ingest
from lipt.stages.merge import check_quorum, deal, merge
from lipt.stages.pretrain import pretrain
from lipt.stages.score import blocks, score
from lipt.stages.train import train


def needs_models(config: Config) -> bool:
    """Whether the algorithm needs a model."""
    needs = scoring_needs(config)
    return needs.outputs or needs.trajectory


def trains_models(config: Config) -> bool:
    """Whether theta_* or the models of `score.runs` are trained: for the algorithm, for the first losses, or as the
    start of the main training."""
    train = config.train
    return needs_models(config) or train.first_losses == "trajectory" or train.start == "continue"


def has_swarm(config: Config) -> bool:
    """Whether jigsaws are trained and merged."""
    return trains_models(config) and not config.score.has_own_models and config.merge.method != "none"


def prepare(ctx: Context, train_elsewhere: TrainElsewhere = lambda _dataset, _indices: {}) -> Prepared:
    """Box 1: ingest the data, train theta_* (or the models of `score.runs`), draw the shards.

    Args:
        train_elsewhere: as for `initial_models`.

    Raises:
        RunError: fewer models of `score.runs` than the quorum arrived.
    """
    check_trajectory(ctx.config)
    dataset = ingest(ctx).make()
    if not trains_models(ctx.config):
        return Prepared(dataset=dataset)
    # Shards first: that fails at once if there are too few images.
    shards = dispatch(ctx, dataset).make() if has_swarm(ctx.config) else None
    made, lost = initial_models(ctx, dataset, train_elsewhere)
    failures = {index: error.message for index, error in lost.items()}
    return Prepared(dataset=dataset, initial=tuple(made.values()), shards=shards, failures=failures)


def train_jigsaws(ctx: Context, prepared: Prepared, indices: Iterable[int]) -> Made:
    """Box 2: train jigsaws; returns the finished ones, and the error of each lost one."""
    return make_parts(ctx, pretrain, dict.fromkeys(indices, prepared.swarm))


#: The jigsaws that arrived, by group.
Groups = Mapping[int, Sequence[Artifact]]


def merge_jigsaws(
    ctx: Context,
    prepared: Prepared,
    jigsaws: Sequence[Artifact],
    merge_elsewhere: Callable[[Groups], object] = lambda _groups: None,
    failures: Mapping[int, RunError] | None = None,
) -> Artifact:
    """Box 3: merge the jigsaws into theta_p; with groups, merge each group first.

    Args:
        merge_elsewhere: merges groups in worker pods. The rest is merged here.
        failures: the error of each lost jigsaw.

    Raises:
        RunError: fewer jigsaws than the quorum arrived; names the missing ones, and each reason and remedy once.
    """
    check_quorum(ctx.config, jigsaws, failures or {})
    dealt = deal(ctx.config, jigsaws)
    merge_elsewhere(dealt)
    return merge(ctx, *prepared.swarm, jigsaws, _all(merge_groups(ctx, prepared, dealt))).make()


def merge_groups(ctx: Context, prepared: Prepared, dealt: Groups) -> Made:
    """Merge each group of jigsaws into a soup."""
    return make_parts(ctx, group, {index: (*prepared.swarm, members) for index, members in dealt.items()})


def _all(parts: Made) -> list[Artifact]:
    """The artifacts of all parts; raises the error of a lost part."""
    made, lost = parts
    for error in lost.values():
        raise error
    return list(made.values())


def made_of(ctx: Context, artifact: Artifact | None, stage: str) -> tuple[Artifact, ...]:
    """The inputs of an artifact that `stage` made."""
    refs = artifact.inputs if artifact is not None else ()
    return tuple(ctx.artifact(ref) for ref in refs if ref.startswith(f"{stage}/"))


def score_and_select(
    ctx: Context,
    prepared: Prepared,
    merged: Artifact | None,
    race_elsewhere: Elsewhere = lambda _indices, _stage: None,
) -> Artifact:
    """Box 4: score the candidates and select the subset; with `select.race`, the one that wins the race.

    Args:
        race_elsewhere: does trainings of the race, given by index, in worker pods. The rest is done here.
    """
    scoring = Scoring.of(ctx, prepared, merged)
    scores = _all(scoring.run(ctx, range(scoring.blocks)))
    return Race.of(ctx, prepared.dataset, scores, *scoring.start).run(race_elsewhere)


def start_of(config: Config, prepared: Prepared, merged: Artifact | None) -> tuple[Artifact | None, Sequence[Artifact]]:
    """The model from which the main training starts: theta_p, or the first that arrived; None: random weights. And the
    models whose trajectories give its first losses."""
    start = (merged or prepared.initial[0]) if config.train.start == "continue" else None
    return start, prepared.initial if config.train.first_losses == "trajectory" else ()


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The models that score, and the number of blocks. Pods can share the blocks."""

    dataset: Artifact
    models: tuple[Artifact, ...]
    base: Artifact | None
    """theta_*, if the models are jigsaws."""
    blocks: int
    """Number of blocks; each is scored into one artifact."""
    start: tuple[Artifact | None, Sequence[Artifact]]
    """What the trainings of a race start from, as `start_of` says."""

    @classmethod
    def of(cls, ctx: Context, prepared: Prepared, merged: Artifact | None) -> Scoring:
        """The scoring of a run; 0 blocks without models."""
        start = start_of(ctx.config, prepared, merged) if ctx.config.select.race else (None, ())
        if not needs_models(ctx.config):  # they only give the first losses, or the start of the main training
            return cls(dataset=prepared.dataset, models=(), base=None, blocks=0, start=start)
        models, base = [merged] if merged is not None else list(prepared.initial), None
        if merged is not None and ctx.config.score.model == "jigsaws":  # those that arrived: the inputs of the merge
            models, base = list(made_of(ctx, merged, "pretrain")), prepared.initial[0]
        count = len(blocks(ctx, prepared.dataset))
        return cls(dataset=prepared.dataset, models=tuple(models), base=base, blocks=count, start=start)

    def stage(self, ctx: Context, index: int) -> Stage:
        """The stage that scores one block."""
        return score(ctx, self.dataset, self.models, self.base, index=index)

    def race(self, ctx: Context) -> Race:
        """The race on the scores."""
        return Race.of(ctx, self.dataset, self.made(ctx), *self.start)

    def made(self, ctx: Context) -> tuple[Artifact, ...]:
        """The scores of all blocks; on a dry run they may be only planned."""
        return tuple(ctx.artifact(self.stage(ctx, index).ref) for index in range(self.blocks))

    def run(self, ctx: Context, indices: Iterable[int]) -> Made:
        """Score these blocks."""
        return make_parts(ctx, score, dict.fromkeys(indices, (self.dataset, self.models, self.base)))


def train_and_evaluate(
    ctx: Context,
    prepared: Prepared,
    subset: Artifact,
    merged: Artifact | None = None,
    *,
    jigsaws: Iterable[Artifact] = (),
    failures: Mapping[int, str] | None = None,
) -> Outcome:
    """Box 5: train on the subset and evaluate the last epoch's model; returns the outcome of the whole run.

    Args:
        jigsaws: the jigsaws that arrived.
        failures: the error message of each lost jigsaw.
    """
    scores, race, losers = made_of(ctx, subset, "score"), dict[int, Artifact](), tuple[Artifact, ...]()
    if ctx.config.select.race:  # the scores are a part of its cost even if the winner reads none
        scoring = Scoring.of(ctx, prepared, merged)
        contest = scoring.race(ctx)
        scores, race, losers = scoring.made(ctx), contest.trainings(), contest.losers(subset)
    ctx = of_winner(ctx, subset)
    training = train(ctx, prepared.dataset, subset, *start_of(ctx.config, prepared, merged))
    if not all(each.is_finished for each in race.values()):  # a dry run that does not know the winner
        training = replace(training, label=f"{training.label}, if it wins")
    model = training.make()
    return Outcome(
        config=ctx.config,
        prepared=prepared,
        jigsaws=tuple(jigsaws),
        groups=made_of(ctx, merged, "group"),
        merged=merged,
        scores=scores,
        race=race,
        losers=losers,
        subset=subset,
        trained=Trained(model=model, evaluation=evaluate(ctx, prepared.dataset, model).make()),
        failures=dict(failures or {}),
    )


def run(ctx: Context) -> Outcome:
    """Run all boxes of one configuration, one after the other.

    Raises:
        RunError: a stage failed, or fewer jigsaws or models of `score.runs` than the quorum arrived.
    """
    prepared = prepare(ctx)
    jigsaws: dict[int, Artifact] = {}
    failures: dict[int, str] = {}
    merged = None
    if has_swarm(ctx.config):
        jigsaws, lost = train_jigsaws(ctx, prepared, range(ctx.config.dispatch.jigsaws))
        failures = {index: error.message for index, error in lost.items()}
        for index, why in failures.items():  # `merge_jigsaws` checks the quorum
            ctx.reporter.alert(f"pretrain[{index}] lost: {why}")
        merged = merge_jigsaws(ctx, prepared, list(jigsaws.values()), failures=lost)
    subset = score_and_select(ctx, prepared, merged)
    return train_and_evaluate(ctx, prepared, subset, merged, jigsaws=jigsaws.values(), failures=failures)


def with_config(ctx: Context, changes: dict[str, Any]) -> Context:
    """The same context with a changed configuration."""
    return replace(ctx, config=override(ctx.config, changes))
