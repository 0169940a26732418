"""Every block of code of the pages is executed, or has one of a few reasons why not."""

from __future__ import annotations

import pytest

from tests.docs.commands import Command, all_commands
from tests.docs.places import EXEMPT, listed, places
from tests.docs.typed import HELP, typed


@pytest.mark.parametrize("command", sorted(set(all_commands()), key=str), ids=str)
def test_every_command_has_one_place(command: Command) -> None:
    assert len(places(command)) == 1, "run it in a test, or give the reason in places.EXEMPT"


def test_few_commands_are_exempt() -> None:
    found = listed()
    assert [reason for reason in EXEMPT if reason not in found] == []  # no reason is left over
    exempt = sum(len(found[reason]) for reason in EXEMPT)
    assert exempt <= 0.12 * sum(map(len, found.values()))


def test_an_unknown_command_has_no_place() -> None:
    for text in ("pip install another", "kubectl delete namespace lipt", "make clean", "lipt status argo/lipt/x"):
        assert places(Command("page", 1, tuple(text.split()))) == [], text


def test_the_example_of_every_local_verb_runs() -> None:
    verbs = {words[1] for words in typed(HELP)}
    assert verbs >= {"compare", "completion", "config", "doctor", "export", "gc", "ingest", "init", "ls", "open"}
    assert verbs >= {"pipeline", "plan", "report", "reproduce", "run", "select", "stage", "sweep"}
