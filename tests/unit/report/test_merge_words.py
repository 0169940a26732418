"""The sentence about the merge: what was done with the jigsaws, and what became theta_p."""

import pytest

from lipt.flow.reporting.merge import _METHODS, _method


@pytest.mark.parametrize(
    ("chosen", "groups", "said"),
    [
        ("soup", False, "The jigsaws were tried one by one, the best first."),
        ("soup", True, "The jigsaws of each group, and then the soups of the groups, were tried one by one"),
        ("theta_star", False, "The result, theta_p, is theta_* itself, because nothing was better."),
        ("uniform", False, "The result, theta_p, is the average of all, because it was the best."),
        ("jigsaw-3", False, "The result, theta_p, is jigsaw 3 alone."),
        ("group-1", True, "The result, theta_p, is group 1 alone."),
    ],
)
def test_what_became_theta_p_is_said(chosen: str, groups: bool, said: str) -> None:
    assert said in _method("greedy_interpolation", chosen, groups=groups)


@pytest.mark.parametrize("method", _METHODS)
def test_each_method_names_its_setting(method: str) -> None:
    assert f"(setting `merge.method: {method}`)" in _method(method, "soup", groups=False)
