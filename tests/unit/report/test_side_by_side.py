"""Several runs in one document."""

from report_samples import document

from lipt.report.document import Provenance
from lipt.report.side_by_side import side_by_side


def test_a_section_that_one_run_does_not_set_is_no_row_of_its_own():
    settings = ("score: {proxy: null, runs: 1}", "score: {proxy: {width: 4}, runs: 1}")
    runs = {name: document(provenance=Provenance(config_yaml=text)) for name, text in zip("ab", settings, strict=True)}
    differences = side_by_side(runs).differences
    assert differences is not None
    assert differences.settings == {"score.proxy.width": ["–", "4"]}
