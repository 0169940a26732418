"""The accuracy of each class, and what the report says of it."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError
from report_samples import comparison, document, row

from lipt.report.classes import ClassAccuracy, class_lines, recalls, worst, worst_sentence
from lipt.report.html_page import render


def test_the_accuracy_of_a_class_is_the_mean_over_seeds_on_its_own_images() -> None:
    first = {"hits_per_class": [8, 1, 0], "images_per_class": [10, 4, 0]}
    second = {"hits_per_class": [6, 4, 0], "images_per_class": [10, 4, 0]}
    assert recalls([first]) == [0.8, 0.25, None]  # the third class has no test images
    assert recalls([first, second]) == [0.7, 0.625, None]
    assert worst(recalls([first])) == 0.25
    assert worst([None, 0.5, 0.3]) == 0.3


def test_the_most_harmed_class_stands_first() -> None:
    found = ClassAccuracy(
        names=["cat", "dog", "eel", "fox"],
        images=[10, 20, 30, 0],
        accuracy={"lipt": [0.5, 0.9, 0.1, None], "stratified": [0.4, 0.95, 0.3, None]},
    )
    lines = [(line.name, line.images, line.ours, line.other, line.gain) for line in class_lines(found, *found.accuracy)]
    assert lines == [
        ("eel", 30, "10.00 %", "30.00 %", "−20.00"),
        ("dog", 20, "90.00 %", "95.00 %", "−5.00"),
        ("cat", 10, "50.00 %", "40.00 %", "+10.00"),
    ]
    assert worst_sentence(found, {"lipt": "LiPT, ccs", "stratified": "random"}) == (
        "Least accurate: eel (10.00 %) with LiPT, ccs; eel (30.00 %) with random."
    )
    assert worst_sentence(found, {"lipt": "random", "stratified": "random"}) == (
        "Least accurate: eel (10.00 %) with random; eel (30.00 %) with random."
    )


def test_of_many_classes_only_the_extremes_are_shown() -> None:
    names = [f"c{at}" for at in range(100)]
    ours = [at / 200 for at in range(100)]
    found = ClassAccuracy(names=names, images=[5] * 100, accuracy={"a": ours, "b": [0.2] * 100})
    assert [line.name for line in class_lines(found, "a", "b")] == [*names[:10], *names[90:]]
    page = render(document(classes=found.model_copy(update={"accuracy": {each.name: ours for each in comparison()}})))
    assert "20 of 100 classes: the most harmed and the most helped." in page


def test_each_row_has_a_value_per_class() -> None:
    with pytest.raises(ValidationError, match="one value per class"):
        ClassAccuracy(names=["cat", "dog"], images=[1, 2], accuracy={"lipt": [0.5]})


def test_the_page_compares_with_a_random_subset_of_the_same_budgets() -> None:
    section = render(document()).partition('<section id="classes">')[2].partition("</section>")[0]
    heads = ["class", "test images", "LiPT + CCS", "Class-balanced random", "difference in points"]
    assert re.findall(r'<th scope="col">(.*?)</th>', section) == heads
    cells = "<td>100</td><td>50.00 %</td><td>86.00 %</td><td>−36.00</td>"
    assert re.findall(r"<tr>(.*?)</tr>", section)[1] == f'<th scope="row">airplane</th>{cells}'


@pytest.mark.parametrize(
    "rows",
    [
        [row("lipt", [0.5], "selected"), row("rs2", [0.6])],
        [row("lipt", [0.5], "selected"), row("stratified", [0.6], "random", steps=2_000)],
        [row("random", [0.5], "random"), row("stratified", [0.6], "random")],
    ],
)
def test_without_a_choice_beside_such_a_subset_there_is_no_section(rows: list) -> None:  # type: ignore[type-arg]
    found = ClassAccuracy(names=["cat"], images=[9], accuracy={each.name: [0.5] for each in rows})
    assert 'id="classes"' not in render(document(rows=rows, classes=found))
