"""Image trees as people have them: links, stray files, splits and classes of all names. Never a loss in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lipt.data.sources import open_source
from lipt.data.sources.base import describe_left_out
from lipt.errors import LiptError, UsageError
from tests.unit.data.sources.files import image, tree

PETS = ("cat", "dog")


def images(*folders: str, count: int = 2) -> dict[str, bytes]:
    return {f"{folder}/{i}.png": image(i) for folder in folders for i in range(count)}


def counts(root: Path) -> dict[str, int]:
    return {split: len(labels) for split, labels in open_source(str(root)).splits.items()}


def refused(root: Path, *, code: int = 2) -> str:
    with pytest.raises(LiptError) as caught:
        open_source(str(root))
    assert caught.value.exit_code == code
    assert caught.value.remedy
    assert str(root) in caught.value.message
    return caught.value.message


# Links


@pytest.mark.parametrize("target", [".", "..", "../..", "/"])
def test_a_loop_of_links_adds_no_image(tmp_path: Path, target: str) -> None:
    root = tree(tmp_path / "data", images("cat", "dog", count=4))
    for name in ("cat/again", "dog/again"):
        (root / name).symlink_to(target)
    source = open_source(str(root))
    assert len(source.splits["train"]) == 8
    assert source.left_out == {"links to folders above or read before": 2}


def test_two_folders_that_lead_to_each_other(tmp_path: Path) -> None:
    root = tree(tmp_path / "data", images("cat/a", "cat/b", "dog"))
    (root / "cat/a/b").symlink_to("../b")
    (root / "cat/b/a").symlink_to("../a")
    source = open_source(str(root))
    assert len(source.splits["train"]) == 6
    assert source.left_out == {"links to folders above or read before": 2}


def test_links_to_folders_and_files_elsewhere_are_followed(tmp_path: Path) -> None:
    tree(tmp_path / "elsewhere", images("cats", "more"))
    root = tree(tmp_path / "data", images("dog"))
    (root / "cat").symlink_to("../elsewhere/cats")
    (root / "dog/more").symlink_to("../../elsewhere/more")
    (root / "dog/one.png").symlink_to("../../elsewhere/cats/0.png")
    source = open_source(str(root))
    assert source.names["train"] == [
        "cat/0.png",
        "cat/1.png",
        "dog/0.png",
        "dog/1.png",
        "dog/one.png",
        "dog/more/0.png",
        "dog/more/1.png",
    ]
    assert source.left_out == {}


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("cat/dogs", "../dog"),
        ("fox", "dog"),
        ("train/cat/dogs", "../dog"),
        ("test/cat", "../train/cat"),
        ("val", "train"),
    ],
)
def test_one_folder_in_two_classes_or_splits_is_refused(tmp_path: Path, link: str, target: str) -> None:
    splits = ("train/", "test/") if link.startswith("t") else ("train/",) if link == "val" else ("",)
    root = tree(tmp_path / "data", images(*(f"{split}{name}" for split in splits for name in PETS)))
    if link == "test/cat":
        for file in (root / link).iterdir():
            file.unlink()
        (root / link).rmdir()
    (root / link).symlink_to(target)
    assert " share the folder " in refused(root)


@pytest.mark.parametrize(
    ("link", "target"), [("cat/9.jpg", "gone.jpg"), ("cat/9.jpg", "9.jpg"), ("cat/more", "../gone"), ("fox", "../gone")]
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, link: str, target: str) -> None:
    root = tree(tmp_path / "data", images(*PETS))
    (root / link).symlink_to(target)
    assert refused(root, code=1) == f"{root}/{link}: a broken link to {target}"


def test_a_source_that_is_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("data")
    assert refused(tmp_path / "data", code=1).endswith("Too many levels of symbolic links")


@pytest.mark.parametrize("spec", ["a\0b", "wds:a\0b/*.tar"])
def test_a_path_with_a_zero_byte(spec: str) -> None:
    with pytest.raises(UsageError, match="is not a path"):
        open_source(spec)


# What is left out


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "data",
        images("train/cat", "train/dog", "test/cat", "test/dog")
        | dict.fromkeys(["train/cat/a.txt", "train/dog/b.TXT", "train/dog/photo.JPG.bak", "train/cat/plain"], b"x")
        | dict.fromkeys(["train/cat/Thumbs.db", "train/cat/.DS_Store", "train/cat/._0.png"], b"x")
        | {"train/cat/.cache/1.png": b"x", "train/.fox/1.png": b"x", "train/.fox/x.txt": b"x", "train/1.png": b"x"}
        | {"0.jpg": b"x", "README.md": b"x", "train/cat/odd.2024-01-01 12-00-00": b"x"},
    )
    os.mkfifo(root / "train/cat/pipe.png")
    source = open_source(str(root))
    assert len(source.splits["train"]) == 4
    assert source.left_out == {
        ".txt files": 2,
        ".bak files": 1,
        "files without a suffix": 2,
        ".db files": 1,
        "hidden files": 2,
        "images in hidden folders": 2,
        "images outside of class folders": 2,
        "non-regular files": 1,
    }
    assert describe_left_out(source.left_out) == (
        "2 .txt files, 2 files without a suffix, 2 hidden files, 2 images in hidden folders, "
        "2 images outside of class folders, 1 .bak file and 2 other kinds"
    )


@pytest.mark.parametrize("splits", [("",), ("train/", "test/")])
def test_folders_that_systems_add_are_left_out(tmp_path: Path, splits: tuple[str, ...]) -> None:
    added = (
        "@eaDir/0.png",
        "cat/@eaDir/0.png",
        "__MACOSX/cat",
        "dog/__MACOSX",
        "$RECYCLE.BIN/0.png",
        "lost+found/0.png",
    )
    folders = [f"{split}{name}" for split in splits for name in (*PETS, *added)]
    source = open_source(str(tree(tmp_path, images(*folders, "@eaDir/a", "__MACOSX/a"))))
    assert list(source.classes) == list(PETS)
    assert [len(labels) for labels in source.splits.values()] == [4] * len(splits)
    assert source.left_out == {"images in hidden folders": 12 * len(splits) + 4}


def test_every_suffix_of_jpeg_is_read(tmp_path: Path) -> None:
    names = ["1.jpg", "2.JPEG", "3.jpe", "4.jfif", "5.JFIF"]
    root = tree(tmp_path, {f"{pet}/{name}": image(0, "JPEG") for name in names for pet in PETS})
    assert counts(root) == {"train": 10}


def test_a_class_of_other_files_only_is_refused_and_says_what_is_there(tmp_path: Path) -> None:
    root = tree(tmp_path, images("cat", "dog") | {"fox/1": b"x", "fox/2": b"x", "fox/3.txt": b"x"})
    message = refused(root)
    assert message.endswith(f"fox holds no image (left out in {root}: 2 files without a suffix, 1 .txt file)")


def test_one_class_is_refused(tmp_path: Path) -> None:
    assert refused(tree(tmp_path, images("cat"))).endswith("only one class, 'cat'")


@pytest.mark.parametrize("inner", [PETS, ("test", "train")])
def test_a_folder_around_the_data_is_named(tmp_path: Path, inner: tuple[str, str]) -> None:
    """As an archive of the name `pets` is often unpacked."""
    with pytest.raises(UsageError) as caught:
        open_source(str(tree(tmp_path, images(*(f"pets/{name}/x" for name in inner)))))
    assert caught.value.message.endswith(f"only one class, 'pets', with 2 folders of images in it: {', '.join(inner)}")
    assert f"use {tmp_path}/pets" in caught.value.remedy


@pytest.mark.parametrize("name", ["cat/\udce4.png", "\udce4/1.png", "cat/a\nb.png", "cat/a\rb.png", "cat/a\u2028b.png"])
def test_names_that_cannot_be_written_down_are_refused(tmp_path: Path, name: str) -> None:
    assert "is not UTF-8 on one line" in refused(tree(tmp_path, images(*PETS) | {name: image()}), code=1)


# Splits and classes


ONE_CHARACTER, TWO_CHARACTERS = "caf\xe9", "cafe\u0301"


@pytest.mark.parametrize("more", [(), ("tea",)])
@pytest.mark.parametrize(("train", "test"), [(ONE_CHARACTER, TWO_CHARACTERS), (TWO_CHARACTERS, ONE_CHARACTER)])
def test_a_class_that_train_and_test_spell_differently(
    tmp_path: Path, train: str, test: str, more: tuple[str, ...]
) -> None:
    tree(tmp_path, images(*(f"train/{name}" for name in (train, *more)), *(f"test/{name}" for name in (test, *more))))
    told = refused(tmp_path)
    assert f"class {test!r} is spelled in two ways that look alike: {train!a} and {test!a}" in told


def test_a_class_in_two_spellings_beside_each_other(tmp_path: Path) -> None:
    tree(tmp_path, images(ONE_CHARACTER, TWO_CHARACTERS))
    assert "is spelled in two ways that look alike: 'cafe\\u0301' and 'caf\\xe9'" in refused(tmp_path)


@pytest.mark.parametrize("train", ["train", "Train", "TRAINING"])
@pytest.mark.parametrize("test", ["test", "Test", "testing", "val", "Val", "valid", "validation", "eval", "dev"])
def test_splits_in_all_spellings(tmp_path: Path, train: str, test: str) -> None:
    root = tree(tmp_path, images(*(f"{train}/{name}" for name in PETS), count=3) | images(f"{test}/cat", f"{test}/dog"))
    assert counts(root) == {"train": 6, "test": 4}


@pytest.mark.parametrize("name", ["train", "test", "val"])
def test_a_class_may_be_called_like_a_split(tmp_path: Path, name: str) -> None:
    root = tree(tmp_path, images("bus", "car", name))
    source = open_source(str(root))
    assert list(source.classes) == sorted(["bus", "car", name])
    assert len(source.splits["train"]) == 6


@pytest.mark.parametrize(
    ("splits", "inner"),
    [
        (("test_set", "training_set"), ("/cat", "/dog")),
        (("photos-test", "photos-train"), ("/cat", "/dog")),
        (("train2017", "val2017"), ("",)),
        (("test", "val"), ("",)),
    ],
)
def test_folders_that_are_all_called_like_splits_are_ambiguous(
    tmp_path: Path, splits: tuple[str, str], inner: tuple[str, ...]
) -> None:
    root = tree(tmp_path, images(*(f"{split}{name}" for split in splits for name in inner)) | {"notes/x.txt": b""})
    assert refused(root).endswith(
        f"all folders are called like splits, as {splits[0]}/ and {splits[1]}/: are they splits or classes?"
    )
    tree(tmp_path, images("bus"))  # a class that is no word of a split: they are classes too
    (tmp_path / "notes/x.txt").rename(tmp_path / "x.txt")
    (tmp_path / "notes").rmdir()
    assert list(open_source(str(root)).classes) == sorted(["bus", *splits])


def test_classes_that_hold_splits_are_refused(tmp_path: Path) -> None:
    root = tree(tmp_path, images("cat/train", "cat/test", "dog/train-2"))
    assert refused(root).endswith("all class folders hold folders called like splits, as cat/test/ and cat/train/")


@pytest.mark.parametrize("folders", [("cat/train", "dog/train"), ("cat/train", "cat/test", "dog/sitting")])
def test_folders_in_classes_that_are_no_splits(tmp_path: Path, folders: tuple[str, ...]) -> None:
    assert counts(tree(tmp_path, images(*folders))) == {"train": 2 * len(folders)}


def test_a_nested_class_called_train_is_ambiguous(tmp_path: Path) -> None:
    root = tree(tmp_path, images("bus", "car", "train/steam", "train/diesel"))
    assert refused(root).endswith("train/ holds folders of images, and beside it is bus/: is it a split or a class?")


def test_a_test_split_without_train_is_ambiguous(tmp_path: Path) -> None:
    root = tree(tmp_path, images("cat", "dog", "test/cat", "test/dog"))
    assert refused(root).endswith("test/ holds folders of images, as a split does, but there is no train/")


def test_two_training_splits_are_refused(tmp_path: Path) -> None:
    root = tree(tmp_path, images("train/cat", "train/dog", "training/cat", "training/dog"))
    assert refused(root).endswith("but there are train/ and training/")


def test_of_two_test_splits_one_is_used_and_the_other_counted(tmp_path: Path) -> None:
    splits = [f"{split}/{name}" for split in ("train", "test", "val") for name in PETS]
    source = open_source(str(tree(tmp_path, images(*splits))))
    assert {name.split("/")[0] for name in source.names["test"]} == {"test"}
    assert source.left_out == {"images in val/ (test/ is the test split)": 4}


def test_folders_beside_both_splits_are_counted(tmp_path: Path) -> None:
    splits = [f"{split}/{name}" for split in ("train", "test") for name in PETS]
    source = open_source(str(tree(tmp_path, images(*splits, "unlabeled", count=3) | {"notes/x.txt": b""})))
    assert source.left_out == {"images in unlabeled/": 3}


def test_unlabelled_test_images_beside_val_are_counted(tmp_path: Path) -> None:
    source = open_source(str(tree(tmp_path, images("train/cat", "train/dog", "val/cat", "val/dog", "test/images"))))
    assert {name.split("/")[0] for name in source.names["test"]} == {"val"}
    assert source.left_out == {"images in test/ (val/ is the test split)": 2}


def test_splits_without_class_folders_are_refused(tmp_path: Path) -> None:
    assert refused(tree(tmp_path, images("train", "test"))).endswith("train: no class folders; it holds 2 images")


def test_folders_with_the_same_word_of_a_split_are_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, images("test_negative", "test_positive"))
    assert list(open_source(str(root)).classes) == ["test_negative", "test_positive"]
