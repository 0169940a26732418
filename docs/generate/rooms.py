"""The picture of the rooms of src/lipt: an arrow per import, except where a path of other arrows leads there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import mean

import grimp

from docs.generate.svg import INK, LINE, picture

PAGE = Path(__file__).parents[1] / "figures/rooms.svg"
_FILES = "files"
_WIDTH, _COLUMN, _ROW, _BOX = 760, 142, 68, (116, 34)


@cache
def imports() -> dict[str, set[str]]:
    """Room -> the rooms to which an arrow leads. The modules outside of rooms count as one, `files`."""
    graph = grimp.build_graph("lipt")
    children = graph.find_children("lipt") - {"lipt.__main__"}
    rooms = {child for child in children if graph.find_children(child)}
    for room in rooms:
        graph.squash_module(room)
    found: dict[str, set[str]] = {}
    for room in rooms:
        direct = graph.find_modules_directly_imported_by(room) - {room}
        indirect = set().union(*(graph.find_upstream_modules(other) for other in direct & rooms))
        arrows = {_name(other) for other in (direct & rooms) - indirect}
        uses_files = bool(direct & (children - rooms)) and not indirect & (children - rooms)
        found[_name(room)] = arrows | ({_FILES} if uses_files else set())
    return found


def files() -> list[str]:
    """The modules outside of rooms."""
    graph = grimp.build_graph("lipt")
    alone = {child for child in graph.find_children("lipt") if not graph.find_children(child)}
    return sorted(map(_name, alone - {"lipt.__main__"}))


def _name(module: str) -> str:
    return module.removeprefix("lipt.")


def text() -> str:
    """The picture, as SVG: every room above those that it imports, the files at the bottom."""
    arrows = imports()
    levels = {room: _level(room) for room in arrows}
    bottom = 1 + max(levels.values())
    places = _columns(arrows, levels)
    y = {room: 14 + _ROW * level for room, level in levels.items()} | {_FILES: 14 + _ROW * bottom}
    parts = []
    for room, others in sorted(arrows.items()):
        for other in sorted(others):
            end = places[room] if other == _FILES else places[other]
            parts.append(_line(places[room], y[room] + _BOX[1], end, y[other]))
    for room, x in sorted(places.items()):
        parts += _box(x - _BOX[0] // 2, y[room], _BOX[0], room)
    parts += _box(14, y[_FILES], _WIDTH - 28, ", ".join(files()))
    title = "Rooms of the package and their imports"
    return picture(_WIDTH, y[_FILES] + _BOX[1] + 14, title, parts)


@cache
def _level(room: str) -> int:
    """Longest path of arrows from the top to the room."""
    above = [other for other, arrows in imports().items() if room in arrows]
    return 1 + max(map(_level, above)) if above else 0


def _columns(arrows: dict[str, set[str]], levels: dict[str, int]) -> dict[str, int]:
    """The middle of each room. Rooms above the files have a column each, so that their arrows run straight down; the
    others stand above the middle of what they import."""
    leaves = sorted((room for room in arrows if _FILES in arrows[room]), key=lambda room: (levels[room], room))
    places = {room: 80 + number * _COLUMN for number, room in enumerate(leaves)}
    for room in sorted(arrows, key=lambda room: (-levels[room], room)):
        if room not in places:
            beside = sum(places[other] for other in places if levels[other] == levels[room] and other not in leaves) > 0
            places[room] = round(mean(places[other] for other in arrows[room])) + beside * _COLUMN
    return places


def _box(x: int, y: int, width: int, name: str) -> Iterable[str]:
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{_BOX[1]}" rx="6" fill="#f5f6f8" stroke="{LINE}"/>'
    yield f'<text x="{x + width // 2}" y="{y + 22}" fill="{INK}">{name}</text>'


def _line(x: int, y: int, to_x: int, to_y: int) -> str:
    return f'<path d="M{x} {y}L{to_x} {to_y - 2}" stroke="{LINE}" stroke-width="1.4" marker-end="url(#head)"/>'
