"""What a source calls its images."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from lipt.data.sources import open_source
from tests.unit.data.sources.files import image, tree


def tar(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def test_names_in_a_folder_are_paths_below_it(tmp_path: Path) -> None:
    tree(tmp_path, {"train/cat/1.png": image(), "train/dog/deep/er/2.png": image()})
    tree(tmp_path, {"val/cat/1.png": image(), "val/dog/9.JPG": image(0, "JPEG")})
    names = open_source(str(tmp_path)).names
    assert names["train"] == ["train/cat/1.png", "train/dog/deep/er/2.png"]
    assert names["test"] == ["val/cat/1.png", "val/dog/9.JPG"]


def test_names_in_tars_are_the_tar_and_the_member(tmp_path: Path) -> None:
    members = {"deep/1.png": image(), "deep/1.cls": b"0", "2.JPG": image(0, "JPEG"), "2.cls": b"1"}
    tar(tmp_path / "a.tar", members)
    assert open_source(f"{tmp_path}/a.tar").names == {"train": ["a.tar/deep/1.png", "a.tar/2.JPG"]}


def test_names_tell_tars_of_one_name_in_two_folders_apart(tmp_path: Path) -> None:
    for label, folder in enumerate("xy"):
        tar(tmp_path / folder / "a.tar", {"1.png": image(), "1.cls": b"%d" % label})
    assert open_source(f"wds:{tmp_path}/*/a.tar").names == {"train": ["x/a.tar/1.png", "y/a.tar/1.png"]}


def test_names_of_built_in_data_are_numbers() -> None:
    names = open_source("digits").names["train"]
    assert (names[0], names[7], len(set(names))) == ("digits/0000.png", "digits/0007.png", 1797)
