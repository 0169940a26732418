"""The table of algorithms in its page.

Of an algorithm's docstring come its first sentence (what it picks) and `Source: ... Time: ... Use: ...`; of its
signature the options. For a default of None the docstring says `option: ... None = meaning`.
"""

from __future__ import annotations

import re
from inspect import Parameter, getdoc
from pathlib import Path
from typing import Any, get_args

from lipt.selection import ALGORITHMS, Requirements, requirements
from lipt.selection.auto import AUTO, auto_rule
from lipt.selection.registry import keywords, lookup

PAGE = Path(__file__).parents[1] / "reference/algorithms.md"
START, END = "<!-- `make reference` writes this table. -->\n", "<!-- End of the table. -->\n"
_HEAD = "| name | picks | needs | options (default first) | source | time | use it |\n|---|---|---|---|---|---|---|\n"
_FACTS = re.compile(r"(.+?)\. (?:Source: (.+?)\. )?Time: (.+?)\. Use: (.+?)\.(?: |$)")


def text() -> str:
    """The page with a new table between the two comments."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    return f"{before}{START}\n{_HEAD}{''.join(map(_row, ALGORITHMS))}\n{END}{rest.split(END)[1]}"


def _row(name: str) -> str:
    function = auto_rule if name == AUTO else lookup(name).function
    doc = " ".join((getdoc(function) or "").split())
    facts = _FACTS.match(doc)
    assert facts, f"the docstring of {name} needs a sentence, then `Time: ... Use: ...`; it is: {doc}"
    picks, source, time, use = facts.groups("")
    defaults, hints = keywords(function)
    options = [
        f"`{option}` ({_values(option, default, hints[option], doc)})"
        for option, default in defaults.items()
        if default is not Parameter.empty
    ]
    # At 5 % `auto` is the algorithm that looks at a model.
    cells = f"`{name}`", picks, _needs(requirements(name, 0.05)), ", ".join(options), source, time, use
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _needs(needs: Requirements) -> str:
    outputs = " and ".join(what for what in ("logits", "features") if getattr(needs, what))
    several = f" of {needs.models} models or more" if needs.models > 1 else ""
    return outputs + several + "forgetting counts" * needs.forgetting + "your scores" * needs.scores


def _values(option: str, default: Any, hint: Any, doc: str) -> str:
    """The default (for None what the docstring says), then the other values of a choice."""
    if default is None:
        meaning = re.search(rf" {option}: .*?None = ([^:;.(]+)", doc)
        return meaning[1].strip() if meaning else "null"
    return ", ".join(str(value) for value in (default, *(each for each in get_args(hint) if each != default)))
