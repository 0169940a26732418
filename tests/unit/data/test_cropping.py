"""Crops of photographs, against Pillow and torchvision on the whole image."""

import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import CenterCrop, Compose, RandomResizedCrop, Resize

from lipt.data.cropping import Box, Crops, centre_box
from lipt.data.cropping import random_box as draw_box
from lipt.data.decoding import decode_stored, image_to_store
from lipt.errors import RunError
from lipt.rng import global_seed


def photograph(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth structures of every size, as in a photograph."""
    rng = np.random.default_rng(seed)
    layers = [
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
        for side in (4, 16, 48)
    ]
    return Image.blend(Image.blend(layers[0], layers[1], 0.4), layers[2], 0.25)


def saved(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **({"quality": 90} if form == "JPEG" else {}), **options)
    return buffer.getvalue()


def random_box(width: int, height: int, seed: int) -> Box:
    return draw_box(width, height, random.Random(seed))


def decode_crop(data: bytes, name: str, side: int, seed: int | None) -> Tensor:
    return Crops(side=side, flip=False).decode(data, name, seed)


def naive(data: bytes, side: int, seed: int | None, *, grid: int = 1) -> Tensor:
    """The whole image decoded, then cropped and resized by Pillow; the box on a grid of `grid` pixels."""
    pixels_HW3 = decode_stored(data, "x")
    height, width = pixels_HW3.shape[:2]
    left, top, w, h = centre_box(width, height) if seed is None else random_box(width, height, seed)
    left, top, w, h = (grid * round(length / grid) for length in (left, top, w, h))
    crop = Image.fromarray(pixels_HW3).crop((left, top, left + w, top + h))
    return torch.from_numpy(np.array(crop.resize((side, side), Image.BILINEAR))).permute(2, 0, 1)


def difference(one: Tensor, other: Tensor) -> Tensor:
    assert one.shape == other.shape
    return (one.float() - other.float()).abs()


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("seed", [None, *range(8)])
def test_a_crop_is_the_naive_one_up_to_rounding(form: str, seed: int | None) -> None:
    data = saved(photograph(500, 375), form)
    crop = decode_crop(data, "x", 224, seed)
    assert (crop.dtype, crop.shape, crop.stride()) == (torch.uint8, (3, 224, 224), (1, 3 * 224, 3))
    assert difference(crop, naive(data, 224, seed)).max() <= 1


@pytest.mark.parametrize(("size", "by"), [((520, 376), 2), ((1000, 752), 4), ((1504, 1104), 8)])
@pytest.mark.parametrize(("mode", "progressive"), [("RGB", False), ("RGB", True), ("L", False)])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_crop_decoded_at_reduced_scale_is_close_to_the_naive_one(
    size: tuple[int, int], by: int, mode: str, progressive: bool, seed: int | None
) -> None:
    """The box moves by up to half a reduced pixel; and libjpeg averages blocks where Pillow's filter is a triangle."""
    data = saved(photograph(*size).convert(mode), progressive=progressive)
    box = centre_box(*size) if seed is None else random_box(*size, seed)
    side = min(box[2:]) // by - 1  # as large as the reduction allows
    error = difference(decode_crop(data, "x", side, seed), naive(data, side, seed, grid=by))
    assert error.mean() < 0.7
    assert error.max() <= 8


@pytest.mark.parametrize(("short", "by"), [(255, 1), (256, 1), (300, 2), (599, 4), (1199, 8), (3000, 8)])
def test_the_largest_reduction_that_leaves_enough_pixels(short: int, by: int) -> None:
    """Seen by the pixels: the centre is 7/8 of the shorter side, and the target 128."""
    data = saved(photograph(short + 40, short))
    box = centre_box(short + 40, short)
    small = Image.open(io.BytesIO(data))
    small.draft("RGB", (small.width // by, small.height // by))
    left, top, side = (round(length / by) for length in box[:3])
    crop = torch.from_numpy(np.array(small.convert("RGB"))).permute(2, 0, 1)[:, top : top + side, left : left + side]
    expected = torch.nn.functional.interpolate(crop[None], (128, 128), mode="bilinear", antialias=True)[0]
    assert torch.equal(decode_crop(data, "x", 128, None), expected)


def test_evaluation_is_resize_256_and_centre_crop_224() -> None:
    """torchvision rounds in pixels of the resized image, so its crop lies up to one pixel beside ours."""
    for size in ((500, 375), (375, 500), (333, 500), (1600, 1200)):
        image = Image.open(io.BytesIO(saved(photograph(*size))))
        expected = Compose([Resize(256), CenterCrop(224)])(image)
        found = decode_crop(saved(photograph(*size)), "x", 224, None)
        error = difference(found, torch.from_numpy(np.array(expected)).permute(2, 0, 1))
        assert error.mean() < 2.5
        assert error.max() < 16


def test_random_boxes_are_those_of_torchvision_in_distribution() -> None:
    width, height = 500, 375
    ours = np.array([random_box(width, height, seed) for seed in range(4000)])
    with global_seed(0):
        drawn = [
            RandomResizedCrop.get_params(torch.empty(3, height, width), [0.08, 1], [3 / 4, 4 / 3]) for _ in range(4000)
        ]
    theirs = np.array(drawn)[:, [1, 0, 3, 2]]
    for column in range(4):  # left, top, width, height
        one, other = np.sort(ours[:, column]), np.sort(theirs[:, column])
        assert np.abs(np.searchsorted(one, other) / 4000 - np.arange(4000) / 4000).max() < 0.05  # Kolmogorov-Smirnov
    one, other = (np.log(boxes[:, 2] / boxes[:, 3]).mean() for boxes in (ours, theirs))
    assert abs(one - other) < 0.015  # of aspect ratios that are uniform themselves it is 0.03
    assert len(np.unique(ours, axis=0)) > 3900
    assert random_box(width, height, 7) == random_box(width, height, 7)


def test_the_box_of_a_very_thin_image_is_its_centre() -> None:
    """As in torchvision: no random box fits, and the aspect ratio is the nearest one that is allowed."""
    for seed in range(5):
        assert random_box(1000, 10, seed) == Box(left=493, top=0, width=13, height=10)
        assert random_box(10, 1000, seed) == Box(left=0, top=493, width=10, height=13)


def test_half_of_the_random_crops_are_mirrored() -> None:
    data, mirrored = saved(photograph(60, 40)), 0
    for seed in range(200):
        crop, straight = Crops(side=16, flip=True).decode(data, "x", seed), decode_crop(data, "x", 16, seed)
        assert torch.equal(crop, straight) or torch.equal(crop, straight.flip(2))
        mirrored += not torch.equal(crop, straight)
    assert 70 < mirrored < 130
    assert torch.equal(Crops(side=16, flip=True).decode(data, "x", None), decode_crop(data, "x", 16, None))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("restarts", [0, 1])
def test_the_rows_below_a_box_do_not_change_it(subsampling: int, restarts: int) -> None:
    """They are not decoded. Box and target have the same size here, so that every pixel is seen."""
    data = saved(photograph(203, 301), subsampling=subsampling, restart_marker_rows=restarts)
    whole = torch.from_numpy(decode_stored(data, "x")).permute(2, 0, 1)
    for seed in range(100):
        left, top, width, height = random_box(203, 301, seed)
        if width == height:
            assert torch.equal(decode_crop(data, "x", width, seed), whole[:, top : top + height, left : left + width])
            return
    raise AssertionError("no square box")


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize(("width", "height"), [(7, 100), (5, 60), (7, 7)])
def test_crops_of_narrow_images_come_from_their_place(width: int, height: int, progressive: bool) -> None:
    """Their width is the same at 7/8 of the size, so only the height tells at which size they must be decoded."""
    data = saved(photograph(width, height), progressive=progressive)
    for seed in range(20):
        assert difference(decode_crop(data, "x", 16, seed), naive(data, 16, seed)).max() <= 1


@pytest.mark.parametrize(("width", "height"), [(1000, 10), (10, 1000), (1, 1), (2, 3), (8, 8)])
def test_boxes_lie_in_the_image(width: int, height: int) -> None:
    data = saved(photograph(width, height))
    for box in (centre_box(width, height), *(random_box(width, height, seed) for seed in range(50))):
        assert min(box.left, box.top) >= 0
        assert min(box.width, box.height) >= 1
        assert box.left + box.width <= width
        assert box.top + box.height <= height
    assert decode_crop(data, "x", 16, 3).shape == (3, 16, 16)


def grey_16(size: int) -> bytes:
    values = (np.linspace(0, 65535, size * size).reshape(size, size)).astype(np.uint16)
    return saved(Image.fromarray(values), "PNG")


def filled() -> bytes:
    """A JPEG with filling bytes before its second marker, as some encoders write them."""
    data = saved(photograph(240, 160))
    return data[:2] + b"\xff\xff\xff" + data[2:]


def unknown_version() -> bytes:
    """A JPEG with a version of JFIF that libjpeg warns about."""
    data = bytearray(saved(photograph(240, 160)))
    data[11] = 2
    return bytes(data)


def stray() -> bytes:
    """A JPEG with bytes between two segments of its header, which Pillow skips; one looks like a marker."""
    data = saved(photograph(240, 160))
    end = 4 + int.from_bytes(data[4:6], "big")
    return data[:end] + b"\x00\xc0\x00\x11" + data[end:]


def subsampled(factors: int) -> bytes:
    """A JPEG that says it has other sampling factors, such as 1x4 (4:4:1), for which simplejpeg has no name."""
    data = bytearray(saved(photograph(240, 160), subsampling=2))
    data[data.find(b"\xff\xc0") + 11] = factors
    return bytes(data)


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(photograph(240, 160), exif=exif)


UNUSUAL = {
    "grey": saved(photograph(240, 160).convert("L")),
    "cmyk": saved(photograph(240, 160).convert("CMYK")),
    "turned": turned(6),
    "mirrored": turned(5),
    "16 bits": grey_16(160),
    "palette": saved(photograph(240, 160).quantize(16), "PNG"),
    "transparent": saved(photograph(240, 160).convert("RGBA").rotate(30), "PNG"),
    "progressive": saved(photograph(240, 160), progressive=True),
    "filled": filled(),
    "unknown version": unknown_version(),
    "stray bytes": stray(),
    "4:4:1": subsampled(0x14),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_images_mean_the_same_as_when_they_are_decoded_whole(name: str) -> None:
    """With the bytes that a user has, and with those that ingestion stores."""
    stored, _ = image_to_store(UNUSUAL[name], "x")
    for data in (UNUSUAL[name], stored):
        for seed in (None, 1, 2, 3):
            assert difference(decode_crop(data, "x", 128, seed), naive(data, 128, seed)).max() <= 1


def test_an_image_that_is_turned_is_cropped_upright() -> None:
    upright = np.zeros((80, 40, 3), dtype=np.uint8)
    upright[40:] = 255  # white below
    exif = Image.Exif()
    exif[0x0112] = 6  # as the camera held it: the top is on the right
    data = saved(Image.fromarray(np.rot90(upright)), exif=exif)
    crop = decode_crop(data, "x", 32, None)
    assert crop[:, :14].max() < 20
    assert crop[:, 18:].min() > 235


@pytest.mark.parametrize("cut", [0, 100])
def test_a_damaged_file_is_named(cut: int) -> None:
    data = saved(photograph(500, 375))[:cut]
    with pytest.raises(RunError, match=r"cat 7 is not a readable image: .*\n  -> remove or replace"):
        decode_crop(data, "cat 7", 224, None)
