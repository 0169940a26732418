"""Damage anywhere in tars and images ends in one error, or does not matter; it never loses a sample in silence."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from lipt.cli import main
from lipt.data.decoding import decode_stored, image_to_store
from lipt.data.sources import open_source
from lipt.errors import LiptError, RunError, UsageError

T = TypeVar("T")

FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
BLOCK = 512
QUICK = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOME = settings(QUICK, max_examples=10)


@cache
def picture(form: str = "PNG", shade: int = 0) -> bytes:
    noise = np.random.default_rng(shade).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    options: dict[str, Any] = {"exif": Image.Exif()} if form in ("JPEG", "TIFF") else {}
    if options:
        options["exif"][0x0112] = 6
    Image.fromarray(noise).save(buffer, format=form, **options)
    return buffer.getvalue()


@cache
def samples() -> dict[str, bytes]:
    """Six images with labels and files of other kinds; the names are too long for a plain header."""
    files: dict[str, bytes] = {}
    for i in range(6):
        key = f"{'deep' * 20}/{'name' * 20}{i}"
        files |= {f"{key}.png": picture(shade=i), f"{key}.json": b"{}" * i, f"{key}.cls": b"%d\n" % (i % 2)}
    return files


@cache
def packed(form: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=FORMS[form]) as tar:
        for name, data in samples().items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@dataclass(frozen=True)
class Damage:
    """One byte changed, a part wiped or put in, or an end cut off or added; `at` is a share of the length."""

    kind: str
    at: float
    length: int
    garbage: bytes

    def __call__(self, data: bytes) -> bytes:
        at = int(self.at * len(data))
        match self.kind:
            case "change":
                return data[:at] + bytes([data[at] ^ (self.garbage[0] or 1)]) + data[at + 1 :]
            case "wipe":
                return (data[:at] + bytes(self.length) + data[at + self.length :])[: len(data)]
            case "put in":
                return data[:at] + self.garbage + data[at:]
            case "cut":
                return data[:at]
            case _:
                return data + self.garbage


DAMAGE = st.builds(
    Damage,
    kind=st.sampled_from(["change", "wipe", "put in", "cut", "append"]),
    at=st.floats(0, 1, exclude_max=True),
    length=st.integers(1, 3 * BLOCK),
    garbage=st.binary(min_size=1, max_size=600),
)


def pixels(data: bytes) -> bytes:
    """What a reader that has no rules of ours sees."""
    return Image.open(io.BytesIO(data)).convert("RGB").tobytes()


def attempt(action: Callable[[], T]) -> tuple[T | None, LiptError | None]:
    try:
        return action(), None
    except (RunError, UsageError) as error:  # a damaged label may look like a wrong one
        return None, error


@pytest.mark.parametrize("form", FORMS)
@QUICK
@given(damage=DAMAGE)
def test_a_damaged_tar_is_refused_or_holds_every_sample(tmp_path: Path, form: str, damage: Damage) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(damage(packed(form)))
    source, error = attempt(lambda: open_source(str(path)))
    if source is not None:
        read, error = attempt(lambda: [pixels(source.read("train", i)[0]) for i in range(len(source.splits["train"]))])
        assert source.names["train"] == [f"x.tar/{name}" for name in samples() if name.endswith(".png")]
        assert sum(source.left_out.values()) == 6
        assert error or read == [pixels(picture(shade=i)) for i in range(6)]
    assert error is None or (error.message.startswith(str(path)) and error.remedy)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM"])
@pytest.mark.filterwarnings("ignore")  # Pillow warns of much
@QUICK
@given(damage=DAMAGE)
def test_a_damaged_image_is_refused_or_read_as_it_is_stored(form: str, damage: Damage) -> None:
    data = damage(picture(form))
    stored, error = attempt(lambda: image_to_store(data, "photo"))
    if stored is None:
        assert error is not None
        assert error.message.startswith("photo is not a readable image: ")
        return
    assert decode_stored(*stored).tobytes() == pixels(stored[0])
    if form == "PNG":  # has checksums
        assert pixels(stored[0]) == pixels(picture())


def run(*arguments: str) -> Any:
    """The exit code of a `lipt` command in this process."""
    try:
        main([*arguments])
    except SystemExit as end:
        return end.code
    return 0


@SOME
@given(form=st.sampled_from(["PNG", "JPEG", "tar"]), damage=DAMAGE)
def test_ingest_of_damaged_data_ends_with_one_message_and_a_documented_code(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], form: str, damage: Damage
) -> None:
    top = tmp_path_factory.mktemp("data")
    if form == "tar":
        source = str(top / "x.tar")
        Path(source).write_bytes(damage(packed("pax")))
    else:
        source = str(top / "photos")
        for i in range(4):
            file = top / "photos" / f"class {i % 2}" / f"{i}.{form.lower()}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(damage(picture(form, i)) if i == 3 else picture(form, i))
    capsys.readouterr()
    code = run("ingest", source, str(top / "store"))
    told = capsys.readouterr()
    assert code in ((0, 1, 2) if form == "tar" else (0, 1))  # 2: a damaged label may look like a wrong one
    assert "Traceback" not in told.err
    if code:
        assert told.out == ""
        assert told.err.count("lipt: ") == 1
        assert str(top) in told.err
        assert not (top / "store" / "manifest.json").exists()
    else:
        counts = "4 train, 2 test" if form == "tar" else "2 train, 2 test"
        assert counts in told.err
