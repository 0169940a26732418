"""The commands of the pages, word by word."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.pages import blocks

#: `NAME=$(…)`: the command inside counts, the assignment does not.
_ASSIGNED = re.compile(r"^(?:export )?\w+=\$\([^()]*\)")


@dataclass(frozen=True)
class Command:
    """A command in a shell block."""

    page: str
    line: int
    """Where its block begins."""
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def all_commands() -> Iterator[Command]:
    """Every command of every shell block, in the order of the pages."""
    for block in blocks("bash"):
        for words in commands(block.code):
            yield Command(block.page, block.line, tuple(words))


def commands(code: str) -> list[list[str]]:
    """The commands of a shell block, split into words; `$(…)` counts as a command of its own."""
    found = []
    for name, value in re.findall(r"^(\w+)=([^$\s]+)$", code, re.MULTILINE):
        code = code.replace(f"{name}={value}\n", "").replace(f"${name}", value)
    for line in code.replace("\\\n", " ").splitlines():
        for inner in re.findall(r"\$\(([^()]*)\)", line):
            found += commands(inner)
        words = shlex.split(_ASSIGNED.sub("", re.sub(r"(?<=\s)&(?=\s|$)", ";", line)), comments=True)
        while words:
            end = next(
                (i for i, word in enumerate(words) if word in (";", "|", "&&") or word.endswith(";")), len(words)
            )
            found += [words[:end]] if end else []
            words = words[end + 1 :]
    return found
