"""Predict how many images a merge forwards."""

from itertools import pairwise

from lipt.config import Merge
from lipt.stages.merge import confirmation
from lipt.training.evaluator import looks

#: Share of models that are not behind their rival at a look (the first 256, 512, ... search images). Measured on
#: CIFAR-10.
_NOT_BEHIND = 0.4


def merge_images(settings: Merge, count: float, validation: int, shard: int) -> float:
    """Number of images that a merge forwards.

    Exact except for `coarse_to_fine`, and with `batchnorm: best`. There it assumes that `_NOT_BEHIND` of the models
    pass each look, and that recalibrated statistics win in half of the runs.
    """
    search = min(settings.search_images or validation, validation)
    early, stops = settings.search == "coarse_to_fine", [0, *looks(search)]
    passed = [_NOT_BEHIND**look if early else 1 for look in range(len(stops))]
    compared = sum(share * (stop - start) for share, (start, stop) in zip(passed, pairwise(stops), strict=False))
    fresh = (
        min(settings.recalibration_images, shard) * {"averaged": 0, "recalibrated": 1, "best": 0.5}[settings.batchnorm]
    )
    interpolated = settings.method == "greedy_interpolation"
    alphas = {"greedy": 1.0, "greedy_interpolation": 1 + 2 * passed[-1] if early else 10}.get(settings.method, 0)
    average = search + fresh + (compared + fresh if settings.batchnorm == "best" else 0)
    star = compared if interpolated and settings.fallback else 0
    searched = search + (count - 1) * compared + average + star + (count - 1) * alphas * (compared + fresh)
    last = confirmation(settings, validation)
    models = 4 if interpolated or settings.method == "greedy" else 3  # soup, average, best jigsaw, theta_*
    return searched + models * (last.stop - max(search, last.start)) + (0 if last.start else search - star)
