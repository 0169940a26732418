"""The picture of the idea: `make figures` writes docs/figures/idea.svg."""

from __future__ import annotations

import random
from collections.abc import Iterable
from html import escape
from pathlib import Path

PAGE = Path(__file__).parents[1] / "figures/idea.svg"
_WIDTH, _HEIGHT = 1000, 440
_INK, _MUTED, _LINE, _PLAIN, _CHOSEN, _RANDOM = "#1b1f24", "#5d6670", "#8a939d", "#cfd6dd", "#0b62c4", "#d1600a"
_TITLE = "LiPT trains copies of one model on tiny shards, averages them, and selects images with the average"
_ROWS, _COLUMNS, _GAP = 8, 9, 13
_TOP, _BOTTOM = 40, 280  # of the two rows of the picture
_WORKERS = 3


def text() -> str:
    """The picture, as SVG. The upper row is LiPT, the lower one the random baseline."""
    draw = random.Random(1)
    spots = list(range(_ROWS * _COLUMNS))
    chosen, drawn = set(draw.sample(spots, 8)), set(draw.sample(spots, 8))
    shards = draw.sample(spots, 4 * _WORKERS)
    owners = dict.fromkeys(shards, _CHOSEN)
    parts = [
        *_images(20, _TOP, owners, ["all training", "images"]),
        *_arrow(145, 190, _TOP + 46),
        *_box(195, _TOP, 120, "theta_*", ["1. train one", "model briefly"]),
        *_workers(365),
        *_box(540, _TOP, 120, "theta_p", ["3. average", "the copies"]),
        *_arrow(665, 710, _TOP + 46),
        *_images(720, _TOP, dict.fromkeys(chosen, _CHOSEN), ["select with", "its outputs"]),
        *_arrow(842, 872, _TOP + 46),
        *_box(877, _TOP, 103, "model A", ["4. train", "a fresh model"]),
        *_arrow(145, 710, _BOTTOM + 46, "the baseline: no selection"),
        *_images(20, _BOTTOM, {}, ["all training", "images"]),
        *_images(720, _BOTTOM, dict.fromkeys(drawn, _RANDOM), ["a random part", "of the same size"]),
        *_arrow(842, 872, _BOTTOM + 46),
        *_box(877, _BOTTOM, 103, "model B", ["train", "a fresh model"]),
        *_versus(928, 190, 272),
    ]
    return "\n".join([*_frame(), *parts, "</svg>", ""])


def _frame() -> Iterable[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="14" text-anchor="middle">'
    )
    yield f"<title>{_TITLE}</title>"
    yield (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{_LINE}"/></marker></defs>'
    )
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="10" fill="#ffffff"/>'  # readable on a dark page, too


def _images(x: int, y: int, colours: dict[int, str], label: list[str]) -> Iterable[str]:
    """A grid of small squares: images. Those in `colours` are used."""
    for spot in range(_ROWS * _COLUMNS):
        row, column = divmod(spot, _COLUMNS)
        fill = colours.get(spot, _PLAIN)
        yield f'<rect x="{x + column * _GAP}" y="{y + row * _GAP}" width="10" height="10" rx="2" fill="{fill}"/>'
    yield from _label(x + _COLUMNS * _GAP // 2, y + 125, label)


def _box(x: int, y: int, width: int, name: str, label: list[str]) -> Iterable[str]:
    """A model."""
    yield f'<rect x="{x}" y="{y + 12}" width="{width}" height="70" rx="8" fill="#f5f6f8" stroke="{_LINE}"/>'
    yield f'<text x="{x + width // 2}" y="{y + 53}" font-size="17" font-weight="600" fill="{_INK}">{name}</text>'
    yield from _label(x + width // 2, y + 125, label)


def _workers(x: int) -> Iterable[str]:
    """Copies of theta_* that train on shards, and the arrows to them and from them."""
    for worker in range(_WORKERS):
        middle = _TOP + 6 + worker * 40
        yield from _arrow(318, x - 4, middle, start=_TOP + 46)
        yield f'<rect x="{x}" y="{middle - 15}" width="125" height="30" rx="6" fill="#eaf2fb" stroke="{_CHOSEN}"/>'
        yield f'<text x="{x + 48}" y="{middle + 5}" fill="{_INK}">copy {worker + 1}</text>'
        for image in range(4):
            left, top = x + 92 + image % 2 * 12, middle - 11 + image // 2 * 12
            yield f'<rect x="{left}" y="{top}" width="10" height="10" rx="2" fill="{_CHOSEN}"/>'
        yield from _arrow(x + 128, 536, _TOP + 46, start=middle)
    yield from _label(x + 62, _TOP + 125, ["2. train each copy for seconds", "on its own tiny shard"])


def _arrow(left: int, right: int, y: int, label: str = "", *, start: int | None = None) -> Iterable[str]:
    begin = y if start is None else start
    yield f'<path d="M{left} {begin}L{right} {y}" stroke="{_LINE}" stroke-width="1.6" marker-end="url(#head)"/>'
    if label:
        yield f'<text x="{(left + right) // 2}" y="{y - 12}" fill="{_MUTED}">{escape(label)}</text>'


def _versus(x: int, top: int, bottom: int) -> Iterable[str]:
    """The question of the report, between the two models."""
    middle = (top + bottom) // 2
    yield f'<path d="M{x} {middle - 16}V{top + 2}" stroke="{_LINE}" stroke-width="1.6" marker-end="url(#head)"/>'
    yield f'<path d="M{x} {middle + 14}V{bottom + 10}" stroke="{_LINE}" stroke-width="1.6" marker-end="url(#head)"/>'
    yield f'<text x="{x}" y="{middle + 4}" font-weight="600" fill="{_INK}">Is A better?</text>'


def _label(x: int, y: int, lines: list[str]) -> Iterable[str]:
    for number, line in enumerate(lines):
        yield f'<text x="{x}" y="{y + 18 * number}" fill="{_MUTED}">{escape(line)}</text>'
