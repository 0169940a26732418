"""The accuracy of each class: a choice can help some and harm others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

from pydantic import BaseModel, model_validator

from lipt.report.fields import STRICT, Count, Share, require
from lipt.report.numbers import format_percent, format_points

#: More classes are not all shown, but this many of the most harmed and of the most helped.
MOST_CLASSES, EXTREME_CLASSES = 40, 10


class ClassAccuracy(BaseModel):
    """Test accuracy of each class in each row of the comparison."""

    model_config = STRICT

    names: list[str]
    """The classes."""
    images: list[Count]
    """Test images of each class."""
    accuracy: dict[str, list[Share | None]]
    """Name of a row -> accuracy of each class, mean over seeds; None where a class has no test images."""

    @model_validator(mode="after")
    def _one_value_per_class(self) -> Self:
        sizes = {len(self.images), *map(len, self.accuracy.values())}
        require(sizes == {len(self.names)}, "classes: one value per class")
        return self


def recalls(evaluations: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """The accuracy of each class, mean over evaluations; None without images of it.

    Args:
        evaluations: summaries of the stage `evaluate`.
    """
    counts = [zip(each["hits_per_class"], each["images_per_class"], strict=True) for each in evaluations]
    return [
        fmean(hits / images for hits, images in of_class) if all(images for _, images in of_class) else None
        for of_class in zip(*counts, strict=True)
    ]


@dataclass(frozen=True)
class ClassLine:
    """A class: its name, its test images, the accuracy of both rows, and the difference in points."""

    name: str
    images: int
    ours: str
    other: str
    gain: str


def class_lines(found: ClassAccuracy, ours: str, other: str) -> list[ClassLine]:
    """The classes with test images, those that `ours` harms most first. Of many, only the extremes.

    Args:
        ours: the name of a row; it is compared with the row `other`.
    """
    values = zip(found.names, found.images, found.accuracy[ours], found.accuracy[other], strict=True)
    known = [
        (mine - its, name, images, mine, its)
        for name, images, mine, its in values
        if mine is not None and its is not None
    ]
    known.sort(key=lambda line: line[0])
    if len(known) > MOST_CLASSES:
        known = known[:EXTREME_CLASSES] + known[-EXTREME_CLASSES:]
    return [
        ClassLine(name, images, format_percent(mine), format_percent(its), format_points(gain))
        for gain, name, images, mine, its in known
    ]


def worst(accuracies: Sequence[float | None]) -> float:
    """The lowest accuracy of a class; a test split has images of one at least."""
    return min(each for each in accuracies if each is not None)


def worst_sentence(found: ClassAccuracy, labels: Mapping[str, str]) -> str:
    """The worst class of each row, in words.

    Args:
        labels: name of a row -> its label.
    """
    told = []
    for name, label in labels.items():
        lowest = worst(found.accuracy[name])
        of = found.names[found.accuracy[name].index(lowest)]
        told.append(f"{of} ({format_percent(lowest)}) with {label}")
    return f"Least accurate: {'; '.join(told)}."
