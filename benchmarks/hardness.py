"""Does a rule keep harder images than a random subset has? How often the scorer is wrong for its images.

    python -m benchmarks.hardness CONFIG RESULTS.jsonl [--set KEY=VALUE ...]

The scorers are those of `benchmarks.map`, beside RESULTS.jsonl; what is missing is trained. Prints the errors of the
scorer for the images that a rule keeps, in all epochs together, as a multiple of its errors for as many random images
of the same classes: the mean over seeds, by rule and share.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

import torch
from torch import Tensor

from benchmarks.journal import Journal, contexts, parser
from benchmarks.map_table import label
from benchmarks.scorers import RULES, candidates_of, problem_of, score
from benchmarks.tables import markdown
from lipt.rng import derive
from lipt.selection import Candidates, select

EPOCHS = 10


def hardness(candidates: Candidates, indices_K: Tensor) -> float:
    """How often the first trajectory is wrong for these images (K,), as a multiple of how often it is for random images
    of the same classes; the mean over all epochs. 1 = as often."""
    wrong_N = (candidates.trajectories[0].margin_NT <= 0).double().mean(1)
    labels_N = candidates.labels_N
    sums_C = torch.bincount(labels_N, weights=wrong_N, minlength=candidates.num_classes)
    means_C = sums_C / torch.bincount(labels_N, minlength=candidates.num_classes)
    return float(wrong_N[indices_K].sum() / means_C[labels_N[indices_K]].sum())


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--fractions", type=float, nargs="+", default=[0.01, 0.1, 0.2])
    arguments.add_argument("--rules", nargs="+", default=["dual", "ccs el2n", "dyn_unc"], choices=RULES)
    given = arguments.parse_args()
    journal = Journal(path=given.results, keys=())
    found: dict[tuple[str, float], list[float]] = defaultdict(list)
    for ctx in contexts(given):
        problem = problem_of(ctx)
        scored = score(problem, EPOCHS, [], journal.scorer(ctx.config, f"{EPOCHS}-seed{ctx.config.seed}"))
        candidates = candidates_of(problem, scored, "trajectory", EPOCHS)
        for rule in given.rules:
            algorithm, options, _ = RULES[rule]
            for fraction in given.fractions:
                seed = derive(ctx.config.seed, "map", "select")  # as in `benchmarks.map`
                chosen = select(algorithm, candidates, fraction=fraction, seed=seed, **options)
                found[rule, fraction].append(hardness(candidates, chosen.indices_K))
    head = ["rule", *(f"{100 * fraction:g} % kept" for fraction in given.fractions)]
    rows = [[label(rule), *(f"{fmean(found[rule, each]):.2f}" for each in given.fractions)] for rule in given.rules]
    print(markdown(head, rows))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
