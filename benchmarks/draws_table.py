"""The tables of `benchmarks.draws`: `python -m benchmarks.draws_table RESULTS.jsonl`.

A row per draw, a column per share of an epoch and pool: test accuracy in %, mean and standard deviation over the seeds,
and the difference from uniform draws of the same share from all images, in points, paired by seed, with the 95 %
interval of Student's t; bold if it excludes 0. `--over ROW` takes the differences from another row. `--pool RULE` takes
them from the pool that RULE chose, or with `same` from the row's own pool, instead of from all images.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.map_table import with_scorer
from benchmarks.tables import apart, markdown, read_records

#: (steps, share of an epoch, pool, rule that chose the pool)
Images = tuple[int, float, float, str]


def _compared(images: Images, pool: str) -> Images:
    """The images with which those of a column are compared."""
    steps, fraction, share, _ = images
    return images if pool == "same" else (steps, fraction, *((1.0, "random") if pool == "all" else (share, pool)))


#: Rows of the records, in the order of the table -> their names there.
_ROWS = {
    "uniform": "uniform (RS2)",
    "infobatch": "infobatch",
    "ordered": "ordered",
    "infobatch from scores": "infobatch, first losses from scores",
    "ordered from scores": "ordered, first losses from scores",
    "uniform + cost": "uniform, with the cost of the scores as more steps",
}


def _heading(images: Images) -> str:
    _, fraction, pool, rule = images
    drawn, kept = f"{100 * fraction:g} %", f"{100 * pool:g} %"
    if pool == 1:
        return f"{drawn} per epoch"
    return f"{drawn}, from " + (f"a random pool of {kept}" if rule == "random" else f"{kept} by `{rule}`")


def _difference(ours: dict[int, float], others: dict[int, float]) -> str:
    return "the same" if ours == others else apart(ours, others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--over", default="uniform", help="the row from which differences are taken")
    parser.add_argument("--pool", default="all", help="its images: all, same, or the rule of a pool")
    given = parser.parse_args()
    found: dict[tuple[Images, str], dict[int, float]] = {}
    names, order = dict[str, str](), dict[str, int]()
    for line in read_records(given.results):
        images = line["steps"], line["fraction"], line["pool"], line["pool_by"]
        name = with_scorer(line["row"], line)
        row = f"{name}, {line['variant']}" if "variant" in line else name
        names[row], order[row] = _ROWS[name] + row.removeprefix(name), list(_ROWS).index(name)
        found.setdefault((images, row), {})[line["seed"]] = 100 * line["accuracy"]
    found = {key: runs for key, runs in found.items() if len(runs) > 1}
    rows = sorted({row for _, row in found}, key=lambda row: (order[row], row))
    if given.over not in rows:
        parser.error(f"--over {given.over}: no such row; choose from: {'; '.join(rows)}")
    for steps in sorted({images[0] for images, _ in found}):
        columns = sorted(
            {images for images, _ in found if images[0] == steps},
            key=lambda images: (images[2] < 1, images[1], images[3] != "random", images),
        )
        accuracies, differences = [], []
        for row in rows:
            accuracy, gain = [names[row]], [names[row]]
            for images in columns:
                ours, others = found.get((images, row), {}), found.get((_compared(images, given.pool), given.over), {})
                sd = statistics.stdev(ours.values()) if ours else 0.0
                accuracy.append(f"{statistics.mean(ours.values()):.1f} ± {sd:.1f}" if ours else "")
                itself = (images, row) == (_compared(images, given.pool), given.over)
                gain.append(_difference(ours, others) if ours and not itself else "")
            accuracies.append(accuracy)
            differences.append(gain)
        heads = [f"draw, {steps:,} steps", *map(_heading, columns)]
        if len(columns) == 1:
            both = [[*accuracy, gain[1]] for accuracy, gain in zip(accuracies, differences, strict=True)]
            print(markdown([*heads, f"against {given.over}"], both), end="\n\n")
        else:
            print(markdown(heads, accuracies), end="\n\n")
            print(markdown([f"{heads[0]}, against {given.over}", *heads[1:]], differences), end="\n\n")


if __name__ == "__main__":
    main()
