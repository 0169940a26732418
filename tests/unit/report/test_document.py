"""The document survives JSON and refuses what cannot be true."""

import pytest
from pydantic import ValidationError
from report_samples import document, row

from lipt.errors import IntegrityError
from lipt.report.document import Curve, Document
from lipt.report.subset import Example, Histogram, Subset


def test_a_complete_document_survives_json():
    original = document()
    assert Document.from_json(original.model_dump_json().encode(), origin="report.json") == original


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda text: text[:1000], "Invalid JSON"),
        (lambda text: text.replace('"format_version":3', '"format_version":1'), "format_version: "),
        (lambda text: text.replace('"chance":0.1,', "", 1), r"rows\.0\.chance: Field required"),
        (lambda text: text.replace('"created":"', '"created":"on ', 1), "created: .*isoformat"),
    ],
)
def test_a_damaged_document_or_one_of_another_version_is_one_clear_error(change, what):
    data = change(document().model_dump_json()).encode()
    with pytest.raises(IntegrityError, match=rf"report.json is damaged, or another version of lipt wrote it: .*{what}"):
        Document.from_json(data, origin="report.json")


def test_a_diverged_loss_is_kept_as_a_gap():
    curve = Curve(name="diverged", epoch=[1, 2, 3], train_loss=[2.3, float("nan"), float("inf")])
    assert curve.train_loss == [2.3, None, None]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: row("a", [0.5, 0.6], seeds=[0]), "one accuracy per seed"),
        (lambda: row("a", [0.5, 0.6], seeds=[0, 0]), "seeds must differ"),
        (lambda: row("a", [74.1]), "less than or equal to 1"),
        (lambda: row("a", [0.5], speed=1), "Extra inputs"),
        (lambda: Histogram(edges=[0.0, 1.0], kept=[1, 2], dropped=[1, 2]), "one count per bin"),
        (lambda: Histogram(edges=[1.0, 0.0], kept=[1], dropped=[1]), "ascend"),
        (lambda: Curve(name="a", epoch=[1, 2], train_loss=[1.0]), "one value per epoch"),
        (
            lambda: Subset(count=1, class_names=["a"], kept_per_class=[1], candidates_per_class=[]),
            "candidates_per_class",
        ),
        (lambda: Example(png_base64='" onerror="alert(1)', label="a"), "pattern"),
    ],
)
def test_what_cannot_be_true_is_refused(build, message):
    with pytest.raises(ValidationError, match=message):
        build()


def test_documents_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        document().title = "other"
