"""Plain wrong arguments of the library: each is a UsageError that says what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from selection_samples import make

from lipt.errors import UsageError
from lipt.selection import select


@pytest.mark.parametrize(
    ("algorithm", "option"), [("glister", "eta"), ("gradmatch", "lam"), ("graph_cut", "lam"), ("dual", "c_d")]
)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 10**400])
def test_an_option_is_a_finite_number(algorithm: str, option: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"option {option} of {algorithm}: .* is not a finite number"):
        select(algorithm, make(40, 3), k=4, **{option: value})


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({1: 2}, "notes cannot be stored: the name 1 is no text"),
        ({"a": {"b": 1, 2: 3}}, "notes cannot be stored: "),
        ([1], "notes are a list, not a mapping"),
        ("abc", "notes are a str, not a mapping"),
    ],
)
def test_notes_are_a_mapping_from_text(notes: Any, message: str) -> None:
    selection = select("random", make(20, 3), k=4)
    for fails in (lambda: select("random", make(20, 3), k=4, notes=notes), lambda: replace(selection, notes=notes)):
        with pytest.raises(UsageError, match=re.escape(message)):
            fails()
    assert replace(selection, notes={"epochs": np.int64(3)}).provenance["epochs"] == 3
