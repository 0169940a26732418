"""Which images do the rules keep? A picture of what a trajectory says of each image, with the choice of each rule.

    python -m benchmarks.data_map CONFIG RESULTS.jsonl --figure docs/figures/data-map.svg

RESULTS.jsonl names the scorers that `benchmarks.map` left beside it, in RESULTS.scorers/; one that is missing is
trained. Each panel is the data map of Swayamdipta et al. (EMNLP 2020): the mean of p(true class) over the epochs of the
scorer against its standard deviation. It shows a random part of the candidates, those that the rule keeps in colour.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from benchmarks.journal import Journal, contexts
from benchmarks.map import KEYS, arguments_of
from benchmarks.scorers import RULES, candidates_of, problem_of, scored_for
from docs.generate.svg import CHOSEN, PLAIN
from lipt.rng import derive
from lipt.selection import select

#: Rule -> title of its panel, from left to right.
PANELS = {
    "random": "class-balanced random",
    "ccs el2n": "ccs",
    "dual": "dual",
    "dyn_unc": "Dyn-Unc",
    "el2n": "el2n: the hardest",
}
EPOCHS = 10
SHOWN = 500  # points of a panel


def draw(p_NE: Tensor, kept: dict[str, Tensor], shown: Tensor, path: Path) -> None:
    """Write the picture.

    Args:
        p_NE: p(true class) of each candidate after each epoch.
        kept: title of a panel -> the rows that its rule keeps.
        shown: the rows that are drawn.
    """
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "lipt"  # ids would be random otherwise
    figure, axes = pyplot.subplots(
        1, len(kept), figsize=(2.2 * len(kept), 2.9), sharex=True, sharey=True, layout="constrained"
    )
    mean_N, deviation_N = p_NE.mean(dim=1), p_NE.std(dim=1, correction=0)
    for axis, (title, rows_K) in zip(axes.flat, kept.items(), strict=True):
        inside = torch.isin(shown, rows_K)
        for rows, colour, size in ((shown[~inside], PLAIN, 5), (shown[inside], CHOSEN, 14)):
            axis.scatter(deviation_N[rows], mean_N[rows], s=size, color=colour, linewidths=0)
        axis.set_title(title, fontsize="medium")
        axis.set_xticks([0, 0.2, 0.4])
        axis.set_yticks([0, 0.5, 1], ["hard  0", ".5", "easy  1"])
        axis.tick_params(length=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes.flat[0].set_ylabel("mean of p(true class)")
    figure.supxlabel("standard deviation of p(true class) over the epochs", fontsize="medium")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--figure", type=Path, required=True)
    given = parser.parse_args()
    given.seeds, given.epochs = given.seeds[:1], [EPOCHS]
    (ctx,) = contexts(given)
    problem = problem_of(ctx)
    cells = [{"rule": rule, "epochs": EPOCHS} for rule in PANELS]
    scored = scored_for(problem, given, Journal(path=given.results, keys=KEYS), cells)
    size, kept = len(problem.images), {}
    for rule, title in PANELS.items():
        algorithm, options, reads = RULES[rule]
        candidates = candidates_of(problem, scored, reads, EPOCHS)
        seed = derive(ctx.config.seed, "map", "select")
        kept[title] = select(algorithm, candidates, k=size // 10, seed=seed, **options).indices_K
    shown = torch.randperm(size, generator=torch.Generator().manual_seed(ctx.config.seed))[:SHOWN]
    draw(scored["p"][:, :EPOCHS], kept, shown, given.figure)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
