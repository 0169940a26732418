"""The commands of the pages that need no cluster run, in the order of the page; `reader.py` says what is smaller.

All pages share one folder with one workspace, so a stage that two commands need runs once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.docs.commands import all_commands
from tests.docs.pages import PAGES, ROOT, blocks
from tests.docs.places import here
from tests.docs.reader import Reader, make, shell
from tests.docs.typed import typed

COMMANDS = [command for command in all_commands() if here(command)]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
WITH_COMMANDS = [page for page in NAMES if typed(page) or any(command.page == page for command in COMMANDS)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    root = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.syspath_prepend(str(root))
        patch.setenv("BROWSER", "true")  # the program that does nothing
        yield Reader(root)


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_run(
    page: str,
    reader: Reader,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = [command for command in COMMANDS if command.page == page]
    for line, together in groupby(mine, key=lambda command: command.line):
        others = []
        for command in together:
            if command.words[:2] == ("lipt", "--version") or command.words[0] not in ("lipt", "make", "export"):
                others.append(command.words)
            elif command.words[0] == "make":
                make(command.words[1], tmp_path)
            elif command.words[0] == "export":
                monkeypatch.setenv(*command.words[1].split("=", 1))
            else:
                capsys.readouterr()
                reader.types([in_our_store(word, request) for word in command.words])
                shown(page, line, capsys.readouterr().out)
        if others:
            shell(others, tmp_path)
    for words in typed(page):
        if words[1] in ("init", "pipeline"):  # they never replace a file
            monkeypatch.chdir(tmp_path)
        reader.types(words)
        monkeypatch.chdir(reader.folder)


def in_our_store(word: str, request: pytest.FixtureRequest) -> str:
    """A destination in an object store, in that of the tests."""
    return word.replace("s3://lipt", request.getfixturevalue("s3")) if word.startswith("s3://lipt") else word


def shown(page: str, line: int, printed: str) -> None:
    """A table of `lipt plan` that a page shows right below a command is what that command prints first."""
    after = next((block for block in blocks(page=page) if block.line > line), None)
    if after and after.language == "text" and after.code.startswith("stage "):
        expected = [text.rstrip() for text in after.code.splitlines()]
        assert [text.rstrip() for text in printed.splitlines()][: len(expected)] == expected
