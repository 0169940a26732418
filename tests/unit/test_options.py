"""What verbs share: options of the form NAME=VALUE."""

from __future__ import annotations

import click
import pytest

from lipt.cli import main
from lipt.cli.options import Amount, parse_pairs
from lipt.errors import UsageError


def test_pairs_of_a_repeatable_option() -> None:
    assert parse_pairs("-p", ("a=1", "b=x=y", "a=2")) == {"a": "2", "b": "x=y"}
    with pytest.raises(UsageError, match="-p gpus: not of the form NAME=VALUE"):
        parse_pairs("-p", ("gpus",), ["gpus"])
    with pytest.raises(UsageError, match="-p gpu=1: not a parameter of pods") as caught:
        parse_pairs("-p", ("gpu=1",), ["gpus", "image"], of="pods")
    assert caught.value.remedy == "did you mean 'gpus'?"


@pytest.mark.parametrize("text", ["nan", "inf", "0"])
def test_an_amount_is_finite_and_in_its_range(text: str) -> None:
    kind = Amount(min=0, min_open=True)
    assert kind.convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "lipt run: missing argument 'CONFIG'\n  -> lipt run --help\n"),
        (["run", "a.yaml", "--sett", "a=b"], "lipt run: no option --sett\n  -> did you mean '--set'?\n"),
        (["gc", "runs", "--days", "x"], "lipt gc: invalid value for '--days': 'x' is not a valid number of days"),
    ],
)
def test_a_command_that_is_not_understood_has_the_form_of_all_errors(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(said)
