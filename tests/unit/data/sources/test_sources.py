"""Every kind of source, and what is told when one is unusable."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lipt.data.chunks import write_dataset
from lipt.data.sources import Source, open_source
from lipt.errors import LiptError, RunError, UsageError
from tests.unit.data.sources.files import image, tree


def pixels(source: Source, split: str, i: int) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(source.read(split, i)[0])))


# Choice


@pytest.mark.parametrize(
    ("spec", "kind", "told"),
    [
        ("digits", "digit", "data.format: no format 'digit'\n  -> did you mean 'digits'?"),
        ("digts", "auto", "digts: no such folder\n  -> name a folder or tars, or did you mean 'digits'?"),
        ("/no/such/folder", "auto", "no such folder"),
        ("/no/such/folder", "imagefolder", "is not a folder"),
        ("s3://bucket/images", "auto", "s3://bucket/images is in an object store"),
        ("wds:/no/such/*.tar", "auto", "no such tar"),
        ("/no/such/x-*.tar", "auto", "no such tar"),
        ("wds:/no/x-{0..9}.tar", "auto", "'wds:FOLDER/*.tar'; write [0-9] or * in place of braces"),
    ],
)
def test_nothing_there(spec: str, kind: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(spec, kind)
    assert told in str(caught.value)


def test_a_folder_beside_it_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UsageError) as caught:
        open_source(f"{tmp_path}/photo/")
    assert caught.value.remedy == f"name a folder or tars, or did you mean '{tmp_path}/photos'?"


@pytest.mark.parametrize("spec", ["wds:FOLDER", "wds:FOLDER/", "wds:FOLDER*"])
def test_a_folder_is_no_tar(tmp_path: Path, spec: str) -> None:
    (tmp_path / "shards").mkdir()
    with pytest.raises(UsageError) as caught:
        open_source(spec.replace("FOLDER", f"{tmp_path}/shards"))
    assert caught.value.message == f"{tmp_path}/shards is a folder, not a tar"
    assert caught.value.remedy == f"name the tars in it: 'wds:{tmp_path}/shards/*.tar'"


@pytest.mark.parametrize("name", ["photos.tar.gz", "a.TGZ", "x.parquet", "labels.csv", "plain"])
def test_a_file_is_not_called_a_missing_folder(tmp_path: Path, name: str) -> None:
    file = tree(tmp_path, {name: b"x"}) / name
    with pytest.raises(UsageError) as caught:
        open_source(str(file))
    assert caught.value.message == f"{file} is a file of a kind that LiPT does not read"
    gzipped = name.lower().endswith("gz")
    assert (f"gunzip {file} and name the tar" in caught.value.remedy) == gzipped
    assert ("name a folder with one sub-folder of images per class" in caught.value.remedy) == (not gzipped)


# Digits


def test_digits() -> None:
    source = open_source("digits")
    assert (source.name, list(source.classes)) == ("digits", list("0123456789"))
    assert list(source.splits) == ["train"]
    assert len(source.splits["train"]) == 1797
    data, ext = source.read("train", 0)
    grey = Image.open(io.BytesIO(data))
    assert (ext, grey.mode, grey.size) == ("png", "L", (8, 8))
    assert np.asarray(grey)[0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert source.fingerprint() == "0b7e9c3202d7bcd255d6a19a238d3743bf5e320ba74812a6679958a017c55382"


def test_digest_of_the_digits() -> None:
    """Earlier runs on the digits are found again; a Pillow that compresses otherwise changes it too."""
    manifest = write_dataset(open_source("digits"), lambda _file, _data: None, seed=0, test_fraction=0.2)
    assert manifest.digest == "e6cf0d4ec5914aa026594e972f5538cad741803f083ee86965940d7e1f2515cc"


# Folders


TWO_CLASSES = {"cat/1.png": image(1), "cat/2.png": image(2), "dog/1.png": image(3)}


def test_folder_without_splits(tmp_path: Path) -> None:
    source = open_source(str(tree(tmp_path / "pets", TWO_CLASSES)))
    assert (source.name, list(source.classes)) == ("pets", ["cat", "dog"])
    assert {split: labels.tolist() for split, labels in source.splits.items()} == {"train": [0, 0, 1]}
    assert [pixels(source, "train", i)[0, 0, 0] for i in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("name", ["test", "val", "valid"])
def test_folder_with_splits(tmp_path: Path, name: str) -> None:
    tree(tmp_path / "train", TWO_CLASSES)
    tree(tmp_path / name, {"cat/deep/er/9.png": image(9), "dog/8.png": image(8)})
    source = open_source(str(tmp_path), "imagefolder")
    assert {split: labels.tolist() for split, labels in source.splits.items()} == {"train": [0, 0, 1], "test": [0, 1]}
    assert [pixels(source, "test", i)[0, 0, 0] for i in range(2)] == [9, 8]


def test_unlabelled_test_images_are_passed_over_for_val(tmp_path: Path) -> None:
    tree(tmp_path / "train", TWO_CLASSES)
    tree(tmp_path / "test", {"1.png": image()})
    with pytest.raises(UsageError, match=r": no folder in test/ is called like a class of train/\n  -> sort the ima"):
        open_source(str(tmp_path))
    tree(tmp_path / "val", {"2.png": image()})
    with pytest.raises(UsageError, match=r": no folder in test/ and val/ is called like a class of train/\n"):
        open_source(str(tmp_path))
    tree(tmp_path / "val", TWO_CLASSES)
    assert open_source(str(tmp_path)).splits["test"].tolist() == [0, 0, 1]


def test_jpeg_and_png_keep_their_bytes_and_the_rest_becomes_png(tmp_path: Path) -> None:
    files = {"a/1.JPG": image(9, "JPEG"), "a/2.png": image(9), "a/3.bmp": image(9, "BMP"), "b/4.png": image(9, "JPEG")}
    source = open_source(str(tree(tmp_path, files)))
    read = [source.read("train", i) for i in range(4)]
    assert read[0] == (files["a/1.JPG"], "jpg")
    assert read[1] == (files["a/2.png"], "png")
    assert read[2] == (files["a/2.png"], "png")
    assert read[3] == (files["b/4.png"], "jpg")  # what it is, not what it is called


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    tree(tmp_path, TWO_CLASSES | {"cat/notes.txt": b"x", "cat/._1.png": b"x", ".git/x.png": b"x", "README": b"x"})
    source = open_source(str(tmp_path))
    assert list(source.classes) == ["cat", "dog"]
    assert len(source.splits["train"]) == 3


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"1.png": image(), "2.png": image(), "labels.csv": b"", ".x": b""},
            "no class folders; it holds 2 images, 1 .csv file",
        ),
        ({".x": b""}, "no class folders; it is empty"),
        ({"cat/1.txt": b"x", "dog/1.txt": b"x"}, "no images"),
        ({**TWO_CLASSES, "empty/x.txt": b"x"}, ": 1 .txt file)\n  -> delete the folder"),
        (
            {f"{split}/{name}": data for split in ("train", "test") for name, data in TWO_CLASSES.items()}
            | {"train/empty/x.txt": b"x", "test/empty/1.png": image()},
            "split 'train' has no image of class 'empty'",
        ),
        (
            {"train/cat/1.png": image(), "train/dog/1.png": image(), "test/cat/1.png": image()},
            "test: no folder for class 'dog', which",
        ),
        (
            {"train/cat/1.png": image(), "test/cat/1.png": image(), "test/dog/1.png": image()},
            "train: no folder for class 'dog', which",
        ),
        (
            {"train/cat/1.png": image(), "train/dog/1.png": image(), "val/cat/x.txt": b"", "val/dog/1.png": image()},
            "split 'test' has no image of class 'cat'",
        ),
    ],
)
def test_unusable_folder(tmp_path: Path, files: dict[str, bytes], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(str(tree(tmp_path, files)))
    assert told in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("data", [b"", b"no image", image(5)[:50], image(5, "JPEG")[:300]])
def test_unreadable_image_stops_the_ingest_by_name(tmp_path: Path, data: bytes) -> None:
    tree(tmp_path, {**TWO_CLASSES, "dog/broken.png": data})
    written: list[str] = []
    with pytest.raises(RunError, match=r"dog/broken.png is not a readable image: .*\n  -> remove or replace"):
        write_dataset(open_source(str(tmp_path)), lambda file, _data: written.append(file), seed=0, test_fraction=0.5)
    assert "manifest.json" not in written


def test_image_that_vanishes(tmp_path: Path) -> None:
    source = open_source(str(tree(tmp_path, TWO_CLASSES)))
    (tmp_path / "dog/1.png").unlink()
    with pytest.raises(RunError, match=r"dog/1.png: No such file"):
        source.read("train", 2)


# WebDataset


def make_tar(path: Path, members: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


PAIRS = {"a.png": image(1), "a.cls": b"0", "b.jpg": image(2, "JPEG"), "b.cls": b"1\n", "b.json": b"{}"}


@pytest.mark.parametrize(("prefix", "suffix"), [("", "tar"), ("", "TAR"), ("wds:", "tar")])
def test_tars(tmp_path: Path, prefix: str, suffix: str) -> None:
    make_tar(tmp_path / f"x-0.{suffix}", PAIRS)
    make_tar(tmp_path / f"x-1.{suffix}", {"sub/c.cls": b"1", "sub/c.seg.txt": b"", "sub/c.png": image(3)})
    source = open_source(f"{prefix}{tmp_path}/x-*.{suffix}")
    assert {split: labels.tolist() for split, labels in source.splits.items()} == {"train": [0, 1, 1]}
    assert list(source.classes) == ["0", "1"]
    assert source.read("train", 1) == (PAIRS["b.jpg"], "jpg")
    assert pixels(source, "train", 2)[0, 0, 0] == 3


def test_tars_with_a_test_split_and_names(tmp_path: Path) -> None:
    make_tar(tmp_path / "train-0.tar", PAIRS)
    make_tar(tmp_path / "test-0.tar", PAIRS)
    for file, text in (("classes.json", json.dumps(["cat", "dog"])), ("classes.txt", "cat\ndog\n")):
        (tmp_path / file).write_text(text)
        source = open_source(f"{tmp_path}/*.tar")
        assert list(source.classes) == ["cat", "dog"]
        assert list(source.splits) == ["train", "test"]
        (tmp_path / file).unlink()


def test_our_own_chunks_are_a_source(tmp_path: Path) -> None:
    digits = open_source("digits")
    write_dataset(digits, lambda file, data: (tmp_path / file).write_bytes(data) and None, seed=0, test_fraction=0.2)
    source = open_source(f"wds:{tmp_path}/*.tar")
    assert {split: len(labels) for split, labels in source.splits.items()} == {"train": 1438, "test": 359}


@pytest.mark.parametrize(
    ("members", "error", "told"),
    [
        ({"a.png": image()}, RunError, "sample 'a' has no label (KEY.cls)"),
        ({"a.cls": b"0"}, RunError, "sample 'a' has no image"),
        ({"a.png": image(), "a.cls": b"cat"}, UsageError, "a.cls contains b'cat'"),
        ({"a.png": image(), "a.cls": b"-1"}, UsageError, "a.cls contains b'-1'"),
        ({"a.png": image(), "a.cls": b"1"}, UsageError, "no image of class '0'"),
        ({"notes.txt": b"x"}, UsageError, "no images (left out: 1 .txt file"),
        ({"n0.0.jpg": b"x", "n0.0.cls": b"1"}, UsageError, "no images (left out: 1 .0.cls file, 1 .0.jpg file"),
    ],
)
def test_unusable_tar(tmp_path: Path, members: dict[str, bytes], error: type[LiptError], told: str) -> None:
    make_tar(tmp_path / "x.tar", members)
    with pytest.raises(error) as caught:
        open_source(f"{tmp_path}/x.tar")
    assert told in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_damaged_and_compressed_tars(tmp_path: Path) -> None:
    make_tar(tmp_path / "x.tar", PAIRS)
    whole = (tmp_path / "x.tar").read_bytes()
    make_tar(tmp_path / "z.tar", PAIRS, "w:gz")
    for name, data in (("cut.tar", whole[:700]), ("noise.tar", bytes(range(256)) * 40)):
        (tmp_path / name).write_bytes(data)
    told = {
        "cut": "cut at byte 700, in a.png",
        "noise": "not a readable uncompressed",
        "z": "not a readable uncompressed",
    }
    for name, text in told.items():
        with pytest.raises(RunError, match=rf"{name}.tar: {text}"):
            open_source(f"{tmp_path}/{name}.tar")


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("classes.txt", "cat\n", "label 1 for 1 class\\n"),
        ("classes.txt", "cat\ndog\nfox\n", "no image of class 'fox'"),
        ("classes.txt", "caf\xe9\ncafe\u0301\n", "is spelled in two ways that look alike"),
        ("classes.json", "{", "classes.json"),
        ("classes.json", '{"cat": 0}', "classes.json: not a list of names"),
    ],
)
def test_class_names_must_fit(tmp_path: Path, file: str, text: str, told: str) -> None:
    make_tar(tmp_path / "x.tar", PAIRS)
    (tmp_path / file).write_text(text)
    with pytest.raises(UsageError, match=told):
        open_source(f"{tmp_path}/x.tar")


def test_image_in_a_tar_is_checked(tmp_path: Path) -> None:
    make_tar(tmp_path / "x.tar", {**PAIRS, "a.png": image()[:40]})
    with pytest.raises(RunError, match=r"x.tar: a is not a readable image"):
        open_source(f"{tmp_path}/x.tar").read("train", 0)


def test_several_unreadable_images_are_listed_one_a_line(tmp_path: Path) -> None:
    broken = {f"dog/broken{number}.png": b"no image" for number in range(2)}
    tree(tmp_path, TWO_CLASSES | {"cat/3.png": image(), "dog/3.png": image()} | broken)
    with pytest.raises(RunError) as caught:
        write_dataset(open_source(str(tmp_path)), lambda _name, _data: None, seed=0, test_fraction=0.2)
    first, *listed, remedy = str(caught.value).splitlines()
    assert first == "2 images cannot be ingested:"
    assert sorted(line.split(" is not")[0] for line in listed) == [f"  - {tmp_path / name}" for name in sorted(broken)]
    assert remedy == "  -> remove or replace these files, then ingest again"
