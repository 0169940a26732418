"""The tables of docs/results/cost.md have the numbers of the stored records."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

import pytest

from benchmarks.map_table import accuracies, gain
from benchmarks.tables import paired, read_records
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/results/cost.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks/results"
#: Beginning of a label -> rule of the records.
RULES = {
    "`ccs` on EL2N": "ccs el2n", "Dyn-Unc": "dyn_unc", "`dual`": "dual", "herding": "herding", "RS2": "RS2",
    "class-balanced random": "random",
}  # fmt: skip
T_95 = {5: 2.776, 6: 2.571}  # Student's t, by the number of pairs


def tables() -> list[list[list[str]]]:
    """The cells of each table of the page, its head first."""
    found = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    cells = [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()] for table in found]
    return [[table[0], *table[2:]] for table in cells]


def records(file: str, *, processor: str | None = None, **wanted: Any) -> dict[int, float]:
    """Seed -> accuracy in % of the runs.

    Args:
        processor: its type; None: the usual one.
    """
    found = [
        run
        for run in read_records(RESULTS / file)
        if run.get("processor") == processor and all(run[key] == value for key, value in wanted.items())
    ]
    assert sorted(run["seed"] for run in found) in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]), wanted
    return {run["seed"]: 100 * run["accuracy"] for run in found}


def difference(ours: Mapping[int, float], others: Mapping[int, float]) -> str:
    """As the page writes it."""
    gains = [ours[seed] - others[seed] for seed in ours.keys() & others.keys()]
    half = T_95[len(gains)] * stdev(gains) / math.sqrt(len(gains))
    text = f"{fmean(gains):+.1f} ± {half:.1f}".replace("-", "−")
    return f"**{text}**" if abs(fmean(gains)) > half else text


def rule_of(label: str) -> str:
    (rule,) = (rule for start, rule in RULES.items() if label.startswith(start))
    return rule


@pytest.mark.parametrize(
    ("number", "file", "fraction", "processor"),
    [
        (1, "cost-1-percent.jsonl", 0.01, "EPYC, AVX2"),
        (2, "frontier.jsonl", 0.05, None),
        (3, "map-8000-steps.jsonl", 0.05, None),
        (4, "map-8000-steps.jsonl", 0.1, None),
        (5, "frontier-10-percent.jsonl", 0.1, None),
        (11, "frontier.jsonl", 0.1, "Xeon, AMX"),
    ],
)
def test_choices_beside_random(number: int, file: str, fraction: float, processor: str | None) -> None:
    head, *rows = tables()[number]
    runs = [
        records(file, fraction=fraction, rule=rule_of(row[0]), steps=int(row[1].replace(",", "")), processor=processor)
        for row in rows
    ]
    randoms = {row[1]: found for row, found in zip(rows, runs, strict=True) if "random" in row[0]}
    for row, found in zip(rows, runs, strict=True):
        cells = dict(zip(head, row, strict=True))
        for seed in range(5):
            if (cell := cells.get(f"seed {seed}" if seed == 0 else f"{seed}")) is not None:
                assert cell == f"{found[seed]:.1f}", row
        assert cells["mean ± sd"] == f"{fmean(found.values()):.1f} ± {stdev(found.values()):.1f}", row
        for heading, cell in cells.items():
            if heading.endswith("minus this") and cell:
                assert cell == difference(runs[0], found), row
            elif steps := re.fullmatch(r"minus random of ([\d,]+) steps", heading):
                assert cell in ("", difference(found, randoms[steps[1]])), row
    assert sum("±" in cell for row in rows for cell in row) >= 3


def test_the_summary_follows_from_the_tables() -> None:
    """A gain that is named stands in a table or a list below; `random is better` where no choice gains."""
    _, *rows = tables()[0]
    below = PAGE.split("## At 1 per cent kept", 1)[1]
    named = [found for _, *cells in rows for cell in cells if (found := re.match(r"[0-9.]+", cell))]
    assert [found.string for found in named] == ["6 to 8", "9.6", "8.7", "3.2"]
    for gain_named in ("6.3 ± 1.7", "7.8 ± 2.0", "9.6 ± 2.3", "8.7 ± 2.4", "3.2 ± 2.0"):
        assert re.search(rf"\*\*\+?{gain_named}\*\*", below), gain_named
    for number, worth in ((6, ("1 % kept", "5 % kept")), (7, ("1 % kept",))):  # 2,000 and 500 steps
        head, *gains_of = tables()[number]
        for share, *gains in zip(head[1:], *(row[1:] for row in gains_of), strict=True):
            assert any(gain.startswith("**+") for gain in gains) == (share in worth)
            assert all(gain.startswith("**−") for gain in gains) == (share not in worth)
    assert [row[1] for row in rows] == ["6 to 8", *["random is better"] * 3]
    assert [row[2] for row in rows] == ["about 8", "about 3", "random is better", "random is better"]


def test_scores_of_theta_p_are_worth_their_cost_at_1_percent() -> None:
    """Its choice in 500 steps beside random of 2,000; on both types of processor, each seed counted once."""
    found = accuracies(read_records(RESULTS / "map-equal-batches.jsonl", RESULTS / "map-2000-steps.jsonl"))
    measured = {share: gain(found, (500, share, "ccs el2n, theta_p", 0), 2000) for share in (0.01, 0.05, 0.1, 0.2, 0.3)}
    mean, half, seeds = measured[0.01] or (0, 0, 0)
    assert f"**{mean:.1f} ± {half:.1f}** points above random images that are trained for 2,000 steps" in " ".join(
        PAGE.split()
    )
    assert seeds == 5
    assert all(each is not None and each[0] + each[1] < 0 for share, each in measured.items() if share > 0.01)


def test_several_networks_score_no_better_than_one() -> None:
    found = accuracies(read_records(RESULTS / "scorers.jsonl"))
    text, gains = " ".join(PAGE.split()), {}
    for share, rule, epochs in itertools.product((0.01, 0.1), ("dual", "ccs el2n"), (3, 10)):
        one, several = (500, share, rule, 10), (500, share, f"{rule}, 3 scorers", epochs)
        gains[share, rule, epochs] = paired(found[one], found[several])
    assert all(each and each[2] == 5 for each in gains.values())
    measurable = {cell: each for cell, each in gains.items() if each and abs(each[0]) > each[1]}
    assert sorted(measurable) == [(0.01, "dual", 3), (0.1, "dual", 3)]
    for (share, *_), (mean, half, _) in measurable.items():
        assert f"**{mean:.1f} ± {half:.1f}** points at {100 * share:.0f} %" in text or (
            f"and **{mean:.1f} ± {half:.1f}** at {100 * share:.0f} %" in text
        )


def test_more_steps_hardly_help_a_random_twentieth() -> None:
    shorter, longer = (records("map-8000-steps.jsonl", rule="random", fraction=0.05, steps=n) for n in (8000, 15030))
    ccs = records("map-2000-steps.jsonl", rule="ccs el2n", fraction=0.05, steps=2000)
    text = " ".join(PAGE.split())
    assert f"15,030 steps gained {difference(longer, shorter).lstrip('+')} points over 8,000" in text
    assert f"Against a random subset of 15,030 steps `ccs` is not told apart ({difference(ccs, longer)})" in text


def test_scorers_beside_each_other() -> None:
    _, *rows = tables()[8]
    wanted = {"file": "frontier.jsonl", "fraction": 0.1, "steps": 2000}
    random = records(rule="random", **wanted)
    assert f"random reaches {fmean(random.values()):.1f} %" in " ".join(PAGE.split())
    for label, _, *gains in rows:
        side = 8 if "8 x 8" in label else 16
        proxy = None if label.startswith("the whole width") else {"width": 8, "image_size": side}
        epochs = int(re.findall(r"(\d+) epochs", label)[0])
        for rule, printed in zip(("ccs el2n", "dual"), gains, strict=True):
            if printed:
                assert printed == difference(records(rule=rule, proxy=proxy, epochs=epochs, **wanted), random), label


def test_dyn_unc_beside_ccs_along_narrower_networks() -> None:
    _, *rows = tables()[10]
    wanted = {"file": "frontier.jsonl", "fraction": 0.1, "steps": 2000, "processor": "Xeon, AMX"}
    random = records(rule="random", **wanted)
    assert f"random reaches {fmean(random.values()):.1f} % there" in " ".join(PAGE.split())
    for label, _, *cells in rows:
        proxy = {"width": 8 if label.startswith("half") else 4, "image_size": 16}
        ccs, dyn_unc = (records(rule=rule, proxy=proxy, epochs=10, **wanted) for rule in ("ccs el2n", "dyn_unc"))
        assert cells == [difference(ccs, random), difference(dyn_unc, random), difference(dyn_unc, ccs)], label


def test_at_full_width() -> None:
    """This page beside random with the same FLOPs, and the page of the trajectories beside random."""
    wanted = {"file": "map-full-width.jsonl", "processor": "H200", "fraction": 0.1}
    random = records(rule="random", steps=2000, **wanted)
    whole, half = ({"proxy": None}, {"proxy": {"width": 32, "image_size": None}})
    _, *rows = tables()[12]
    longer: dict[int, float] = {}
    for label, steps, *cells in reversed(rows):
        rule = rule_of(label)
        network = {} if rule == "random" else half if "half" in label else whole
        found = records(rule=rule, steps=int(steps.replace(",", "")), **network, **wanted)
        longer = found if rule == "random" else longer
        shown = [f"{found[seed]:.1f}" if seed in found else "" for seed in range(6)]
        mean = f"{fmean(found.values()):.1f} ± {stdev(found.values()):.1f}"
        gains = [difference(found, random), "" if found is longer else difference(found, longer)]
        assert cells == [*shown, mean, *gains], label
    between = difference(
        *(records(rule=rule, steps=2000, **half, **wanted) for rule in ("ccs el2n", "dyn_unc"))
    ).replace("+", "")
    assert f"by {between} points" in " ".join(PAGE.split())
    there = (ROOT / "docs/results/trajectories.md").read_text(encoding="utf-8")
    for rule, label in {"ccs el2n": "`ccs`, EL2N", "dyn_unc": "Dyn-Unc", "dual": "`dual`", "RS2": "RS2"}.items():
        found = records(rule=rule, steps=2000, **whole, **wanted)
        cells = [f"{found[seed]:.1f}" for seed in range(6)]
        cells.append(f"{fmean(found.values()):.1f} ± {stdev(found.values()):.1f}")
        assert f"| {' | '.join([label, *cells, difference(found, random)])} |" in there


def test_a_quarter_of_the_width() -> None:
    wanted = {"file": "frontier.jsonl", "fraction": 0.1, "processor": "Xeon, AVX-512"}
    ours = records(rule="dyn_unc", proxy={"width": 4, "image_size": 16}, steps=2000, **wanted)
    random, longer = (records(rule="random", steps=steps, **wanted) for steps in (2000, 2451))
    text = " ".join(PAGE.split())
    assert f"Dyn-Unc along it gains {difference(ours, random)} points over random" in text
    assert f"gains {difference(longer, random).strip('*+')}, so Dyn-Unc" in text
    assert f"({difference(ours, longer)})" in text
