"""What a race of selections is worth, as docs/results/race.md shows it.

    python -m benchmarks.race_table RESULTS.jsonl ... --steps STEPS --rounds ROUND [ROUND ...] [--rounds ...]

Reads the trainings of `benchmarks.map`. A race trains every rule for ROUND steps and lets the better half on validation
images go on, as `select.race` does; its winner gets the main training of STEPS steps. `--rounds` may be given several
times, for several races. Two tables, with a column per race:

- the gain of the winner over class-balanced random; then that of the best of each seed in hindsight (random included,
  so it is never negative, and never bold), and of each rule of `--alone` without a race. Gains are in points of test
  accuracy, paired by seed, with the 95 % interval of Student's t; bold if it excludes 0;
- the rank correlation (Spearman) of each round's validation accuracy with the main training's test accuracy over the
  rules. In brackets, of all seeds: how many rules were on the same side of random in the round and at the end, without
  random itself. Then how often each rule won.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from benchmarks.map_table import Pair, label, with_scorer
from benchmarks.tables import difference, interval, markdown, read_records, signed
from lipt.flow.race import ahead

RANDOM = "random"


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """Accuracies in % by steps, kept share, rule, and seed with its type of processor."""

    test: Mapping[tuple[int, float, str, Pair], float]
    validation: Mapping[tuple[int, float, str, Pair], float]

    @classmethod
    def read(cls, lines: Sequence[dict[str, Any]], rules: Sequence[str] | None, first_round: int) -> Trainings:
        """The trainings of some rules (None: all that have the first round), each along the scorer of that round."""
        lines = [each | {"rule": with_scorer(each["rule"], each)} for each in lines]
        lines = [each for each in lines if not rules or each["rule"] in rules]
        epochs = {each["rule"]: each["epochs"] for each in lines if each["steps"] == first_round}
        lines = [each for each in lines if epochs.get(each["rule"]) == each["epochs"]]
        by_key = {
            (each["steps"], each["fraction"], each["rule"], (each["seed"], each.get("processor", ""))): each
            for each in lines
        }
        return cls(
            test={key: 100 * each["accuracy"] for key, each in by_key.items()},
            validation={key: each["validation"] for key, each in by_key.items() if each.get("validation") is not None},
        )

    @property
    def rules(self) -> list[str]:
        return sorted({rule for _, _, rule, _ in self.validation})

    def seeds(self, fraction: float, steps: Sequence[int]) -> list[Pair]:
        """Those that have all these trainings, of all rules, on one type of processor."""
        found = {seed for _, share, _, seed in self.test if share == fraction}
        return sorted(
            seed
            for seed in found
            if all((each, fraction, rule, seed) in self.test for each in steps for rule in self.rules)
        )


@dataclass(frozen=True, kw_only=True)
class Race:
    """The races of all seeds at one share."""

    final: Mapping[Pair, Mapping[str, float]]
    """Test accuracy of each rule after the main training."""
    winners: Mapping[Pair, str]
    correlations: Sequence[float]
    """Mean over the seeds, of each round."""
    foretold: Sequence[tuple[int, int]]
    """Rules on the same side of random in each round as at the end, and all of them, over the seeds."""

    def gains(self, chosen: Mapping[Pair, str]) -> list[float]:
        return [reached[chosen[seed]] - reached[RANDOM] for seed, reached in self.final.items()]

    @property
    def best(self) -> dict[Pair, str]:
        return {seed: max(reached, key=reached.__getitem__) for seed, reached in self.final.items()}


def raced(trainings: Trainings, fraction: float, rounds: Sequence[int], steps: int) -> Race | None:
    """None: no seed has all its trainings."""
    rules, seeds = trainings.rules, trainings.seeds(fraction, (*rounds, steps))
    if not seeds:
        return None
    final = {seed: {rule: trainings.test[steps, fraction, rule, seed] for rule in rules} for seed in seeds}
    reached = {
        seed: [{rule: trainings.validation[each, fraction, rule, seed] for rule in rules} for each in rounds]
        for seed in seeds
    }
    correlations = [
        statistics.mean(
            float(spearmanr([*reached[seed][number].values()], [*final[seed].values()])[0]) for seed in seeds
        )
        for number in range(len(rounds))
    ]
    foretold = [
        (sum(same_side(reached[seed][number], final[seed]) for seed in seeds), (len(rules) - 1) * len(seeds))
        for number in range(len(rounds))
    ]
    winners = {seed: winner(rules, reached[seed]) for seed in seeds}
    return Race(final=final, winners=winners, correlations=correlations, foretold=foretold)


def same_side(early: Mapping[str, float], late: Mapping[str, float]) -> int:
    """How many rules are above random both early and late, or in neither."""
    return sum((early[rule] > early[RANDOM]) == (late[rule] > late[RANDOM]) for rule in early if rule != RANDOM)


def winner(rules: Sequence[str], rounds: Sequence[Mapping[str, float]]) -> str:
    """The rule that is ahead after the last round. Random wins ties, then `dual`: `auto` names them in this order."""
    field = sorted(rules, key=lambda rule: (rule != RANDOM, rule != "dual"))
    for reached in rounds:
        field = [field[place] for place in ahead({place: reached[rule] for place, rule in enumerate(field)})]
    return field[0]


def gain(values: Sequence[float], *, bold: bool = True) -> str:
    return difference(*interval(values), bold=bold) if len(values) > 1 else "one seed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--steps", type=int, required=True, help="of the main training")
    parser.add_argument("--rounds", type=int, nargs="+", action="append", required=True, help="steps of each round")
    parser.add_argument("--rules", nargs="+", help="that race; default: all that have the first round")
    parser.add_argument("--alone", nargs="+", default=[], help="rules whose gain without a race is shown")
    parser.add_argument("--fractions", type=float, nargs="+", help="kept shares; default: all that have the races")
    given = parser.parse_args()
    trainings = Trainings.read(read_records(*given.results), given.rules, given.rounds[0][0])
    gains, courses, all_races = [], [], []
    for fraction in sorted({key[1] for key in trainings.validation if key[1] in (given.fractions or (key[1],))}):
        races = [each for rounds in given.rounds if (each := raced(trainings, fraction, rounds, given.steps))]
        if len(races) < len(given.rounds):
            continue
        alone = [gain(races[0].gains(dict.fromkeys(races[0].final, rule))) for rule in given.alone]
        won = [gain(race.gains(race.winners)) for race in races]
        kept = f"{100 * fraction:g} %"
        gains.append([kept, *won, gain(races[0].gains(races[0].best), bold=False), *alone])
        courses.append([kept, *map(_course, races)])
        all_races.append(races)
    names = [" and ".join(f"{steps:,}" for steps in rounds) for rounds in given.rounds]
    races_of = [f"rounds of {name} steps" if "and" in name else f"round of {name} steps" for name in names]
    print(markdown(["kept", *races_of, "best of each seed", *map(label, given.alone)], gains))
    print(f"\n{markdown(['kept', *races_of], courses)}")
    for name, same in zip(races_of, zip(*all_races, strict=True), strict=True):
        outcomes = [(race, seed) for race in same for seed in race.final]
        below = sum(race.final[seed][race.winners[seed]] < race.final[seed][RANDOM] for race, seed in outcomes)
        best = sum(race.final[seed][race.winners[seed]] == max(race.final[seed].values()) for race, seed in outcomes)
        print(f"\n{name}: in {below} of {len(outcomes)} races the winner was below random, in {best} the best rule")


def _course(race: Race) -> str:
    """The rank correlations, the rules on the right side of random, and how often each rule won."""
    rounds = zip(race.correlations, race.foretold, strict=True)
    found = signed(
        ", ".join(f"{f'{each:.2f}'.replace('0.', '.')} ({right} of {all_})" for each, (right, all_) in rounds)
    )
    counted = sorted(Counter(race.winners.values()).items(), key=lambda each: (-each[1], each[0]))
    return f"{found}: " + ", ".join(f"{count} {label(rule).replace(', ', ' ')}" for rule, count in counted)


if __name__ == "__main__":
    main()
