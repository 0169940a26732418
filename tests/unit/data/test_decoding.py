"""What an image file means, with files as cameras, scanners and editors write them."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lipt.data.decoding import decode_stored, image_to_store
from lipt.errors import RunError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (4, 6, 3), dtype=np.uint8)
GREY_16 = (np.arange(24, dtype=np.uint16) * 2849).reshape(4, 6)  # 0 .. 65527


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def meaning(data: bytes) -> np.ndarray:
    """(H, W, 3) as ingested, stored and read again; a reader without our rules must see the same."""
    stored, ext = image_to_store(data, "x")
    pixels = decode_stored(stored, f"x.{ext}")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(stored)).convert("RGB")), pixels)
    return pixels


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_16(values: np.ndarray, colour: int, *more: bytes) -> bytes:
    """A PNG of 16 bits per channel; `colour` is the type in its header, `more` are chunks before the pixels."""
    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (32, 32), (97, 61)])
def test_a_jpeg_decodes_as_with_pillow(size: tuple[int, int], progressive: bool, subsampling: int) -> None:
    pixels = RNG.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    for mode in ("RGB", "L"):
        options = {"subsampling": subsampling} if mode == "RGB" else {}
        data = saved(Image.fromarray(pixels).convert(mode), "JPEG", progressive=progressive, quality=90, **options)
        assert np.array_equal(decode_stored(data, "x"), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


def test_pillow_reads_a_jpeg_with_superfluous_bytes_and_refuses_a_short_one() -> None:
    data = saved(Image.fromarray(PIXELS), "JPEG")
    assert np.array_equal(decode_stored(data + b"more", "x"), decode_stored(data, "x"))
    with pytest.raises(RunError, match="x is not a readable image"):
        decode_stored(data[:-40], "x")


@pytest.mark.parametrize(
    ("mode", "form"), [("1", "PNG"), ("L", "PNG"), ("P", "PNG"), ("RGB", "PNG"), ("L", "JPEG"), ("RGB", "JPEG")]
)
def test_plain_files_keep_their_bytes(mode: str, form: str) -> None:
    data = saved(Image.fromarray(PIXELS).convert(mode), form)
    assert image_to_store(data, "x") == (data, {"JPEG": "jpg", "PNG": "png"}[form])
    assert meaning(data).shape == (4, 6, 3)


@pytest.mark.parametrize(
    "data",
    [
        saved(Image.fromarray(GREY_16), "PNG"),
        saved(Image.fromarray(GREY_16), "TIFF"),
        saved(Image.fromarray(GREY_16).convert("I"), "PPM"),
        png_16(GREY_16, 0),
        png_16(np.dstack([GREY_16] * 3), 2),
        b"P5 6 4 65535\n" + GREY_16.astype(">u2").tobytes(),
    ],
    ids=["png", "tiff", "ppm", "grey", "rgb", "pgm"],
)
def test_sixteen_bits_keep_their_upper_byte(data: bytes) -> None:
    assert np.array_equal(meaning(data), np.dstack([(GREY_16 >> 8).astype(np.uint8)] * 3))


def test_colours_of_16_bits_are_stored_with_8() -> None:
    """Readers differ in how they round them."""
    stored, extension = image_to_store(png_16(np.dstack([GREY_16] * 3), 2), "x")
    assert (extension, stored[24]) == ("png", 8)  # bits per channel, in the header


def tiff_12(*values: int) -> bytes:
    """A TIFF of one row of grey pixels with 12 bits each."""
    bits = "".join(f"{value:012b}" for value in values)
    pixels = int(bits, 2).to_bytes(len(bits) // 8, "big")
    #      width, height, bits, no compression, 0 is black, strip, channels, rows and bytes of the strip
    tags = {256: len(values), 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: len(pixels)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory


def test_twelve_bits_keep_their_upper_eight() -> None:
    assert meaning(tiff_12(0, 0x7FF, 0x800, 0xFFF))[0, :, 0].tolist() == [0, 127, 128, 255]


def test_transparent_value_of_16_bits() -> None:
    data = png_16(GREY_16, 0, chunk(b"tRNS", struct.pack(">H", int(GREY_16[1, 2]))))
    expected = (GREY_16 >> 8).astype(np.uint8)
    expected[1, 2] = 255
    assert np.array_equal(meaning(data)[:, :, 0], expected)


@pytest.mark.parametrize("deep", [False, True], ids=["8 bits", "16 bits"])
def test_a_tiff_in_which_0_is_white_is_no_negative(deep: bool) -> None:
    grey = (GREY_16 >> 8).astype(np.uint8)
    plain = saved(Image.fromarray(GREY_16 if deep else grey), "TIFF")
    tag = struct.pack("<HHIH", 262, 3, 1, 1)
    assert plain.count(tag) == 1
    turned = plain.replace(tag, struct.pack("<HHIH", 262, 3, 1, 0))
    assert np.array_equal(meaning(turned), np.dstack([255 - grey] * 3))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_range_are_refused(mode: str) -> None:
    data = saved(Image.fromarray(GREY_16).convert("I").convert(mode), "TIFF")
    with pytest.raises(
        RunError, match=rf"x is not a readable image: 32-bit pixels \(mode {mode}\) have no fixed range"
    ):
        image_to_store(data, "x")


UPRIGHT = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: np.rot90(p, -1),
    7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
    8: lambda p: np.rot90(p),
}


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_images_are_turned_as_exif_says(orientation: int, form: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless: dict[str, Any] = {"lossless": True} if form == "WEBP" else {}
    data = saved(Image.fromarray(PIXELS), form, exif=exif, **lossless)
    camera = saved(Image.fromarray(PIXELS), form, **lossless)
    expected = UPRIGHT[orientation](np.asarray(Image.open(io.BytesIO(camera)).convert("RGB")))
    assert np.array_equal(meaning(data), expected)


@pytest.mark.parametrize("exif", [b"Exif\0\0MM\0*", b"Exif\0\0" + bytes(range(90)), b"Exif\0\0II*\0\xff\xff\xff\xff"])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")
def test_damaged_exif_data_do_not_matter(exif: bytes) -> None:
    plain = saved(Image.fromarray(PIXELS), "JPEG")
    data = saved(Image.fromarray(PIXELS), "JPEG", exif=exif)
    assert np.array_equal(meaning(data), meaning(plain))


@pytest.mark.parametrize(
    ("mode", "form"),
    [("LA", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("RGBA", "WEBP"), ("RGBA", "TIFF"), ("RGBA", "GIF")],
)
def test_transparency_is_put_on_white(mode: str, form: str) -> None:
    rgba = np.dstack([np.full((4, 6, 3), 100, dtype=np.uint8), np.full((4, 6), 255, dtype=np.uint8)])
    rgba[0] = 0
    image = Image.fromarray(rgba)
    if mode == "P":
        image = image.quantize(2)
    elif mode == "LA":
        image = image.convert("LA")
    options: dict[str, Any] = {"lossless": True} if form == "WEBP" else {}
    pixels = meaning(saved(image, form, **options))
    assert (pixels[0] == 255).all()
    assert (pixels[1:] == 100).all()


QUIET = """
import sys
from lipt.data.decoding import image_to_store
image_to_store(sys.stdin.buffer.read(), "x")
"""


def test_warnings_of_pillow_are_not_shown() -> None:
    data = saved(Image.fromarray(PIXELS), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    done = subprocess.run([sys.executable, "-c", QUIET], input=data, capture_output=True, check=True)
    assert done.stderr == b""


def test_partly_transparent_pixels_are_mixed_with_white() -> None:
    rgba = np.zeros((2, 2, 4), dtype=np.uint8)
    rgba[..., 3] = [[0, 51], [102, 255]]
    assert meaning(saved(Image.fromarray(rgba), "PNG"))[..., 0].tolist() == [[255, 204], [153, 0]]


@pytest.mark.parametrize(("mode", "key"), [("L", 7), ("RGB", (7, 7, 7))], ids=["grey", "rgb"])
def test_one_transparent_colour(mode: str, key: Any) -> None:
    image = Image.new(mode, (3, 1), key)
    image.putpixel((1, 0), 9 if mode == "L" else (9, 9, 9))
    assert meaning(saved(image, "PNG", transparency=key))[0, :, 0].tolist() == [255, 9, 255]


def test_cmyk_becomes_rgb() -> None:
    data = saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100)
    red, green, blue = meaning(data)[4, 4].tolist()
    assert red > 250
    assert max(green, blue) < 5


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP", "PNG"])
def test_the_first_of_several_frames_is_read(form: str) -> None:
    frames = [Image.new("RGB", (4, 4), (shade, shade, shade)) for shade in (0, 255)]
    data = saved(frames[0], form, save_all=True, append_images=frames[1:])
    assert meaning(data).max() <= 3


def test_another_format_than_the_listed_ones_is_refused(tmp_path: Path) -> None:
    data = saved(Image.fromarray(PIXELS), "EPS")  # would start Ghostscript
    with pytest.raises(RunError, match=r"photo\.jpg is not a readable image: its content is not JPEG, PNG, PPM"):
        image_to_store(data, "photo.jpg")


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(RunError, match="x is not a readable image: it is empty\n"):
        image_to_store(b"", "x")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_huge_images_are_refused_before_they_are_decoded() -> None:
    rows = chunk(b"IDAT", zlib.compress(b""))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0))
    with pytest.raises(RunError, match=r"x is not a readable image: 10000x10000 pixels; the limit is 89,478,485"):
        image_to_store(b"\x89PNG\r\n\x1a\n" + header + rows + chunk(b"IEND", b""), "x")


def test_every_flipped_bit_of_a_png_is_noticed() -> None:
    data = saved(Image.fromarray(PIXELS), "PNG")
    for at in range(len(data) - 12):  # what follows is the empty last chunk
        damaged = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with pytest.raises(RunError, match="x is not a readable image"):
            image_to_store(damaged, "x")
