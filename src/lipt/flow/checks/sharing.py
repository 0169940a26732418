"""Checks of the batches of a training against those that share them."""

from collections.abc import Iterator

from lipt.config import Config
from lipt.errors import UsageError
from lipt.flow.dag import trains_models
from lipt.report.numbers import format_count
from lipt.runtime.budgets import epoch_images, kept_images, smallest_batch, smallest_initial_batch


def sharing_problems(config: Config, candidates: int, pods: int) -> Iterator[UsageError]:
    """Batches with fewer images than there are processes or pods, which share them. (A pod of several starts no more
    processes than its part of a batch has images.)"""
    processes = 1 if config.processes == "auto" else config.processes
    models = config.score.runs if config.score.has_own_models else 1
    kept = kept_images(config, candidates)
    drawn, smallest = epoch_images(config.train, candidates, kept), smallest_batch(config.train, candidates, kept)
    shared = [("train", config.train.batch_size, drawn, smallest, processes)]
    if trains_models(config):
        sharing = processes if processes > models else 1  # else each process trains whole models
        smallest = smallest_initial_batch(config, candidates)
        shared.append(("initialise", config.initialise.batch_size, candidates, smallest, sharing))
    for section, size, seen, images, sharing in shared:
        for setting, count in (("processes", sharing), ("train.nodes", pods)):
            if count > max(1, images):
                yield UsageError(
                    f"{setting}: {count} cannot share a batch of {format_count(images, 'image')} "
                    f"({section}.batch_size is {size})",
                    f"lower {setting}" + (f", or raise {section}.batch_size" if count <= seen else ""),
                )
