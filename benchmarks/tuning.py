"""Do the kept images rank settings of a training as all images do?

    python -m benchmarks.tuning CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

Takes the arguments of `benchmarks.map` and does each of its trainings once for every learning rate of LRS, with and
without augmentation. The model that scores, and so the choice, is that of CONFIG and the same for all. Trainings
on all images, which the others are compared with, have the rule RS2 and the share 1. Each finished training is one line
of RESULTS.jsonl. A repeated call does what is missing.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import torch

from benchmarks.journal import Journal, common, contexts
from benchmarks.map import KEYS, arguments_of, cells, measured
from benchmarks.scorers import problem_of, scored_for
from lipt.config import override
from lipt.runtime.context import Context

LRS = (0.0125, 0.05, 0.2, 0.8)
AUGMENTATIONS = {"none": {"crop_padding": 0, "flip": False}, "shift and flip": {}}


def main() -> None:
    given = arguments_of(__doc__).parse_args()
    journal = Journal(path=given.results, keys=(*KEYS, "lr", "augmentation"))
    for ctx in contexts(given):
        settings = [{"lr": lr, "augmentation": name} for lr, name in itertools.product(LRS, AUGMENTATIONS)]
        missing = journal.missing(common(ctx.config) | cell | each for cell in cells(given) for each in settings)
        if not missing:
            continue
        problem = problem_of(ctx)
        scored = scored_for(problem, given, journal, missing)
        for cell in missing:
            changed = {"train": {"lr": cell["lr"]}, "data": AUGMENTATIONS[cell["augmentation"]]}
            own = replace(problem, ctx=Context.of(override(ctx.config, changed)))
            journal.measure(cell, partial(measured, own, scored, cell))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
