"""The tables of docs/results are what the commands that their pages name print from the stored records."""

from __future__ import annotations

import importlib
import json
import shlex
import sys

import pytest

from benchmarks.network_table import by_network
from benchmarks.tables import paired, read_records
from lipt.flow.paper import NAMES, PaperSweep
from lipt.report.sweep import read_lines
from tests.docs.pages import ROOT

RECORDS = ROOT / "benchmarks/results"
MAP = "map-equal-batches.jsonl map-2000-steps.jsonl map-8000-steps.jsonl"
RACE = "race-2000-steps.jsonl map-2000-steps.jsonl map-equal-batches.jsonl"


@pytest.mark.parametrize(
    ("page", "program", "files", "options"),
    [
        ("trajectories", "map_table", MAP, "FILES"),
        ("trajectories", "map_table", "", "map-32000-steps.jsonl --least 1"),
        ("trajectories", "map_table", MAP, 'FILES --over dual 10 --by-passes --rules "ccs el2n" dyn_unc'),
        ("other-data", "map_table", "", "map-digits.jsonl"),
        ("other-data", "map_table", "", "map-fashion-mnist.jsonl"),
        ("other-data", "map_table", "", 'map-mnist.jsonl --rules random dual "ccs el2n" dyn_unc "ccs el2n, theta_p"'),
        ("other-data", "map_table", "", "map-scenes.jsonl"),
        ("other-data", "map_table", "", "map-gtsrb.jsonl"),
        ("other-data", "map_table", "", "beta-digits.jsonl"),
        (
            "other-data",
            "beta_table",
            "",
            "CIFAR-10=beta-cifar10.jsonl Fashion-MNIST=beta-fashion-mnist.jsonl MNIST=map-mnist.jsonl "
            "GTSRB=map-gtsrb.jsonl",
        ),
        (
            "trajectories",
            "network_table",
            MAP,
            'FILES other-networks.jsonl --rules random "ccs el2n" dyn_unc dual "ccs el2n, theta_p"',
        ),
        ("trajectories", "map_table", "", "map-equal-batches.jsonl --against map-w8.jsonl"),
        (
            "cost",
            "map_table",
            "map-2000-steps.jsonl map-8000-steps.jsonl",
            'FILES --random-steps 8000 --steps 2000 --rules dual "ccs el2n" dyn_unc',
        ),
        (
            "cost",
            "map_table",
            "map-equal-batches.jsonl map-8000-steps.jsonl",
            'FILES --random-steps 8000 --steps 500 --rules dual "ccs el2n" dyn_unc',
        ),
        ("cost", "map_table", "", "scorers.jsonl"),
        ("training", "draws_table", "", "draws-500-steps.jsonl"),
        ("training", "draws_table", "", "draws-2000-steps.jsonl"),
        ("training", "draws_table", "", "draws-top-share.jsonl"),
        ("one-model", "compare_table", "", "compare-1-percent.json"),
        ("one-model", "map_table", "", f'{MAP} --steps 500 2000 8000 --rules "ccs el2n, theta_p"'),
        ("start", "start_table", "", "start-scorer.jsonl"),
        ("start", "start_table", "", "start-theta-p.jsonl"),
        ("tuning", "tuning_table", "", "tuning.jsonl"),
        ("race", "race_table", "", "map-w8.jsonl --steps 500 --rounds 50 --rounds 50 100 --alone dual"),
        (
            "race",
            "race_table",
            RACE,
            "FILES --steps 2000 --rounds 40 --rounds 100 --rounds 200 --rounds 500 "
            '--rules random dual "ccs el2n" "ccs aum" --fractions .05 .1 .2 .3 --alone dual',
        ),
        (
            "race",
            "race_table",
            RACE,
            'FILES --steps 2000 --rounds 500 --rules random dual "ccs el2n" dyn_unc --alone dual dyn_unc',
        ),
        (
            "race",
            "race_table",
            "",
            "race-1-percent.jsonl --steps 2000 --rounds 40 --rounds 100 --rounds 200 --rounds 500 "
            '--alone dual "ccs el2n" dyn_unc',
        ),
        (
            "race",
            "race_table",
            "",
            'map-gtsrb.jsonl --steps 2000 --rounds 500 --rules random dual "ccs el2n" dyn_unc --fractions .1 '
            '--alone dual dyn_unc "ccs el2n"',
        ),
        (
            "race",
            "race_table",
            "",
            "map-fashion-mnist.jsonl --steps 2000 --rounds 500 --rules random dual dyn_unc --fractions .1 "
            "--alone dual dyn_unc",
        ),
        *(
            (
                "race",
                "race_table",
                f"race-{name}.jsonl map-{name}.jsonl",
                'FILES --steps 500 --rounds 40 --rounds 100 --rules random dual "ccs el2n" "ccs el2n, theta_p" '
                '--fractions .01 --alone dual "ccs el2n, theta_p"',
            )
            for name in ("mnist", "fashion-mnist", "gtsrb")
        ),
        (
            "race",
            "race_table",
            RACE,
            "FILES map-8000-steps.jsonl --steps 8000 --rounds 500 --rounds 2000 --rounds 500 2000 "
            '--rules random dual "ccs el2n" dyn_unc --alone dual "ccs el2n" dyn_unc',
        ),
    ],
)
def test_a_table_is_printed(
    page: str,
    program: str,
    files: str,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / f"docs/results/{page}.md").read_text(encoding="utf-8")
    assert options.removeprefix("FILES ") in " ".join(text.split())
    arguments = shlex.split(options.replace("FILES", files))
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    monkeypatch.chdir(RECORDS)
    importlib.import_module(f"benchmarks.{program}").main()
    printed = [part for part in capsys.readouterr().out.split("\n\n") if part.startswith("|")]
    assert [part for part in printed if part.strip() not in text and part.count("\n| ") > 1] == []  # more than random
    assert printed


@pytest.mark.parametrize("shift", [1, -1])
def test_random_on_another_processor_stays_out_of_the_networks(shift: int) -> None:
    """The gains of a row are over the random trainings that it shows, in whichever order the records are read."""
    lines = read_records(RECORDS / "other-networks.jsonl")
    more = [{**line, "processor": "another", "accuracy": 0.0} for line in lines if line["rule"] == "random"]
    rules = ("random", "ccs el2n", "dual")
    assert by_network([*lines, *more][::shift], rules) == by_network(lines, rules)


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_the_paper_is_that_of_its_results(name: str) -> None:
    results = RECORDS / f"paper/{name}-cpu.jsonl"
    found = read_lines(results.read_text(encoding="utf-8"), str(results))
    assert results.with_suffix(".md").read_text(encoding="utf-8") == PaperSweep.load(name).page(found)


def test_the_first_table_of_the_readme_is_a_part_of_the_page() -> None:
    page, readme = (
        {line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line.startswith("| ")}
        for name in ("docs/results/one-model.md", "README.md")
    )
    (head,) = (
        line for line in readme if line.startswith("| method | kept | accuracy | minus class-balanced random | e")
    )
    assert head in page
    assert len(readme & page) == 8  # with the head


def test_the_gains_of_the_algorithms_are_a_part_of_the_page() -> None:
    """1, 10 and 30 % of the table of 1, 5, 10, 20 and 30 %."""
    pages = (ROOT / name for name in ("docs/results/trajectories.md", "docs/reference/algorithms.md"))
    page, algorithms = (each.read_text(encoding="utf-8").split("| 2,000 steps | 1 % kept")[1] for each in pages)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in page.split("\n\n")[0].splitlines()[2:]}
    shown = [line.split(" | ") for line in algorithms.split("\n\n")[0].splitlines()[2:]]
    assert len(shown) == 11
    assert [[name, rows[name][0], rows[name][2], rows[name][4]] for name, *_ in shown] == shown


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("stratified", "class-balanced random by {} points"),
        ("random", "plain random by {}."),
        ("random-longer", "random images that get it as 360 more steps are {} points below"),
        ("theta-p", "than the network that is trained on its choice**, by {} points"),
        ("random-continued", "start from theta_p are better by {}:"),
        ("theta-star", "theta_* alone is {} points worse"),
        ("rs2", "RS2 reaches {} points more"),
    ],
)
def test_the_differences_from_lipt_at_1_percent(other: str, said: str) -> None:
    rows = json.loads((RECORDS / "compare-1-percent.json").read_text(encoding="utf-8"))["rows"]
    accuracy = {
        row["name"]: {seed: 100 * share for seed, share in zip(row["seeds"], row["accuracy"], strict=True)}
        for row in rows
    }
    measured = paired(accuracy["lipt"], accuracy[other])
    assert measured is not None
    page = " ".join((ROOT / "docs/results/one-model.md").read_text(encoding="utf-8").split())
    assert said.format(f"{abs(measured[0]):.1f} ± {measured[1]:.1f}") in page
