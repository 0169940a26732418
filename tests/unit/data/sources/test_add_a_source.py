"""The example in CONTRIBUTING.md: a source is one file, and everything finds it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lipt.cli import main
from lipt.data.sources import open_source
from lipt.data.sources.base import FORMATS
from lipt.errors import UsageError

IMAGES_NHWC = np.random.default_rng(0).integers(0, 256, (8, 5, 6, 3), dtype=np.uint8)


@pytest.fixture
def example() -> Iterator[None]:
    text = (Path(__file__).parents[4] / "CONTRIBUTING.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "(Source, " in block)
    exec(compile(code, "CONTRIBUTING.md", "exec"), {"__name__": "example"})
    yield
    del FORMATS["npz"]


def archive(folder: Path, labels: list[int]) -> str:
    np.savez(folder / "pets.npz", images=IMAGES_NHWC, labels=labels)
    return str(folder / "pets.npz")


@pytest.mark.usefixtures("example")
def test_the_example_is_a_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = archive(tmp_path, [0, 1] * 4)
    source = open_source(spec)
    assert (source.format, source.name, source.classes) == ("npz", "pets", ["0", "1"])
    before = source.fingerprint()
    data, ext = source.read("train", 2)
    assert (ext, Image.open(io.BytesIO(data)).tobytes()) == ("png", IMAGES_NHWC[2].tobytes())
    main(["ingest", spec, f"{tmp_path}/store", "--format", "npz"])
    assert "pets: 6 train, 2 test images of 2 classes" in capsys.readouterr().err
    archive(tmp_path, [0, 1, 1, 1] * 2)
    assert open_source(spec).fingerprint() != before


@pytest.mark.usefixtures("example")
def test_what_every_source_is_checked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pets.npz: split 'train' has no image of class '1'"):
        open_source(archive(tmp_path, [0, 2] * 4))
    with pytest.raises(UsageError, match=r"pets.npz: only one class, '0'"):
        open_source(archive(tmp_path, [0] * 8))
    with pytest.raises(UsageError, match="did you mean 'npz'"):
        open_source(str(tmp_path), "npx")
