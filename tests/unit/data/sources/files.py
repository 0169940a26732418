"""Image files for sources."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image


def image(shade: int = 0, form: str = "PNG", *, side: int = 4) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (shade, 0, 0)).save(buffer, format=form)
    return buffer.getvalue()


def tree(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root
