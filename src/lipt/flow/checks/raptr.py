"""Checks of RaPTr's settings against the network and against the number of steps."""

import math
from collections.abc import Collection, Iterator

from torch import nn

from lipt.config import Config
from lipt.errors import UsageError
from lipt.flow.dag import trains_models
from lipt.runtime.budgets import kept_images, round_steps, steps_of
from lipt.runtime.network import raptr_schedule
from lipt.training.raptr import skippable_blocks


def check_blocks(config: Config, model: nn.Module, trainings: Collection[str]) -> None:
    """
    Args:
        trainings: those of this network, by the sections of their settings.

    Raises:
        UsageError: RaPTr is on, but may skip no block of the network.
    """
    for section, settings in (("initialise", config.initialise), ("train", config.train)):
        if section in trainings and (schedule := raptr_schedule(settings.raptr)):
            try:
                schedule.choose(skippable_blocks(model))
            except UsageError as error:
                raise UsageError(f"{section}.{error.message}", error.remedy) from None


def schedule_problems(config: Config, candidates: int) -> Iterator[UsageError]:
    """Trainings with fewer steps than stages: they would end before the full network is trained."""
    theta_epochs = config.score.epochs if config.score.has_own_models else config.initialise.epochs
    parts = config.score.runs if config.score.disjoint else 1
    theta_steps = theta_epochs * math.ceil(candidates // parts / config.initialise.batch_size)
    if not trains_models(config):
        theta_steps = 0
    train_steps = steps_of(config.train, candidates, kept_images(config, candidates))
    shortest = "the training"
    if race := config.select.race:
        train_steps, shortest = round_steps(race.rounds[0], train_steps), "a training in the first round of the race"
    for section, raptr, steps, training in (
        ("initialise", config.initialise.raptr, theta_steps, "the training"),
        ("train", config.train.raptr, train_steps, shortest),
    ):
        if raptr and 0 < steps < len(raptr.keep):
            yield UsageError(
                f"{section}.raptr.keep: {len(raptr.keep)} stages need as many steps or more; {training} has {steps}",
                "list fewer stages, or train longer",
            )
