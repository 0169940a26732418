"""Tars that were damaged, cut or joined, and samples that WebDataset allows and nobody can read: never a loss."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from lipt.data.sources import open_source
from lipt.errors import LiptError, RunError
from tests.unit.data.sources.files import image

SAMPLES = 10
BLOCK = 512


def members(first: int = 0, count: int = SAMPLES) -> dict[str, bytes]:
    """`count` samples of an image and a label, which alternates."""
    pairs = ({f"{i:03d}.png": image(i), f"{i:03d}.cls": str(i % 2).encode()} for i in range(first, first + count))
    return {name: data for pair in pairs for name, data in pair.items()}


def packed(files: dict[str, bytes] | list[tuple[str, bytes]], form: int = tarfile.USTAR_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, data in files.items() if isinstance(files, dict) else files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def refused(path: Path, data: bytes, *, code: int = 1) -> str:
    path.write_bytes(data)
    with pytest.raises(LiptError) as caught:
        open_source(str(path))
    assert caught.value.exit_code == code
    assert caught.value.remedy
    assert caught.value.message.startswith(str(path))
    return caught.value.message


def offsets(data: bytes) -> dict[str, int]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: member.offset for member in tar}


@pytest.mark.parametrize("at", [0, 50, 124, 135, 148, 156, 200, 500])
def test_a_flipped_bit_in_a_header_is_told_with_its_place(tmp_path: Path, at: int) -> None:
    data = bytearray(packed(members()))
    header = offsets(bytes(data))["005.png"]
    data[header + at] ^= 2
    assert refused(tmp_path / "x.tar", bytes(data)).endswith(f"x.tar: damaged header at byte {header:,}")


def test_a_header_of_zeros_in_the_middle_is_not_the_end(tmp_path: Path) -> None:
    data = packed(members())
    header = offsets(data)["005.png"]
    message = refused(tmp_path / "x.tar", data[:header] + bytes(BLOCK) + data[header + BLOCK :])
    assert f"the tar ends at byte {header:,}, but more follows at byte {header + BLOCK:,}" in message


def test_joined_tars_are_refused(tmp_path: Path) -> None:
    one, two = packed(members()), packed(members(SAMPLES))
    end = offsets(one)["009.cls"] + 2 * BLOCK
    assert f"the tar ends at byte {end:,}, but more follows at byte {len(one):,}" in refused(
        tmp_path / "x.tar", one + two
    )


def test_a_copy_whose_rest_was_never_filled_in_is_refused(tmp_path: Path) -> None:
    data = packed(members())
    header = offsets(data)["005.png"]
    message = refused(tmp_path / "x.tar", data[:header] + bytes(2_000_000))
    assert message.endswith(f"the tar ends at byte {header:,}, but 2,000,000 bytes follow, more than padding")


def test_an_empty_tar_among_others_is_counted(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(packed(members()))
    (tmp_path / "1.tar").write_bytes(packed({}))
    assert open_source(f"{tmp_path}/*.tar").left_out == {"tars without images": 1}


@pytest.mark.parametrize("where", ["at a header", "in a header", "in the data", "in the padding", "in the end mark"])
def test_a_cut_tar_is_refused(tmp_path: Path, where: str) -> None:
    data = packed(members())
    header, end = offsets(data)["005.png"], offsets(data)["009.cls"] + 2 * BLOCK
    at = {
        "at a header": header,
        "in a header": header + 100,
        "in the data": header + BLOCK + 20,
        "in the padding": header + BLOCK + len(image(5)) + 3,
        "in the end mark": end + BLOCK,
    }[where]
    message = refused(tmp_path / "x.tar", data[:at])
    assert (
        message.endswith(f"damaged header at byte {header:,}")
        if where == "in a header"
        else f"cut at byte {at:,}" in message
    )


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (("003.png", image(9)), "key '003' occurs twice: 003.png at byte"),
        (("003.cls", b"1"), "key '003' occurs twice: 003.cls at byte"),
        (("003.jpg", image(9, "JPEG")), "key '003' occurs twice: 003.png at byte"),
        (("003.CLS", b"1"), "key '003' occurs twice: 003.cls at byte"),
    ],
)
def test_two_images_or_labels_of_one_key_are_refused(tmp_path: Path, extra: tuple[str, bytes], told: str) -> None:
    data = packed([*members().items(), extra])
    message = refused(tmp_path / "x.tar", data)
    assert told in message
    assert message.endswith(f"{extra[0]} at byte {offsets(packed(members()))['009.cls'] + 2 * BLOCK:,}")


def test_what_is_no_image_and_no_label_is_counted(tmp_path: Path) -> None:
    extra = {
        "000.json": b"{}",
        "001.json": b"{}",
        "000.seg.txt": b"",
        "000.left.jpg": b"x",
        "notes": b"x",
        "._0.png": b"",
    }
    buffer = io.BytesIO(packed(members() | extra))
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        for name, kind in (("deep", tarfile.DIRTYPE), ("000.txt", tarfile.SYMTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "000.json" * (kind == tarfile.SYMTYPE)
            tar.addfile(info)
    (tmp_path / "x.tar").write_bytes(buffer.getvalue())
    source = open_source(f"{tmp_path}/x.tar")
    assert len(source.splits["train"]) == SAMPLES
    assert source.left_out == {
        ".json files": 2,
        ".seg.txt files": 1,
        ".left.jpg files": 1,
        "files without a suffix": 1,
        "hidden files": 1,
        "non-regular files": 2,
    }


def test_a_sample_whose_images_have_longer_suffixes_is_refused_and_names_them(tmp_path: Path) -> None:
    message = refused(tmp_path / "x.tar", packed(members() | {"a.left.jpg": b"", "a.right.jpg": b"", "a.cls": b"0"}))
    assert message.endswith("sample 'a' has no image (KEY.jpg or KEY.png); beside it: a.left.jpg, a.right.jpg")


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
@pytest.mark.parametrize("name", ["a.png", "a.cls"])
def test_images_and_labels_that_are_links_are_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    buffer = io.BytesIO(packed(members()))
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "000.png"
        tar.addfile(info)
    message = refused(tmp_path / "x.tar", buffer.getvalue())
    assert f"{name} at byte " in message
    assert message.endswith("is a link or sparse file")


def test_sparse_files_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "0.png").open("wb") as file:
        file.write(image())
        file.truncate(1_000_000)
    (tmp_path / "0.cls").write_text("0")
    subprocess.run(["tar", "--sparse", "-cf", "x.tar", "0.png", "0.cls"], cwd=tmp_path, check=True)
    with pytest.raises(RunError, match=r"x.tar: 0.png at byte 0 is a link or sparse file\n  -> .*without --sparse"):
        open_source(f"{tmp_path}/x.tar")


@pytest.mark.parametrize("label", [b"999999999999", b"9" * 32, b"9" * 5000, b"0" + b" " * 40, b"1.0", b"", b"\xb2"])
def test_a_label_that_is_none_takes_no_memory(tmp_path: Path, label: bytes) -> None:
    message = refused(tmp_path / "x.tar", packed(members() | {"000.cls": label}), code=2)
    assert "000.cls contains " in message


def test_labels_with_a_gap_are_refused(tmp_path: Path) -> None:
    message = refused(tmp_path / "x.tar", packed(members() | {"000.cls": b"2000000000"}), code=2)
    assert message.endswith("labels go up to 2000000000, but there is no image of class '2'")


def test_one_class_is_refused(tmp_path: Path) -> None:
    data = packed({"a.png": image(), "a.cls": b"0"})
    assert "only one class, '0'" in refused(tmp_path / "x.tar", data, code=2)


def test_forged_sizes_end_in_an_error(tmp_path: Path) -> None:
    """Valid checksums over a size that is negative, or larger than memory, in the header and in a pax record."""
    plain = packed(members())
    for at, size in ((0, -BLOCK), (0, 10**12), (offsets(plain)["005.png"], -8 * BLOCK)):
        info = tarfile.TarInfo("a.png")
        info.size = size
        header = info.tobuf(tarfile.GNU_FORMAT)
        refused(tmp_path / "x.tar", plain[:at] + header + plain[at + BLOCK :])
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 10**13
    refused(tmp_path / "x.tar", long_name.tobuf(tarfile.GNU_FORMAT) + plain)
    for record in (b"18 size=-99999999\n", b"30 size=9999999999999999999999\n"):
        pax = tarfile.TarInfo("pax")
        pax.type, pax.size = tarfile.XHDTYPE, len(record)
        refused(tmp_path / "x.tar", pax.tobuf(tarfile.USTAR_FORMAT) + record.ljust(BLOCK, b"\0") + plain)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_are_read_in_every_format(tmp_path: Path, form: int) -> None:
    long = {f"{'d' * 60}/{'ä' * 40}{i}.PNG": image(i) for i in range(4)}
    labels = {name[:-3] + "cls": str(i % 2).encode() for i, name in enumerate(long)}
    (tmp_path / "x.tar").write_bytes(packed(long | labels, form))
    source = open_source(f"{tmp_path}/x.tar")
    assert source.names["train"] == [f"x.tar/{name}" for name in long]
    assert [source.read("train", i)[0] for i in range(4)] == list(long.values())


def test_names_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    data = packed(members() | {"a.cls": b"0", "a.png": image()}).replace(b"a.png", b"\xe4.png")
    header = data.index(b"\xe4.png")
    block = bytearray(data[header : header + BLOCK])
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    message = refused(tmp_path / "x.tar", data[:header] + bytes(block) + data[header + BLOCK :])
    assert message.endswith(r"the name '\udce4.png' is not UTF-8 on one line")


def test_every_writer_ends_its_tars(tmp_path: Path) -> None:
    """What GNU tar and the webdataset library write is whole; Python's tarfile is in all other tests."""
    import webdataset

    for name, data in members().items():
        (tmp_path / name).write_bytes(data)
    subprocess.run(["tar", "-cf", "gnu.tar", *members()], cwd=tmp_path, check=True)
    subprocess.run(["tar", "-b1", "--format=pax", "-cf", "small.tar", *members()], cwd=tmp_path, check=True)
    with webdataset.TarWriter(str(tmp_path / "wds.tar")) as writer:
        for i in range(SAMPLES):
            writer.write({"__key__": f"{i:03d}", "png": image(i), "cls": i % 2})
    for tar in ("gnu.tar", "small.tar", "wds.tar"):
        source = open_source(f"{tmp_path}/{tar}")
        assert source.splits["train"].tolist() == [i % 2 for i in range(SAMPLES)]
        assert [source.read("train", i)[0] for i in range(SAMPLES)] == [image(i) for i in range(SAMPLES)]


def test_a_tar_that_is_cut_after_the_scan(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(packed(members()))
    source = open_source(f"{tmp_path}/x.tar")
    (tmp_path / "x.tar").write_bytes(packed(members())[:600])
    with pytest.raises(RunError, match=r"x.tar: cut since it was looked through, in 009"):
        source.read("train", 9)


@pytest.mark.parametrize(
    ("names", "train", "test"),
    [
        (["train-0", "test-0"], 1, 1),
        (["photos-train-0", "photos-validation-0"], 1, 1),
        (["TRAIN_0", "Val_0"], 1, 1),
        (["mountain-0", "valley-0", "testimony-0"], 3, 0),  # a word, not its beginning
        (["val-0", "val-1"], 2, 0),  # named on purpose
        (["train-0", "eval0", "eval1"], 1, 2),
    ],
)
def test_names_of_tars_decide_the_split(tmp_path: Path, names: list[str], train: int, test: int) -> None:
    for i, name in enumerate(names):
        (tmp_path / f"{name}.tar").write_bytes(packed(members(10 * i)))
    counts = {split: len(labels) for split, labels in open_source(f"{tmp_path}/*.tar").splits.items()}
    assert counts == {"train": train * SAMPLES} | ({"test": test * SAMPLES} if test else {})


def test_of_two_test_splits_one_is_used_and_the_other_counted(tmp_path: Path) -> None:
    for i, name in enumerate(["train-0", "test-0", "val-0", "val-1"]):
        (tmp_path / f"{name}.tar").write_bytes(packed(members(10 * i)))
    source = open_source(f"{tmp_path}/*.tar")
    assert {name.split("/")[0] for name in source.names["test"]} == {"test-0.tar"}
    assert source.left_out == {"tars called 'val' (those called 'test' are the test split)": 2}


@pytest.mark.parametrize(
    ("names", "train", "test"),
    [
        (["train/0", "test/0", "test/1"], 1, 2),
        (["photos-train/0", "val2017/0"], 1, 1),
        (["train/a/0", "val/a/0"], 1, 1),
        (["test/train-0", "test/val-0"], 1, 1),  # the name of a tar counts first
        (["test/train/0", "test/val/0"], 1, 1),  # all are below test/
        (["old/0", "new/0"], 2, 0),
    ],
)
def test_folders_of_tars_decide_the_split(tmp_path: Path, names: list[str], train: int, test: int) -> None:
    """Also below a folder whose name has the word of a split."""
    top = tmp_path / "test-data"
    for i, name in enumerate(names):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / f"{name}.tar").write_bytes(packed(members(10 * i)))
    (top / "classes.txt").write_text("cat\ndog\n")
    source = open_source(f"wds:{top}/{'*/' * names[0].count('/')}*.tar")
    counts = {split: len(labels) for split, labels in source.splits.items()}
    assert counts == {"train": train * SAMPLES} | ({"test": test * SAMPLES} if test else {})
    if not all(name.startswith("test/") for name in names):
        assert (source.name, list(source.classes)) == ("test-data", ["cat", "dog"])


def test_a_tar_whose_name_is_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "x[1].tar").write_bytes(packed(members()))
    assert len(open_source(f"{tmp_path}/x[1].tar").splits["train"]) == SAMPLES


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("classes.txt", b"cat\n\ndog\n", "classes.txt: line 2 is empty; it would shift the labels"),
        ("classes.txt", b"\n", "classes.txt: names no class"),
        ("classes.json", b"[]", "classes.json: names no class"),
        ("classes.txt", b"cat\ncat\n", "classes.txt: 'cat' occurs twice"),
        ("classes.txt", b"caf\xe9\ndog\n", "classes.txt: 'utf-8' codec can't decode"),
        ("classes.json", b'["cat", "cat"]', "classes.json: 'cat' occurs twice"),
        ("classes.json", b"\xff", "classes.json: 'utf-8' codec can't decode"),
        ("classes.json", b"[" * 100_000, "classes.json: "),
        ("classes.json", json.dumps(["cat", "\ud800"]).encode(), "classes.json: the name "),
    ],
)
def test_damaged_class_lists(tmp_path: Path, file: str, content: bytes, told: str) -> None:
    (tmp_path / "x.tar").write_bytes(packed(members()))
    (tmp_path / file).write_bytes(content)
    with pytest.raises(LiptError) as caught:
        open_source(f"{tmp_path}/x.tar")
    assert told in caught.value.message
    assert caught.value.exit_code == (1 if "the name" in told else 2)  # as for the name of a class folder
