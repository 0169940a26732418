"""The race of selections: who takes part, who is ahead, whose subset the main training gets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lipt.errors import RunError
from lipt.progress import QuietReporter
from lipt.runtime import Artifact, Context, Stage
from lipt.runtime.algorithm import contestants, label_with_options, needs_of
from lipt.runtime.processes.parts import Made, make_parts
from lipt.stages.race import DIVERGED, race
from lipt.stages.select import select

#: Does trainings of the race in worker pods: (their indices, the stage of an index).
Elsewhere = Callable[[list[int], Callable[[int], Stage]], object]


@dataclass(frozen=True, kw_only=True)
class Race:
    """The race of one run; without `select.race`, its only contestant wins without a training."""

    ctx: Context
    dataset: Artifact
    selections: Sequence[Stage]
    """The selection of each contestant."""
    start: Artifact | None
    """The model from which the main training starts (`train.start: continue`)."""
    recorded: Sequence[Artifact]
    """The models whose trajectories give its first losses (`train.first_losses`)."""

    @classmethod
    def of(
        cls,
        ctx: Context,
        dataset: Artifact,
        scores: Sequence[Artifact],
        start: Artifact | None,
        recorded: Sequence[Artifact],
    ) -> Race:
        """The race on these scores."""
        selections = []
        for config in contestants(ctx.config):
            needs = needs_of(config)
            read = scores if needs.outputs or needs.trajectory else []
            selections.append(select(replace(ctx, config=config), dataset, read))
        return cls(ctx=ctx, dataset=dataset, selections=selections, start=start, recorded=recorded)

    @property
    def rounds(self) -> list[float]:
        """Share of the steps in each round."""
        return self.ctx.config.select.race.rounds if self.ctx.config.select.race else []

    @cached_property
    def subsets(self) -> list[Artifact]:
        """The subset of each contestant."""
        return [selection.make() for selection in self.selections]

    def stage(self, index: int) -> Stage:
        """A training of the race, by index of `stages.race`."""
        return race(self.ctx, *self._inputs(index), index=index)

    def _inputs(self, index: int) -> tuple[Artifact, Artifact, Artifact | None, Sequence[Artifact]]:
        return self.dataset, self.subsets[index % len(self.subsets)], self.start, self.recorded

    def run(self, elsewhere: Elsewhere) -> Artifact:
        """Select for every contestant, run all rounds, and return the winner's subset.

        Of equal contestants the one that was ahead before is ahead, in the first round the one that is named first.
        Class-balanced random is the first. On a dry run that does not know the winner, the first of the others is it.

        Args:
            elsewhere: does trainings in worker pods. The rest is done here.

        Raises:
            RunError: a training failed, or all of a round diverged.
        """
        field, unknown = list(range(len(self.subsets))), list[int]()
        labels = [label_with_options(contestant) for contestant in contestants(self.ctx.config)]
        for number, share in enumerate(self.rounds):
            indices = [number * len(self.subsets) + contestant for contestant in field]
            elsewhere(indices, self.stage)
            if unknown:
                self.ctx.reporter.note(f"race, {100 * share:g} %", f" would run  the {len(field)} that are ahead")
            made, lost = self.train(indices, silent=bool(unknown))
            for error in lost.values():
                raise error
            if all(artifact.is_finished for artifact in made.values()):
                ended = {contestant: made[index] for contestant, index in zip(field, indices, strict=True)}
                shown = ", ".join(f"{labels[contestant]} {_end(training)}" for contestant, training in ended.items())
                self.ctx.reporter.say(f"race, {100 * share:g} % of the steps, validation accuracy: {shown}")
                for contestant, training in ended.items():
                    if why := training.summary.get(DIVERGED):
                        self.ctx.reporter.alert(f"{labels[contestant]} is out of the race: {why}")
                field = ahead({contestant: _reached(training) for contestant, training in ended.items()})
                if not field:
                    names = ", ".join(labels[contestant] for contestant in ended)
                    raise RunError(f"every training of the race diverged: {names}", "lower train.lr")
            else:  # a dry run: how many go on is known, who is not
                unknown = unknown or field
                field = field[: math.ceil(len(field) / 2)]
        # Class-balanced random, the first, is often trained anyway. If it won in a plan, a training would be missing.
        winner = next((contestant for contestant in unknown if contestant), 0) if unknown else field[0]
        return self.subsets[winner]

    def train(self, indices: Iterable[int], *, silent: bool = False) -> Made:
        """Do these trainings of the race.

        Args:
            silent: of a dry run that does not know who takes part.
        """
        ctx = replace(self.ctx, reporter=QuietReporter()) if silent else self.ctx
        return make_parts(ctx, race, {index: self._inputs(index) for index in indices})

    def trainings(self) -> dict[int, Artifact]:
        """The finished trainings by index. Those of contestants that are out are left out, although another race on
        these subsets may have done them. On a dry run also the planned ones, of any contestants after the first round.
        """
        subsets, found = [self._made(selection) for selection in self.selections], dict[int, Artifact]()
        field = list(range(len(subsets)))
        for number in range(len(self.rounds)):
            indices = [number * len(subsets) + contestant for contestant in field]
            made = {index: self._trained(index, subsets[index % len(subsets)]) for index in indices}
            done = {index: artifact for index, artifact in made.items() if artifact is not None}
            found |= done
            if len(done) < len(field):
                break
            field = ahead(dict(zip(field, map(_reached, done.values()), strict=True)))
        return found

    def losers(self, winner: Artifact) -> tuple[Artifact, ...]:
        """The other subsets; on a dry run they may be only planned."""
        return tuple(self.ctx.artifact(each.ref) for each in self.selections if each.ref != winner.ref)

    def _trained(self, index: int, subset: Artifact | None) -> Artifact | None:
        """The training of an index; None if it is not finished."""
        return subset and self._made(race(self.ctx, self.dataset, subset, self.start, self.recorded, index=index))

    def _made(self, stage: Stage) -> Artifact | None:
        """The finished artifact; None if there is none. On a dry run it may be only planned."""
        return self.ctx.artifact(stage.ref) if self.ctx.dry_run else stage.find()


def _reached(training: Artifact) -> float | None:
    """Its accuracy; 0 if it is only planned, None if it diverged."""
    return None if DIVERGED in training.summary else float(training.summary.get("accuracy", 0))


def _end(training: Artifact) -> str:
    """The accuracy of a finished training, if it has one."""
    reached = _reached(training)
    return "diverged" if reached is None else f"{100 * reached:.1f} %"


def ahead(reached: Mapping[int, float | None]) -> list[int]:
    """The better half of the field (rounded up), best first; of equal ones the first.

    Args:
        reached: contestant -> accuracy, in the order of the field; None: its training diverged, so it is out.
    """
    accuracies = {contestant: accuracy for contestant, accuracy in reached.items() if accuracy is not None}
    return sorted(accuracies, key=lambda contestant: -accuracies[contestant])[: math.ceil(len(reached) / 2)]


def of_winner(ctx: Context, subset: Artifact) -> Context:
    """The context with the selection that made this subset, in place of a race."""
    if ctx.config.select.race is None:
        return ctx
    made_by: dict[str, Any] = subset.settings["select"]
    chosen = type(ctx.config.select).model_validate(made_by)
    return replace(ctx, config=ctx.config.model_copy(update={"select": chosen}))
