"""How sure the scores are, as people read it."""

from __future__ import annotations

import html

import pytest
from report_samples import document

from lipt.report.certainty import ScoreCheck, statements
from lipt.report.html_page import render
from lipt.report.terminal import print_report
from lipt.report.verdict import judge

SURE = ScoreCheck(label="Trajectory, <dual>", reliability=0.83, halved="epochs", shared=0.21, by_chance=0.1)
UNSURE = ScoreCheck(label="LiPT as an ensemble, ccs", reliability=0.31, halved="models")
OVERLAP = ScoreCheck(label="LiPT, ccs", shared=0.3, by_chance=0.1)
ALSO_UNSURE = ScoreCheck(label="theta_* alone", reliability=0.2, halved="models")
SENTENCES = [
    "Trajectory, <dual>: reliability of the scores 0.83 (even against odd epochs).",
    "two seeds share 21.00 % of their kept images. Two random subsets would share 10.00 %",
    "LiPT as an ensemble, ccs: reliability of the scores 0.31 (two halves of the models).",
    "Warning: the reliability of LiPT as an ensemble, ccs and theta_* alone is below 0.5: the order of the samples is",
    "LiPT, ccs: two seeds share 30.00 % of their kept images.",
]


def test_page_and_terminal_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shown = document(score_checks=[SURE, UNSURE, OVERLAP, ALSO_UNSURE])
    page = html.unescape(render(shown))
    print_report(shown, judge(shown.rows), whole=True)
    printed = capsys.readouterr().out
    assert "<dual>" not in render(shown)
    for sentence in SENTENCES:
        assert sentence in page
        assert sentence in printed
    assert page.count("Warning") == printed.count("Warning") == 1


def test_nothing_measured_is_nothing_said() -> None:
    assert "certainty" not in render(document())


@pytest.mark.parametrize(
    ("shared", "by_chance", "alike"),
    [(0.0526, 0.0489, True), (0.0460, 0.0489, True), (0.3, 0.1, False), (0.99, 0.91, False), (0.06, 0.05, False)],
)
def test_an_overlap_like_that_of_random_subsets_is_called_so(shared: float, by_chance: float, alike: bool) -> None:
    """Of subsets that keep nearly all, what they leave out tells: 1 % instead of 9 % is no chance."""
    (told,) = statements(ScoreCheck(label="LiPT, ccs", shared=shared, by_chance=by_chance))
    assert told.endswith("So the choice depends on the seed about as much as a random draw does.") == alike
