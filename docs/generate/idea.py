"""The picture of the idea."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from docs.generate.svg import CHOSEN, COLUMNS, INK, LINE, RANDOM, ROWS, arrow, images, label, picture, square

PAGE = Path(__file__).parents[1] / "figures/idea.svg"
_TITLE = "LiPT trains copies of one model on tiny shards, averages them, and selects images with the average"
_TOP, _BOTTOM = 40, 280  # of the two rows of the picture
_WORKERS = 3


def text() -> str:
    """The picture, as SVG. The upper row is LiPT, the lower one the random baseline."""
    draw = random.Random(1)
    spots = range(ROWS * COLUMNS)
    chosen, drawn, shards = draw.sample(spots, 8), draw.sample(spots, 8), draw.sample(spots, 4 * _WORKERS)
    parts = [
        *images(20, _TOP, dict.fromkeys(shards, CHOSEN), ["all training", "images"]),
        arrow(145, 190, _TOP + 46),
        *_model(195, _TOP, 120, "theta_*", ["1. train one", "model briefly"]),
        *_workers(365),
        *_model(540, _TOP, 120, "theta_p", ["3. average", "the copies"]),
        arrow(665, 710, _TOP + 46),
        *images(720, _TOP, dict.fromkeys(chosen, CHOSEN), ["4. select with", "its outputs"]),
        arrow(842, 872, _TOP + 46),
        *_model(877, _TOP, 103, "model A", ["5. train", "a fresh model"]),
        *images(20, _BOTTOM, {}, ["all training", "images"]),
        arrow(145, 710, _BOTTOM + 46),
        *label(427, _BOTTOM + 34, ["the baseline: no selection"]),
        *images(720, _BOTTOM, dict.fromkeys(drawn, RANDOM), ["a random part", "of the same size"]),
        arrow(842, 872, _BOTTOM + 46),
        *_model(877, _BOTTOM, 103, "model B", ["train", "a fresh model"]),
        *_versus(928, 192, 282),
    ]
    return picture(1000, 440, _TITLE, parts)


def _model(x: int, y: int, width: int, name: str, below: list[str]) -> Iterable[str]:
    middle = x + width // 2
    yield f'<rect x="{x}" y="{y + 12}" width="{width}" height="70" rx="8" fill="#f5f6f8" stroke="{LINE}"/>'
    yield f'<text x="{middle}" y="{y + 53}" font-size="17" font-weight="600" fill="{INK}">{name}</text>'
    yield from label(middle, y + 125, below)


def _workers(x: int) -> Iterable[str]:
    """Copies of theta_* that train on shards, and the arrows to them and from them."""
    for worker in range(_WORKERS):
        middle = _TOP + 6 + worker * 40
        yield arrow(318, x - 4, middle, start=_TOP + 46)
        yield f'<rect x="{x}" y="{middle - 15}" width="125" height="30" rx="6" fill="#eaf2fb" stroke="{CHOSEN}"/>'
        yield f'<text x="{x + 48}" y="{middle + 5}" fill="{INK}">copy {worker + 1}</text>'
        for image in range(4):
            yield square(x + 92 + image % 2 * 12, middle - 11 + image // 2 * 12, CHOSEN)
        yield arrow(x + 128, 536, _TOP + 46, start=middle)
    yield from label(x + 62, _TOP + 125, ["2. train each copy for seconds", "on its own tiny shard"])


def _versus(x: int, top: int, bottom: int) -> Iterable[str]:
    """The question of the report, between the two models."""
    middle = (top + bottom) // 2
    for start, end in ((middle - 16, top), (middle + 14, bottom)):
        yield f'<path d="M{x} {start}V{end}" stroke="{LINE}" stroke-width="1.6" marker-end="url(#head)"/>'
    yield f'<text x="{x}" y="{middle + 4}" font-weight="600" fill="{INK}">Is A better?</text>'
