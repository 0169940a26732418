"""The names of exported files and folders, whatever those of the source are."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lipt.data.chunks import Sample
from lipt.data.sources import open_source
from lipt.flow.export import _write_folder, _write_tar, folder_names, safe_key, safe_name
from tests.unit.data.sources.files import image


@pytest.mark.parametrize(
    ("source", "name", "key"),
    [
        ("train/cat/1.png", "1.png", "train-cat-1"),
        ("cat/1.JPEG", "1.JPEG.png", "cat-1"),
        ("x.tar/../../etc/passwd", "passwd.png", "x_tar-etc-passwd"),
        ("/etc/../..", "_.png", "etc"),
        ("..\\..\\evil.png", "evil.png", "evil"),
        ("cat/.hidden.png", "_hidden.png", "cat-_hidden"),
        ("cat/a\nb\0.png", "a_b_.png", "cat-a_b_"),
        ("", "_.png", "_"),
    ],
)
def test_names_cannot_leave_the_folder(source: str, name: str, key: str) -> None:
    assert (safe_name(source, "png"), safe_key(source)) == (name, key)


class Colliding:
    """Selected samples, of which the third has the name that the second one gets instead of its own."""

    classes = ("cat",)

    def samples(self) -> Iterator[tuple[str, Sample]]:
        for position, name in [(5, "00000007-a.png"), (6, "a.png"), (7, "a.png")]:
            yield name, Sample(position=position, image=b"%d" % position, ext="png", label=0)


def test_a_name_that_is_given_instead_of_another_may_be_taken_too(tmp_path: Path) -> None:
    _write_folder(Colliding(), tmp_path / "folder", lambda _done: None)
    files = {path.name: path.read_bytes() for path in (tmp_path / "folder/train/cat").iterdir()}
    assert files == {"00000007-a.png": b"5", "a.png": b"6", "00000007-00000007-a.png": b"7"}
    _write_tar(Colliding(), tmp_path / "a.tar", lambda _done: None)
    with tarfile.open(tmp_path / "a.tar") as tar:
        names = [name for name in tar.getnames() if name.endswith(".png")]
    assert sorted(names) == ["00000007-00000007-a.png", "00000007-a.png", "a.png"]


def test_names_that_are_too_long_are_cut() -> None:
    assert len(safe_name("cat/" + "é" * 300 + ".png", "png").encode()) <= 255
    assert len(safe_key("cat/" + "é" * 300 + ".png").encode()) <= 80


class LongNames:
    """Selected samples with names that a tar header cannot hold: too long, alike in what the cut leaves, not ASCII."""

    classes = ("cat", "dog")
    names = (f"cat/{'a' * 200}.png", f"dog/{'a' * 200}.png", f"cat/{'é' * 150}.png", "dog/日本語.png")

    def samples(self) -> Iterator[tuple[str, Sample]]:
        for position, name in enumerate(self.names):
            yield name, Sample(position=position, image=image(position), ext="png", label=position % 2)


def test_a_tar_of_long_names_is_read_by_tar_and_as_a_source(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    _write_tar(LongNames(), path, lambda _done: None)
    keys = ["a" * 80, f"00000001-{'a' * 80}", "é" * 40, "dog-日本語"]
    listed = subprocess.run(["tar", "--quoting-style=literal", "-tf", path], capture_output=True, check=True)
    assert listed.stdout.decode().split() == [f"{key}.{ext}" for key in keys for ext in ("png", "cls")]
    source = open_source(str(path))
    assert source.names["train"] == [f"x.tar/{key}.png" for key in keys]
    assert list(source.splits["train"]) == [0, 1, 0, 1]


def test_the_names_in_a_tar_do_not_depend_on_the_locale() -> None:
    code = "from lipt.data.chunks.members import pack_sample as p; print(p('\\u65e5', b'', 'png', 0)[:7])"
    locale = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    packed = subprocess.run([sys.executable, "-X", "utf8=0", "-c", code], env=locale, capture_output=True, check=True)
    assert packed.stdout.strip().decode() == str("日.png".encode())


def test_a_name_is_not_hidden_by_the_cut() -> None:
    """An ingest of the exported folder would leave the image or the class out."""
    assert safe_name("cat/a." + "b" * 149 + ".png", "png") == "_" + "b" * 149 + ".png"
    assert folder_names(["a." + "b" * 149]) == ["_" + "b" * 149]


def test_classes_become_folders_of_their_own() -> None:
    assert folder_names(["cat", "..", "a/b", "a_b", "Cat", ""]) == ["cat", "_", "a_b", "a_b-3", "Cat-4", "_-5"]
