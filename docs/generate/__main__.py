"""Write every generated page: `make reference`."""

from __future__ import annotations

from docs.generate import algorithms, budgets, commands, errors, examples, idea, rooms, settings

#: Each has the `PAGE` that it writes, and `text()`, what the page should hold.
GENERATORS = (algorithms, budgets, commands, errors, examples, idea, rooms, settings)

if __name__ == "__main__":
    for generator in GENERATORS:
        generator.PAGE.write_text(generator.text(), encoding="utf-8")
