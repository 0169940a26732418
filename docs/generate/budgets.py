"""The picture of the two budgets: what is kept, and what each epoch trains on."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from docs.generate.svg import CHOSEN, COLUMNS, INK, RANDOM, ROWS, arrow, images, label, picture

PAGE = Path(__file__).parents[1] / "figures/budgets.svg"
_TITLE = "A fixed subset trains on the same images in every epoch; a pool and RS2 draw anew"
_EPOCHS, _DRAWN = 3, 7


def text() -> str:
    """The picture, as SVG: a row for each way to spend the budgets, a column for each epoch."""
    draw = random.Random(2)
    everything = list(range(ROWS * COLUMNS))
    ways = {
        ("fixed subset", "keep 10 %"): draw.sample(everything, _DRAWN),
        ("pool", "keep 30 %, draw 10 %"): draw.sample(everything, 3 * _DRAWN),
        ("RS2", "keep all, draw 10 %"): everything,
    }
    parts = [*label(265, 26, ["kept"])]
    for epoch in range(_EPOCHS):
        parts += label(465 + 150 * epoch, 26, [f"epoch {epoch + 1}"])
    for number, ((name, how), kept) in enumerate(ways.items()):
        parts += _row(45 + 130 * number, name, how, kept, [draw.sample(kept, _DRAWN) for _ in range(_EPOCHS)])
    return picture(840, 430, _TITLE, parts)


def _row(y: int, name: str, how: str, kept: list[int], epochs: list[list[int]]) -> Iterable[str]:
    yield f'<text x="100" y="{y + 46}" font-size="17" font-weight="600" fill="{INK}">{name}</text>'
    yield from label(100, y + 68, [how])
    yield from images(207, y, dict.fromkeys(kept, CHOSEN))
    yield arrow(338, 395, y + 52)
    for epoch, drawn in enumerate(epochs):
        yield from images(407 + 150 * epoch, y, dict.fromkeys(drawn, RANDOM))
