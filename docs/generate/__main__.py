"""Write every generated page, and the module of signatures: `make reference`."""

from __future__ import annotations

from docs.generate import (
    algorithms,
    budgets,
    commands,
    errors,
    examples,
    idea,
    report_json,
    rooms,
    settings,
    signatures,
)

#: Each has the `PAGE` that it writes, and `text()`, what the page should hold.
GENERATORS = (algorithms, budgets, commands, errors, examples, idea, report_json, rooms, settings, signatures)

if __name__ == "__main__":
    for generator in GENERATORS:
        generator.PAGE.write_text(generator.text(), encoding="utf-8")
