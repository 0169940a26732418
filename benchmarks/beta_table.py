"""How many hard samples should `ccs` drop? The table of docs/results/other-data, by data set.

    python -m benchmarks.beta_table NAME=RESULTS.jsonl ...

RESULTS.jsonl are records of `benchmarks.map` with the rules `ccs el2n, beta 0.2`, `ccs el2n, beta 0.2, theta_p` and so
on; the rules without `beta` are the default. Gains are those of `benchmarks.map_table`, of 1 % kept in 500 steps.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from benchmarks.map_table import accuracies, gains
from benchmarks.tables import markdown, read_records

#: Steps and kept share of the table.
CELL = (500, 0.01)
_RULE = re.compile(r"ccs el2n(?:, beta (?P<beta>[\d.]+))?(?P<theta_p>, theta_p)?")


def table(results: dict[str, Path]) -> str:
    """In Markdown: a row per scorer and dropped share, a column per data set."""
    rows: dict[tuple[bool, float], dict[str, str]] = {}
    for name, path in results.items():
        found = accuracies(read_records(path))
        entry = gains(found)
        for cell in found:
            told = _RULE.fullmatch(cell[2])
            made = entry(cell) if cell[:2] == CELL and told else None
            if told and made and made[1] >= 3:
                key = told["theta_p"] is None, float(told["beta"] or -1)
                rows.setdefault(key, {})[name] = made[0]
    texts = [
        [
            "the trajectory" if trajectory else "theta_p",
            f"{100 * beta:g} %" if beta >= 0 else "by default",
            *(by.get(name, "") for name in results),
        ]
        for (trajectory, beta), by in sorted(rows.items())
    ]
    return markdown(["scored by", "dropped", *results], texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="NAME=RESULTS.jsonl")
    pairs = [each.partition("=") for each in parser.parse_args().results]
    print(table({name: Path(path) for name, _, path in pairs}))


if __name__ == "__main__":
    main()
