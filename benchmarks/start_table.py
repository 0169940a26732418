"""Choices from random weights and from the weights of the model that scored, as docs/results shows them.

    python -m benchmarks.start_table RESULTS.jsonl

RESULTS.jsonl holds trainings of `benchmarks.map`, with and without `--start`. For each kept share: the test accuracy in
% of the model that scored, without a training on the kept images, and of each training. Then the difference from the
class-balanced random images that start from this model, paired by seed, in points, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.map_table import label
from benchmarks.tables import apart, markdown, read_records

_STARTS = {"scorer": "the scorer", "theta_p": "theta_p"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    lines = read_records(parser.parse_args().results)
    for fraction in sorted({line["fraction"] for line in lines if line["steps"]}):
        rows: dict[tuple[str, str, int], dict[int, float]] = {}
        for line in lines:
            if line["fraction"] == fraction or not line["steps"]:
                row = line.get("start", ""), line["rule"], line["steps"]
                rows.setdefault(row, {})[line["seed"]] = 100 * line["accuracy"]
        ((start, steps),) = {(start, steps) for start, rule, steps in rows if start and rule == "random"}
        reference, texts = rows[start, "random", steps], []
        for (begun, rule, trained), accuracy in rows.items():
            if begun in ("", start):
                name = "none: this model itself" if rule == "start" else label(rule)
                name += f", {trained:,} steps" if trained not in (0, steps) else ""
                mean, sd = statistics.mean(accuracy.values()), statistics.stdev(accuracy.values())
                compared = apart(accuracy, reference) if accuracy is not reference else ""
                texts.append([_STARTS.get(begun, "random weights"), name, f"{mean:.1f} ± {sd:.1f}", compared])
        print(markdown([f"start, {fraction:.0%} kept", "images", "accuracy", "minus random from this start"], texts))
        print()


if __name__ == "__main__":
    main()
