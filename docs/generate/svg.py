"""Parts of the drawings: a frame, grids of images, labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

INK, MUTED, LINE, PLAIN, CHOSEN, RANDOM = "#1b1f24", "#5d6670", "#8a939d", "#cfd6dd", "#0b62c4", "#d1600a"
ROWS, COLUMNS = 8, 9
_GAP, _SQUARE = 13, 10


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """An SVG of these parts on a white card, so that it is readable on a dark page, too."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'font-family="system-ui, sans-serif" font-size="14" text-anchor="middle">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def images(x: int, y: int, colours: Mapping[int, str], below: Iterable[str] = ()) -> Iterable[str]:
    """A grid of small squares, one for each image. `colours` gives those that are not grey."""
    for spot in range(ROWS * COLUMNS):
        row, column = divmod(spot, COLUMNS)
        yield square(x + column * _GAP, y + row * _GAP, colours.get(spot, PLAIN))
    yield from label(x + COLUMNS * _GAP // 2, y + 125, below)


def square(x: int, y: int, colour: str) -> str:
    """One image."""
    return f'<rect x="{x}" y="{y}" width="{_SQUARE}" height="{_SQUARE}" rx="2" fill="{colour}"/>'


def label(x: int, y: int, lines: Iterable[str]) -> Iterable[str]:
    """Lines of text, centred at x."""
    for number, line in enumerate(lines):
        yield f'<text x="{x}" y="{y + 18 * number}" fill="{MUTED}">{escape(line)}</text>'


def arrow(left: int, right: int, y: int, *, start: int | None = None) -> str:
    """An arrow from (left, start) to (right, y); level if there is no start."""
    begin = y if start is None else start
    return f'<path d="M{left} {begin}L{right} {y}" stroke="{LINE}" stroke-width="1.6" marker-end="url(#head)"/>'
