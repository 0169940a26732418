"""That a source which changed is told from the one that was ingested."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lipt.data.sources import open_source
from tests.unit.data.sources.files import image, tree
from tests.unit.data.sources.test_names import tar

PETS = {"cat/1.png": image(1), "cat/2.png": image(2), "dog/1.png": image(3)}
PAIRS = {"a.png": image(1), "a.cls": b"0", "b.png": image(3), "b.cls": b"1"}


def replace(path: Path, data: bytes, *, same_time: bool) -> None:
    """Other contents of the same length."""
    before = path.stat()
    assert len(data) == before.st_size
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + (0 if same_time else 1)))


@pytest.mark.parametrize("same_time", [False, True])
def test_another_image_of_the_same_size_is_noticed(tmp_path: Path, same_time: bool) -> None:
    folder = tree(tmp_path, PETS)
    before = open_source(str(folder)).fingerprint()
    replace(folder / "dog/1.png", image(4), same_time=same_time)
    assert open_source(str(folder)).fingerprint() != before


@pytest.mark.parametrize("same_time", [False, True])
def test_another_tar_of_the_same_size_is_noticed(tmp_path: Path, same_time: bool) -> None:
    tar(tmp_path / "x.tar", PAIRS)
    tar(tmp_path / "y.tar", PAIRS | {"a.png": image(2)})
    before = open_source(f"{tmp_path}/x.tar").fingerprint()
    replace(tmp_path / "x.tar", (tmp_path / "y.tar").read_bytes(), same_time=same_time)
    assert open_source(f"{tmp_path}/x.tar").fingerprint() != before


def test_other_class_names_beside_the_tars_are_noticed(tmp_path: Path) -> None:
    tar(tmp_path / "x.tar", PAIRS)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    before = open_source(f"{tmp_path}/x.tar").fingerprint()
    (tmp_path / "classes.txt").write_text("dog\ncat\n")
    assert open_source(f"{tmp_path}/x.tar").fingerprint() != before


def test_of_many_files_some_are_read_and_all_are_looked_at(tmp_path: Path) -> None:
    folder = tree(tmp_path, {f"{'cat' if i < 100 else 'dog'}/{i:03d}.png": image(i) for i in range(200)})
    before = open_source(str(folder)).fingerprint()
    replace(folder / "cat/001.png", image(201), same_time=True)  # not among the 64: stated in docs/reference/formats.md
    assert open_source(str(folder)).fingerprint() == before
    replace(folder / "cat/001.png", image(202), same_time=False)
    assert open_source(str(folder)).fingerprint() != before


def test_the_place_does_not_matter(tmp_path: Path) -> None:
    tree(tmp_path / "one", PETS)
    tar(tmp_path / "one/x.tar", PAIRS)
    shutil.copytree(tmp_path / "one", tmp_path / "deep/two")  # times are copied
    for spec in ("", "/x.tar"):
        mine, other = (open_source(f"{tmp_path}/{place}{spec}").fingerprint() for place in ("one", "deep/two"))
        assert mine == other
