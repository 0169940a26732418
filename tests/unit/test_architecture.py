"""The picture in docs/explanation/architecture.md shows the imports between the rooms of src/lipt."""

from __future__ import annotations

from pathlib import Path

import grimp

PAGE = Path(__file__).parents[2] / "docs/explanation/architecture.md"


def picture() -> str:
    """A mermaid block: an arrow per import, except where a path of other arrows leads to the same room."""
    graph = grimp.build_graph("lipt")
    children = graph.find_children("lipt") - {"lipt.__main__"}
    rooms = {child for child in children if graph.find_children(child)}
    files = children - rooms
    for room in rooms:
        graph.squash_module(room)
    reached = {room: graph.find_upstream_modules(room) - {room} for room in rooms}
    lines = ["```mermaid", "flowchart TD", f'    files["{", ".join(sorted(map(_name, files)))}"]']
    for room in sorted(rooms, key=lambda room: (-len(reached[room]), room)):
        direct = graph.find_modules_directly_imported_by(room) - {room}
        indirect = set().union(*(reached[other] for other in direct & rooms))
        lines += [f"    {_name(room)} --> {_name(other)}" for other in sorted((direct & rooms) - indirect)]
        if direct & files and not indirect & files:
            lines.append(f"    {_name(room)} --> files")
    return "\n".join([*lines, "```"])


def _name(module: str) -> str:
    return module.removeprefix("lipt.")


def test_the_picture_of_the_rooms_shows_their_imports() -> None:
    assert picture() in PAGE.read_text(encoding="utf-8"), f"paste this block into {PAGE.name}:\n{picture()}"
