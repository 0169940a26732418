"""Decodes image files to 8-bit RGB: upright, on white, first frame only. Ingest and training use the same functions."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import ExifTags, Image, UnidentifiedImageError

from lipt.errors import RunError

Pixels = npt.NDArray[np.uint8]

MAX_PIXELS = 89_478_485  # 256 MB decoded; above it Pillow warns

_EXTENSIONS = {"JPEG": "jpg", "PNG": "png"}
_STORED = tuple(_EXTENSIONS)
_READ = (*_STORED, "PPM", "BMP", "TIFF", "WEBP", "GIF")  # no others: for EPS, Pillow would start Ghostscript

_PLAIN_MODES = ("1", "L", "P", "RGB")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # EXIF orientation -> the operation that makes the image upright

_METADATA = (b"Exif\0", b"http://ns.adobe.com/xap/")  # what begins metadata in a JPEG file
_EXIF = {"exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"}  # where Pillow looks for an orientation

# Pillow warns of large images, which `_open` refuses, and of damaged metadata, which do not change the pixels.
warnings.filterwarnings("ignore", module=r"PIL\.")


def decode_stored(data: bytes, name: str) -> Pixels:
    """The image in a JPEG or PNG file of a chunk store, uint8 (H, W, 3), RGB: upright, transparency on white.

    Raises:
        RunError: the image cannot be decoded; the message names `name`.
    """
    pixels_HW3 = _decode_jpeg(data)
    if pixels_HW3 is not None:
        return pixels_HW3
    with open_stored(data, name) as image:
        return np.array(to_rgb(image))


def _decode_jpeg(data: bytes) -> Pixels | None:
    """The pixels of a JPEG file as Pillow decodes them, for a small image in an eighth of its time.

    None: not an undamaged JPEG of grey or RGB, or it may hold an orientation. Pillow reads it, or says why not.
    """
    if not data.startswith(b"\xff\xd8\xff") or any(mark in data for mark in _METADATA):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in ("Gray", "YCbCr", "RGB") or height * width > MAX_PIXELS:
            return None
        pixels_HW3: Pixels = simplejpeg.decode_jpeg(data, "RGB")
        return pixels_HW3
    except (ValueError, KeyError):  # KeyError: a subsampling that simplejpeg has no name for
        return None


@contextmanager
def open_stored(data: bytes, name: str) -> Iterator[Image.Image]:
    """A JPEG or PNG file of a chunk store, of which only the header is read. Any error inside becomes a `RunError`.

    Raises:
        RunError: as `decode_stored`.
    """
    try:
        with _open(data, _STORED) as image:
            yield image
    except MemoryError:
        raise  # says nothing about the image
    except Exception as error:  # the decoders raise OSError, SyntaxError, ValueError, zlib.error ...
        remedy = "remove or replace the image in the source, then ingest again"
        raise RunError(f"{name} is not a readable image: {error}", remedy) from error


def image_to_store(data: bytes, name: str) -> tuple[bytes, str]:
    """The bytes and the extension with which an image is stored.

    JPEG and PNG files that every reader decodes alike (8 bits; grey, palette or RGB; opaque; upright) keep their bytes.
    All other images become RGB PNGs.

    Raises:
        RunError: the image cannot be decoded, or its values have no fixed range; the message names `name`.
    """
    if _decode_jpeg(data) is not None:
        return data, "jpg"
    try:
        with _open(data, _READ) as image:
            if image.format == "PNG":
                image.verify()  # decoding does not look at the checksums
        with _open(data, _READ) as image:
            pixels = to_rgb(image)
            if is_plain(image, data):
                return data, _EXTENSIONS[str(image.format)]
        return encode_png(pixels), "png"
    except MemoryError:
        raise
    except Exception as error:  # as above
        remedy = "remove or replace the file, then ingest again"
        raise RunError(f"{name} is not a readable image: {error}", remedy) from error


def resize_shorter(image: Image.Image, side: int) -> Image.Image:
    """Shorter side to `side` pixels, bilinear and antialiased; the aspect ratio stays."""
    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def encode_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _open(data: bytes, formats: tuple[str, ...]) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data), formats=formats)
    except UnidentifiedImageError:  # its text names a Python object
        reason = f"its content is not {', '.join(formats[:-1])} or {formats[-1]}" if data else "it is empty"
        raise ValueError(reason) from None
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"{image.width}x{image.height} pixels; the limit is {MAX_PIXELS:,}")
    return image


def is_plain(image: Image.Image, data: bytes) -> bool:
    """Whether a reader that ignores orientation, transparency and bit depth decodes the same pixels."""
    if image.format not in _STORED or image.mode not in _PLAIN_MODES or image.has_transparency_data:
        return False
    is_deep = image.format == "PNG" and data[24] == 16  # bits per channel, in the header
    return not is_deep and _orientation(image) not in _TURNS


def to_rgb(image: Image.Image) -> Image.Image:
    """An opened image as RGB: upright, on white."""
    image.load()
    turn = _TURNS.get(_orientation(image))
    if image.mode[0] in "IF":
        image = _eight_bits(image)
    elif image.has_transparency_data:
        image = _on_white(image)
    image = image.convert("RGB")
    return image if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> int:
    if image.format != "TIFF" and _EXIF.isdisjoint(image.info):
        return 1  # saves a third of the time of a small image
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF data do not change the pixels
        return 1


def _eight_bits(image: Image.Image) -> Image.Image:
    """The upper byte of 16-bit grey, as Pillow does it for 16-bit RGB."""
    deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
    if not deep:
        raise ValueError(f"32-bit pixels (mode {image.mode}) have no fixed range: convert the image to 8 or 16 bits")
    values_HW = np.asarray(image).astype(np.uint16)
    tags = getattr(image, "tag_v2", {})
    bits = tags.get(ExifTags.Base.BitsPerSample, (16,))[0]  # a TIFF may have 12
    grey_HW = (values_HW >> (bits - 8)).astype(np.uint8)
    if tags.get(ExifTags.Base.PhotometricInterpretation) == 0:  # 0 is white: Pillow turns only 8 bits round
        grey_HW = 255 - grey_HW
    grey_HW[values_HW == image.info.get("transparency", -1)] = 255
    return Image.fromarray(grey_HW)


def _on_white(image: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
