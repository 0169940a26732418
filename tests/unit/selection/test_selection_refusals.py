"""Plain wrong arguments of the library: each is a UsageError that says what to do."""

from __future__ import annotations

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
