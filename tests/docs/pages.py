"""The pages a user reads, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "manifests/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(lipt [^`\n]+(?:\n[^`\n]+)?)`")


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str, page: str | None = None) -> list[Block]:
    """All blocks of all pages or of one; only those in these languages, if some are given."""
    chosen = [ROOT / page] if page else PAGES
    return [block for each in chosen for block in _of(each) if not languages or block.language in languages]


def script(page: str, start: str, words: Mapping[str, str] | None = None, *, without: Sequence[str] = ()) -> str:
    """The shell block of a page that starts so.

    Args:
        words: word -> what stands there instead; each of them occurs.
        without: beginnings of commands that are left out; each of them begins one or more.
    """
    (code,) = [block.code for block in blocks("bash", page=page) if block.code.startswith(start)]
    for beginning in without:
        code, found = re.subn(rf"^{re.escape(beginning)}(.*\\\n)*.*\n", "", code, flags=re.MULTILINE)
        assert found, f"{page}: no command begins with {beginning!r}"
    for word, value in (words or {}).items():
        assert word in code, f"{page}: no {word!r} in {code!r}"
        code = code.replace(word, value)
    return code


def _of(page: Path) -> Iterator[Block]:
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    for found in _FENCE.finditer(text):
        indent, language, code = found.groups()
        code = re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
        yield Block(name, text.count("\n", 0, found.start()) + 1, language, code)


def inline_commands() -> Iterator[tuple[str, str]]:
    """Every `lipt …` within a sentence, with the page."""
    for page in PAGES:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for found in _INLINE.finditer(text):
            yield page.relative_to(ROOT).as_posix(), " ".join(found[1].split())


def written(page: str) -> dict[str, str]:
    """The files that a page tells its reader to write: blocks that begin with `# NAME`. Other pages use photos.yaml."""
    named = {}
    for block in blocks("yaml", "python"):
        first = re.match(r"# (\w+\.\w+)\n", block.code)
        if first and (block.page == page or first[1] == "photos.yaml"):
            named[first[1]] = block.code
    return named
