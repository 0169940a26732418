"""The tables of `benchmarks.map` for several trained networks, as docs/results shows them.

    python -m benchmarks.network_table RESULTS.jsonl ... --rules RULE ...

Prints what was measured of each trained network and each one that scored, then what networks gain that score
themselves. Gains and `--least` are those of `benchmarks.map_table`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.map_table import Cell, Entry, Pair, accuracies, cell_text, gains, label, percent, row_place, usual_seeds
from benchmarks.tables import apart, markdown, read_records

#: Trained networks as the pages name them, in the order of rows.
_NETWORKS = {
    "resnet18": "ResNet-18",
    "wrn28_10": "WRN-28",
    "vit_small": "vision transformer",
    "benchmarks.networks:convnet": "ConvNet",
}
_ITSELF = "itself"


def by_network(lines: Sequence[Mapping[str, Any]], rules: Sequence[str], least: int = 3) -> str:
    """In Markdown: a row per steps, share, trained network and the one that scored, and a column per rule.

    Only steps and shares that were measured with each of them, and random only on the processors of the other rules.
    """
    networks = [line["model"] for line in lines]
    assert len({name for name, _ in networks}) == len({*map(tuple, networks)}), "one width of each network"
    found: dict[tuple[str, str], dict[Cell, Entry]] = {}
    for network, scorer in {_networks(line) for line in lines if line["rule"] != "random"}:
        chosen = [line for line in lines if line["rule"] != "random" and _networks(line) == (network, scorer)]
        processors = {line.get("processor") for line in chosen}
        random = [
            line
            for line in lines
            if line["rule"] == "random" and _networks(line)[0] == network and line.get("processor") in processors
        ]
        measured = accuracies([*chosen, *random])
        made = {cell: each for cell in measured if cell[2] in rules and (each := gains(measured)(cell))}
        found[network, scorer] = {cell: each for cell, each in made.items() if each[1] >= least}
    shared = set[tuple[int, float]].intersection(*({cell[:2] for cell in each} for each in found.values()))
    columns = sorted({cell[2:] for each in found.values() for cell in each if cell[:2] in shared}, key=row_place)
    usual = max(usual_seeds(each) for each in found.values())
    order = [*_NETWORKS.values(), _ITSELF]
    rows = []
    for steps, fraction in sorted(shared, key=lambda each: each[::-1]):
        for pair in sorted(found, key=lambda pair: [order.index(name) for name in pair]):
            texts = [cell_text(found[pair].get((steps, fraction, *column)), usual) for column in columns]
            rows.append([percent(fraction), f"{steps:,}", *pair, *texts])
    return markdown(["kept", "steps", "trained network", "scored by", *(label(rule) for rule, _ in columns)], rows)


def own_trajectories(lines: Sequence[Mapping[str, Any]]) -> str:
    """In Markdown, for each network that also scored itself: by how much this is better than another one's scores."""
    found: dict[tuple[Any, ...], dict[str, dict[Pair, float]]] = {}
    for line in lines:
        network, scorer = _networks(line)
        if line["rule"] != "random":
            key = line["fraction"], line["steps"], network, line["rule"]
            found.setdefault(key, {}).setdefault(scorer, {})[line["seed"], line.get("processor", "")] = (
                100 * line["accuracy"]
            )
    both = {key: by for key, by in found.items() if len(by) == 2}
    rules = sorted({(rule, 0) for *_, rule in both}, key=row_place)
    rows = []
    order = [*_NETWORKS.values()]
    for fraction, steps, network in sorted({key[:3] for key in both}, key=lambda key: (*key[:2], order.index(key[2]))):
        cells = [both.get((fraction, steps, network, rule)) for rule, _ in rules]
        texts = [apart(by.pop(_ITSELF), *by.values()) if by else "" for by in cells]
        rows.append([percent(fraction), f"{steps:,}", network, *texts])
    return markdown(["kept", "steps", "itself minus ResNet-18", *(label(rule) for rule, _ in rules)], rows)


def _networks(line: Mapping[str, Any]) -> tuple[str, str]:
    """The trained network, and the one that scored."""
    scorer = line.get("scorer", line["model"])
    return _NETWORKS[line["model"][0]], _ITSELF if scorer == line["model"] else _NETWORKS[scorer[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--rules", nargs="+", required=True, help="the columns")
    parser.add_argument("--least", type=int, default=3, help="seeds of a cell that is shown")
    arguments = parser.parse_args()
    lines = read_records(*arguments.results)
    print(by_network(lines, arguments.rules, arguments.least))
    print(f"\n{own_trajectories(lines)}")


if __name__ == "__main__":
    main()
