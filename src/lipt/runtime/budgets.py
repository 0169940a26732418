"""The two budgets of a run in images, and the batches and steps of its main training."""

import math

from lipt.config import Config, Train
from lipt.training.batches import batch_sizes
from lipt.training.draws import InfoBatch


def kept_images(config: Config, candidates: int) -> int:
    """The kept budget: how many of the candidates `lipt.selection.select` keeps."""
    return max(1, round(config.select.fraction * candidates))


def epoch_budget(settings: Train, candidates: int) -> int | None:
    """The trained budget: how many images an epoch draws from the subset; None: the whole subset."""
    return None if settings.epoch_fraction is None else max(1, round(settings.epoch_fraction * candidates))


def epoch_images(settings: Train, candidates: int, kept: int) -> int:
    """Images of one epoch on a subset of `kept` images, before draws leave out any by their losses."""
    return min(epoch_budget(settings, candidates) or kept, kept)


def epoch_batches(settings: Train, candidates: int, kept: int) -> list[int]:
    """Images in each step of one epoch; arguments as of `epoch_images`."""
    return batch_sizes(epoch_images(settings, candidates, kept), settings.batch_size)


def smallest_batch(settings: Train, candidates: int, kept: int) -> int:
    """The fewest images of a step: more processes cannot share it. Arguments as of `epoch_images`."""
    sizes = epoch_batches(settings, candidates, kept)
    if settings.draw != "infobatch":
        return sizes[-1]
    # What stays of a draw may be one image more than a batch: two halves.
    fewest = InfoBatch.fewest(sum(sizes), settings.prune_probability)
    return min(sizes[-1], fewest, (settings.batch_size + 1) // 2)


def smallest_initial_batch(config: Config, candidates: int) -> int:
    """The same for theta_*, and for the models of `score.runs`, of which each may see a part of the candidates."""
    parts = config.score.runs if config.score.disjoint else 1
    images = candidates // parts, math.ceil(candidates / parts)
    return min(batch_sizes(each, config.initialise.batch_size)[-1] for each in images)


def epochs_of(settings: Train, candidates: int, kept: int) -> int:
    """Epochs of the whole training; with `train.steps` the last one may end early. Arguments as of `epoch_images`."""
    if settings.steps is None:
        return settings.epochs
    return math.ceil(settings.steps / len(epoch_batches(settings, candidates, kept)))


def steps_of(settings: Train, candidates: int, kept: int) -> int:
    """Optimiser steps of the whole training; arguments as of `epoch_images`."""
    return settings.steps or settings.epochs * len(epoch_batches(settings, candidates, kept))


def round_steps(share: float, whole: int) -> int:
    """Optimiser steps of a training in a round of a race.

    Args:
        whole: those of the main training.
    """
    return max(1, round(share * whole))


def passes_of(config: Config, candidates: int) -> float:
    """How often the main training sees each kept image. `draw: infobatch` may leave out some of these."""
    settings, kept = config.train, kept_images(config, candidates)
    epochs = steps_of(settings, candidates, kept) / len(epoch_batches(settings, candidates, kept))
    return epochs * epoch_images(settings, candidates, kept) / kept


def fuller_steps(settings: Train, candidates: int, kept: int, images_per_step: float) -> float:
    """Images in a step of a training, per image in a step of uniform draws: above 1 with `draw: infobatch`, which
    leaves out images and fills its batches again. `images_per_step` was measured; other arguments as of `epoch_images`.
    """
    if settings.draw != "infobatch":
        return 1.0
    return images_per_step * len(epoch_batches(settings, candidates, kept)) / epoch_images(settings, candidates, kept)
