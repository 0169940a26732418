"""The tables of `benchmarks.draws`: `python -m benchmarks.draws_table RESULTS.jsonl`.

A row per draw, a column per share of an epoch and pool: test accuracy in %, mean and standard deviation over the seeds,
and the difference from uniform draws of the same share from all images, in points, paired by seed, with the 95 %
interval of Student's t.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from benchmarks.map_table import paired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    found: dict[tuple[float, float, str], dict[int, float]] = {}
    for line in map(json.loads, parser.parse_args().results.read_text().splitlines()):
        found.setdefault((line["fraction"], line["pool"], line["row"]), {})[line["seed"]] = 100 * line["accuracy"]
    columns = sorted({(pool, fraction) for fraction, pool, _ in found}, reverse=True)
    print(f"| draw | {' | '.join(f'{fraction:.0%} of {pool:.0%}' for pool, fraction in columns)} |")
    print("|---" * (1 + len(columns)) + "|")
    for row in dict.fromkeys(row for *_, row in found):
        cells = []
        for pool, fraction in columns:
            ours, uniform = found.get((fraction, pool, row), {}), found[fraction, 1.0, "uniform"]
            if len(ours) < 2:
                cells.append("")
                continue
            cell = f"{statistics.mean(ours.values()):.1f} ± {statistics.stdev(ours.values()):.1f}"
            difference = None if ours is uniform else paired(ours, uniform)
            cells.append(cell + (f", {difference[0]:+.2f} ± {difference[1]:.2f}" if difference else ""))
        print(f"| {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
