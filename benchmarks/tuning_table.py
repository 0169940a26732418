"""How well the kept images rank settings of a training, as docs/results shows it.

    python -m benchmarks.tuning_table RESULTS.jsonl

RESULTS.jsonl holds trainings of `benchmarks.tuning`. The reference is the test accuracy after a training on all images,
the mean of its seeds. For each share, number of steps and rule, as the mean over seeds: Spearman's rank correlation of
the validation accuracies with the reference, and the regret: how far the setting with the highest validation accuracy
is below the best one, in the reference. Then, for each setting, the test accuracy with class-balanced random images and
the gain of the other rules. Differences from class-balanced random images are paired by seed and have their 95 %
interval.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from benchmarks.map_table import label
from benchmarks.tables import difference, interval, markdown, read_records, signed

Setting = tuple[float, str]
#: Accuracy in %, or what is computed from it, by seed.
BySeed = dict[int, float]


def by_setting(lines: list[dict[str, Any]], accuracy: str) -> dict[int, dict[Setting, float]]:
    """seed -> setting -> accuracy in %."""
    found: dict[int, dict[Setting, float]] = {}
    for line in lines:
        found.setdefault(line["seed"], {})[line["lr"], line["augmentation"]] = 100 * line[accuracy]
    return found


def is_reference(line: Mapping[str, Any]) -> bool:
    """Is it a training on all images to the end?"""
    return bool(line["fraction"] == 1)


def reference_of(lines: list[dict[str, Any]]) -> dict[Setting, float]:
    """setting -> mean test accuracy after a training on all images."""
    seeds = by_setting([line for line in lines if is_reference(line)], "accuracy").values()
    return {each: statistics.mean(seed[each] for seed in seeds) for each in next(iter(seeds))}


def judged(trainings: list[dict[str, Any]], reference: Mapping[Setting, float]) -> tuple[BySeed, BySeed, BySeed]:
    """Test accuracy of the best setting by validation accuracy, rank correlation and regret, by seed."""
    validation, test = by_setting(trainings, "validation"), by_setting(trainings, "accuracy")
    accuracy, correlation, regret = BySeed(), BySeed(), BySeed()
    for seed, found in validation.items():
        if found.keys() == reference.keys():
            best = max(found, key=lambda setting: found[setting])
            order = sorted(reference)
            accuracy[seed] = test[seed][best]
            correlation[seed] = float(
                spearmanr([found[each] for each in order], [reference[each] for each in order])[0]
            )
            regret[seed] = max(reference.values()) - reference[best]
    return accuracy, correlation, regret


def compared(ours: BySeed, others: BySeed, digits: int) -> str:
    """Mean; then the difference from the others, if they are others, bold if its interval excludes 0."""
    mean = signed(f"{statistics.mean(ours.values()):.{digits}f}")
    pairs = [ours[seed] - others[seed] for seed in ours if seed in others]
    if ours is others or len(pairs) < 2:
        return mean
    apart, half = interval(pairs)
    text = signed(f"{apart:+.{digits}f} ± {half:.{digits}f}")
    return f"{mean} ({f'**{text}**' if abs(apart) > half else text})"


def gains(trainings: list[dict[str, Any]]) -> str:
    """In Markdown: for each setting, the test accuracy of random and the gain of the other rules over it."""
    rules = list(dict.fromkeys(line["rule"] for line in trainings))
    tests = {rule: by_setting([line for line in trainings if line["rule"] == rule], "accuracy") for rule in rules}
    random, rows = tests.pop("random"), []
    for setting in sorted({setting for seed in random.values() for setting in seed}):
        cells = [f"{statistics.mean(seed[setting] for seed in random.values()):.1f}"]
        for found in tests.values():
            pairs = [found[seed][setting] - random[seed][setting] for seed in random if setting in found.get(seed, {})]
            cells.append(difference(*interval(pairs)) if len(pairs) > 1 else "")
        rows.append([f"{setting[0]:g}", setting[1], *cells])
    return markdown(["learning rate", "augmentation", label("random"), *map(label, tests)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    lines = read_records(parser.parse_args().results)
    reference = reference_of(lines)
    print(
        markdown(
            ["learning rate", "augmentation", "accuracy"],
            [
                [f"{lr:g}", augmentation, f"{value:.1f}"]
                for (lr, augmentation), value in sorted(reference.items(), key=lambda each: -each[1])
            ],
        )
    )
    kinds = {(line["fraction"], line["steps"]): None for line in lines if not is_reference(line)}
    for fraction, steps in kinds:
        own = [line for line in lines if (line["fraction"], line["steps"]) == (fraction, steps)]
        rules = {
            rule: judged([line for line in own if line["rule"] == rule], reference)
            for rule in dict.fromkeys(line["rule"] for line in own)
        }
        random, rows = rules["random"], []
        for rule, found in rules.items():
            cells = [compared(a, b, digits) for a, b, digits in zip(found, random, (1, 2, 1), strict=True)]
            rows.append([label(rule), str(len(found[0])), *cells])
        head = [
            f"{fraction:.0%} kept, {steps:,} steps",
            "seeds",
            "accuracy of the setting found",
            "rank correlation",
            "regret",
        ]
        print("\n" + markdown(head, rows) + "\n\n" + gains(own))


if __name__ == "__main__":
    main()
