"""Does the reliability of scores order them as their accuracy does?

    python -m benchmarks.certainty CONFIG SCORERS RESULTS.jsonl

CONFIG is that of `benchmarks.map`, SCORERS the folder of scorers that it left, RESULTS.jsonl its results. For each rule
and each prefix of the scorer's epochs: the split-half reliability (even against odd epochs), the rank correlation of
the scores of two seeds on the candidates that both have (mean over all pairs), and the gain over class-balanced random.
Correlations are within classes, as the selections are balanced.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.map_table import accuracies, gain
from benchmarks.tables import markdown, read_records
from lipt.config import load_config
from lipt.data.shards import Positions
from lipt.runtime import Attempt, Context
from lipt.runtime.dataset import open_dataset, split_positions
from lipt.selection.algorithms.sampling import dual_scores
from lipt.selection.inputs.trajectory import DIFFICULTIES, Trajectory
from lipt.selection.reliability import class_correlation, spearman_brown
from lipt.stages.ingest import ingest
from lipt.training.tensor_files import unpack


def dual(trajectory: Trajectory) -> Tensor:
    return dual_scores(trajectory.p_NT, trajectory.epochs)[:, 1]


RULES: dict[str, Callable[[Trajectory], Tensor]] = {
    "dual": dual,
    "ccs el2n": DIFFICULTIES["el2n"],
    "ccs aum": DIFFICULTIES["aum"],
}


def halved(score: Callable[[Trajectory], Tensor], trajectory: Trajectory, labels_N: Tensor) -> float | None:
    """The split-half reliability; None if half of the epochs are too few for the rule."""
    even, odd = (trajectory.epochs_of(slice(start, trajectory.epochs // 2 * 2, 2)) for start in (0, 1))
    if score is dual and even.epochs < 2:
        return None
    return spearman_brown(class_correlation(score(even), score(odd), labels_N))


def across_seeds(scores: dict[int, Tensor], positions: dict[int, Positions], labels: Tensor) -> float | None:
    """Mean correlation of two seeds on their common candidates; None with one seed."""
    found = []
    for one, other in combinations(scores, 2):
        common, rows, others = np.intersect1d(positions[one], positions[other], return_indices=True)
        found.append(class_correlation(scores[one][rows], scores[other][others], labels[common]))
    return statistics.mean(found) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("scorers", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--fraction", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--epochs", type=int, nargs="+", default=[2, 5, 10])
    given = parser.parse_args()
    measured = accuracies(read_records(given.results))
    recorded = {}
    for path in sorted(given.scorers.glob("*.safetensors")):
        tensors, seed = unpack(path.read_bytes(), origin=str(path)), re.search(r"seed(\d+)$", path.stem)
        if "p" not in tensors:  # of a swarm
            continue
        assert seed, f"{path} names no seed"
        assert int(seed[1]) not in recorded, f"{path} is another scorer of the same seed: take one of them away"
        recorded[int(seed[1])] = Trajectory.of(tensors)
    positions = {}
    for seed in recorded:
        ctx = Context.of(load_config(given.config, [f"seed={seed}"]))
        dataset = open_dataset(Attempt(ctx=ctx, ref="map/0", label="map"), ingest(ctx).make())
        positions[seed], labels = split_positions(ctx, dataset)[1], torch.tensor(dataset.index("train").label)
    rows = []
    for rule, score in RULES.items():
        for epochs in given.epochs:
            first = {seed: each.epochs_of(slice(epochs)) for seed, each in recorded.items()}
            halves = [halved(score, each, labels[positions[seed]]) for seed, each in first.items()]
            between = across_seeds({seed: score(each) for seed, each in first.items()}, positions, labels)
            cell = given.steps, given.fraction, rule, epochs
            ahead = gain(measured, cell) if cell in measured else None
            shown = [
                "" if None in halves else f"{statistics.mean(halves):.2f}",
                f"{between:.2f}" if between is not None else "",
            ]
            shown.append(f"{ahead[0]:+.1f} ± {ahead[1]:.1f} ({ahead[2]})" if ahead else "")
            rows.append([rule, str(epochs), str(len(first)), *shown])
    print(markdown(["rule", "epochs", "seeds", "reliability", "between seeds", "gain in points"], rows))


if __name__ == "__main__":
    main()
