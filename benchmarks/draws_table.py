"""The tables of `benchmarks.draws`: `python -m benchmarks.draws_table RESULTS.jsonl`.

A row per draw, a column per steps, share of an epoch and pool: test accuracy in %, mean and standard deviation over the
seeds, and the difference from uniform draws of the same share from all images, in points, paired by seed, with the 95 %
interval of Student's t. `--over ROW` takes the differences from another row. `--pool RULE` takes them from the pool
that RULE chose, or with `same` from the row's own pool, instead of from all images.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from benchmarks.map_table import paired, with_scorer

#: (steps, share of an epoch, pool, rule that chose the pool)
Images = tuple[int, float, float, str]


def _compared(images: Images, pool: str) -> Images:
    """The images with which those of a column are compared."""
    steps, fraction, share, _ = images
    return images if pool == "same" else (steps, fraction, *((1.0, "random") if pool == "all" else (share, pool)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--over", default="uniform", help="the row from which differences are taken")
    parser.add_argument("--pool", default="all", help="its images: all, same, or the rule of a pool")
    given = parser.parse_args()
    found: dict[tuple[Images, str], dict[int, float]] = {}
    for line in map(json.loads, given.results.read_text().splitlines()):
        images = line["steps"], line["fraction"], line["pool"], line["pool_by"]
        found.setdefault((images, with_scorer(line["row"], line)), {})[line["seed"]] = 100 * line["accuracy"]
    columns = sorted({images for images, _ in found})
    names = [
        f"{steps:,} steps, {fraction:.0%} of {'all' if pool == 1 else f'{pool:.0%} by {rule}'}"
        for steps, fraction, pool, rule in columns
    ]
    print(f"| draw | {' | '.join(names)} |")
    print("|---" * (1 + len(columns)) + "|")
    for row in dict.fromkeys(row for _, row in found):
        cells = []
        for images in columns:
            ours, others = found.get((images, row), {}), found.get((_compared(images, given.pool), given.over), {})
            if len(ours) < 2:
                cells.append("")
                continue
            cell = f"{statistics.mean(ours.values()):.1f} ± {statistics.stdev(ours.values()):.1f}"
            difference = None if ours == others else paired(ours, others)
            cells.append(cell + (f", {difference[0]:+.2f} ± {difference[1]:.2f}" if difference else ""))
        print(f"| {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
