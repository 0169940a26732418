"""The generated pages, and the generated module, are those of the code."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from docs.generate import commands, errors
from docs.generate.__main__ import GENERATORS
from lipt.cli import cli


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.PAGE.stem)
def test_a_generated_page_is_that_of_the_code(generator: ModuleType) -> None:
    page = generator.PAGE.read_text(encoding="utf-8")
    assert generator.text() == page, f"{generator.PAGE.name} is out of date: run `make reference`, commit it"


def test_every_error_of_the_source_is_listed() -> None:
    """Found without the parser that writes the page: the beginning of each message that is a plain text."""
    page = re.sub(r"\\(.)", r"\1", errors.PAGE.read_text(encoding="utf-8"))
    kinds = "Usage|Run|Integrity|DamagedData|MissingObject|Missing|Refused|Transient"
    begins = re.compile(rf'raise (?:{kinds})Error\(\s*f?"([^"{{\\]{{6,}})')
    texts = {text for path in errors.SOURCE.rglob("*.py") for text in begins.findall(path.read_text(encoding="utf-8"))}
    assert len(texts) > 50
    assert {text for text in texts if " ".join(text.split()) not in page} == set()


def test_every_error_has_a_place_on_the_page() -> None:
    rooms = tuple(f"lipt.{room}" for part in errors._PARTS.values() for room in part)
    assert {message.module for message in errors.messages() if not message.module.startswith(rooms)} == set()


def test_every_error_has_a_remedy() -> None:
    found = list(errors.messages())
    assert [each for each in found if not each.remedy.strip(" …")] == []
    page = errors.PAGE.read_text(encoding="utf-8").partition("## Every message")[2]
    assert len(re.findall(r"^\|", page, re.MULTILINE)) > 300
    assert re.findall(r"^.*\| *\|.*$", page, re.MULTILINE) == []


def test_a_computed_remedy_is_looked_up_in_the_source() -> None:
    by_cause = {each.cause: each.remedy for each in errors.messages()}
    assert by_cause["…: no folder in … is called like a class of …/"].startswith("sort ")  # a local variable
    assert by_cause["… is for lipt …, but this is lipt …"].startswith("kubectl apply ")  # an argument of the callers
    assert "manifests/overlays/kubeflow" in by_cause["ServiceAccount … may not …"]
    assert by_cause["no command …"].startswith("did you mean …?")


def test_every_line_of_help_fits_into_80_columns() -> None:
    shown = commands.text().split("\n## ", 1)[1]  # the head is prose
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_every_command_has_an_example_also_those_below_a_verb() -> None:
    helps = commands.text().split("\n## ")[1:]
    groups = {name.rpartition(" ")[0] for name in (each.partition("\n")[0] for each in helps)}
    for each in helps:
        name = each.partition("\n")[0]
        if name not in groups:
            assert f"\n  Example: {name} " in each, name


def test_every_exit_code_is_listed() -> None:
    page = errors.PAGE.read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE))
    in_help = set(re.findall(r"\b\d+\b", str(cli.epilog)))
    assert documented == in_help
    assert {str(kind.exit_code) for kind in errors._classes().values()} <= documented
