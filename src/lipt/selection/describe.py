"""The description and the options of an algorithm, read from its docstring and its signature."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from inspect import Parameter, getdoc
from typing import Any, get_args

from lipt.selection.api import requirements
from lipt.selection.auto import AUTO, auto_rule
from lipt.selection.needs import Requirements
from lipt.selection.options import keywords
from lipt.selection.registry import lookup

_FACTS = re.compile(r"(.+?)\. (?:Source: (.+?)\. )?Time: (.+?)\. Use: (.+?)\.(?: |$)")
_OPTION = r"^    {}: (.+\n(?:^        .+\n)*)"


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of an algorithm."""

    name: str
    values: str
    """The default, then the other values of a choice."""
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Description:
    """An algorithm in words."""

    name: str
    picks: str
    needs: str
    source: str
    time: str
    use: str
    options: tuple[Option, ...]

    def __str__(self) -> str:
        facts = {"needs": self.needs or "labels only", "use it": self.use, "time": self.time, "source": self.source}
        lines = [f"{self.name}: {self.picks}.", *(f"  {what}: {text}" for what, text in facts.items() if text)]
        lines += ["  options (default first):"] if self.options else ["  options: none"]
        for option in self.options:
            text = f"{option.name} ({option.values}): {option.meaning}"
            lines.append(textwrap.fill(text, 100, initial_indent=" " * 4, subsequent_indent=" " * 8))
        return "\n".join(lines)


def describe(algorithm: str) -> Description:
    """What the algorithm picks, what it needs, and its options: `print(lipt.describe("ccs"))`.

    Raises:
        UsageError: no such algorithm.
    """
    function = auto_rule if algorithm == AUTO else lookup(algorithm).function
    doc = (getdoc(function) or "") + "\n"
    facts = _FACTS.match(" ".join(doc.split()))
    assert facts, f"the docstring of {algorithm} needs a sentence, then `Time: ... Use: ...`; it is: {doc}"
    picks, source, time, use = facts.groups("")
    defaults, hints = keywords(function)
    options = [
        _option(name, default, hints[name], doc) for name, default in defaults.items() if default is not Parameter.empty
    ]
    # At 5 % `auto` is the algorithm that looks at a model.
    needs = _needs(requirements(algorithm, 0.05))
    return Description(
        name=algorithm, picks=picks, needs=needs, source=source, time=time, use=use, options=tuple(options)
    )


def _needs(needs: Requirements) -> str:
    outputs = " and ".join(what for what in ("logits", "features") if getattr(needs, what))
    several = f" of {needs.models} models or more" if needs.models > 1 else ""
    trajectory = " or a trajectory" if outputs else "a trajectory"
    return outputs + several + trajectory * needs.trajectory + "your scores" * needs.scores


def _option(name: str, default: Any, hint: Any, doc: str) -> Option:
    """For a default of None the docstring says `name: ... None = meaning`."""
    found = re.search(_OPTION.format(name), doc, flags=re.MULTILINE)
    meaning = " ".join(found[1].split()) if found else ""
    if default is None:
        of_none = re.search(r"None = ([^:;.(]+)", meaning)
        values = of_none[1].strip() if of_none else "null"
    else:
        values = ", ".join(str(value) for value in (default, *(each for each in get_args(hint) if each != default)))
    return Option(name=name, values=values, meaning=meaning)
