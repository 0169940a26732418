"""The table of `lipt compare`, as README and docs/results show it.

    python -m benchmarks.compare_table REPORT.json

REPORT.json is the `report.json` of a comparison, or its rows alone. The last column is the compute in all, with
choice and test, in epochs of training on all candidates: the FLOPs of the row over those of the random row, whose
training sees as many images as there are candidates.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from benchmarks.tables import apart, markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    rows = json.loads(parser.parse_args().report.read_text(encoding="utf-8"))["rows"]
    accuracies = {
        row["name"]: {seed: 100 * share for seed, share in zip(row["seeds"], row["accuracy"], strict=True)}
        for row in rows
    }
    (reference,) = (row for row in rows if row["name"] == "stratified")
    texts = []
    for row in sorted(rows, key=lambda row: -statistics.mean(row["accuracy"])):
        own = accuracies[row["name"]]
        texts.append(
            [
                row["label"],
                f"{100 * row['kept_fraction']:g} %",
                f"{statistics.mean(own.values()):.1f} ± {statistics.stdev(own.values()):.1f}",
                apart(own, accuracies["stratified"]) if row is not reference else "",
                f"{row['flops'] / reference['train_flops']:.1f}",
            ]
        )
    print(markdown(["method", "kept", "accuracy", "minus class-balanced random", "epochs of compute"], texts))


if __name__ == "__main__":
    main()
