"""What a race of selections is worth.

    python -m benchmarks.race_table RESULTS.jsonl ... --steps STEPS --rounds ROUND [ROUND ...]

Reads the trainings of `benchmarks.map`. A race trains every rule for ROUND steps and lets the better half on validation
images go on, as `select.race` does; its winner gets the main training of STEPS steps. Per kept share: the rank
correlation (Spearman) of each round's validation accuracy with the main training's test accuracy over the rules, the
gain of the winner over class-balanced random, the gain of the best of each seed in hindsight (random included, so it is
never negative, and never bold), and of each rule. Gains are in points of test accuracy, paired by seed, with the 95 %
interval of Student's t; bold if it excludes 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr, t

from benchmarks.map_table import with_scorer
from lipt.flow.race import ahead

RANDOM = "random"


def winner(rules: list[str], rounds: list[dict[str, float]]) -> str:
    """The rule that is ahead after the last round; random is named first, so it wins ties."""
    field = sorted(rules, key=lambda rule: rule != RANDOM)
    for reached in rounds:
        field = [field[place] for place in ahead(range(len(field)), [reached[rule] for rule in field])]
    return field[0]


def interval(values: list[float], *, bold: bool = True) -> str:
    if len(values) < 2:
        return "one seed"
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.mean(values)
    text = f"{mean:+.1f} ± {half:.1f}"
    return f"**{text}**" if bold and abs(mean) > half else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, required=True, help="of the main training")
    parser.add_argument("--rounds", type=int, nargs="+", required=True, help="steps of each round")
    parser.add_argument("--rules", nargs="+", help="that race; default: all that have the first round")
    parser.add_argument("--fractions", type=float, nargs="+", help="kept shares; default: all that have the races")
    given = parser.parse_args()
    lines: list[dict[str, Any]] = [json.loads(line) for path in given.results for line in path.read_text().splitlines()]
    lines = [each | {"rule": with_scorer(each["rule"], each)} for each in lines]
    lines = [each for each in lines if not given.rules or each["rule"] in given.rules]
    epochs = {each["rule"]: each["epochs"] for each in lines if each["steps"] == given.rounds[0]}
    lines = [each for each in lines if epochs.get(each["rule"]) == each["epochs"]]  # of the same scorer
    test = {(each["steps"], each["fraction"], each["seed"], each["rule"]): 100 * each["accuracy"] for each in lines}
    seen = {(each["steps"], each["fraction"], each["seed"], each["rule"]): each.get("validation") for each in lines}
    raced = [key for key in seen if key[0] == given.rounds[0] and seen[key] is not None]
    rules = sorted({key[3] for key in raced})
    head = ["kept", "seeds", *(f"rank correlation, {steps} steps" for steps in given.rounds)]
    print(f"| {' | '.join([*head, 'winner', 'chosen', 'best of each seed', *rules])} |")
    print("|---" * (len(head) + 3 + len(rules)) + "|")
    races = below = best = 0
    for fraction in sorted({key[1] for key in raced if key[1] in (given.fractions or (key[1],))}):
        seeds = [
            seed
            for seed in sorted({key[2] for key in raced if key[1] == fraction})
            if all((steps, fraction, seed, rule) in seen for steps in (*given.rounds, given.steps) for rule in rules)
        ]
        if not seeds:
            continue
        final = {seed: {rule: test[given.steps, fraction, seed, rule] for rule in rules} for seed in seeds}
        rounds = {
            seed: [{rule: float(seen[steps, fraction, seed, rule]) for rule in rules} for steps in given.rounds]
            for seed in seeds
        }
        order = [
            statistics.mean(
                float(
                    spearmanr([rounds[seed][number][rule] for rule in rules], [final[seed][rule] for rule in rules])[0]
                )
                for seed in seeds
            )
            for number in range(len(given.rounds))
        ]
        chosen = {seed: winner(rules, rounds[seed]) for seed in seeds}
        below += sum(final[seed][chosen[seed]] < final[seed][RANDOM] for seed in seeds)
        best += sum(final[seed][chosen[seed]] == max(final[seed].values()) for seed in seeds)
        races += len(seeds)
        gains = {rule: [final[seed][rule] - final[seed][RANDOM] for seed in seeds] for rule in rules}
        cells = [f"{fraction:.0%}", str(len(seeds)), *(f"{each:.2f}" for each in order)]
        cells += [interval([final[seed][chosen[seed]] - final[seed][RANDOM] for seed in seeds])]
        cells += [", ".join(f"{list(chosen.values()).count(rule)} {rule}" for rule in sorted({*chosen.values()}))]
        cells += [interval([max(final[seed].values()) - final[seed][RANDOM] for seed in seeds], bold=False)]
        cells += [
            interval(gains[rule]) if rule != RANDOM else f"{statistics.mean(final[s][rule] for s in seeds):.1f}"
            for rule in rules
        ]
        print(f"| {' | '.join(cells)} |")
    print(f"\n{races} races: the winner was below random in {below}, and the best rule in {best}")


if __name__ == "__main__":
    main()
