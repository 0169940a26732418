"""Write the public files of a data set as train/CLASS/* and test/CLASS/*, which `data.source` reads.

    python -m benchmarks.other_data fashion-mnist RAW FOLDER
    python -m benchmarks.other_data gtsrb RAW FOLDER
    python -m benchmarks.other_data tiny-imagenet RAW FOLDER

RAW has what the authors publish.

- fashion-mnist: the four `*-ubyte.gz` of https://github.com/zalandoresearch/fashion-mnist (Debian's package
  dataset-fashion-mnist brings them, too).
- gtsrb: `Final_Training/Images`, `Final_Test/Images` and `GT-final_test.csv`, the labels of the test images, from the
  three archives of the German Traffic Sign Recognition Benchmark.
- tiny-imagenet: `train` and `val` of tiny-imagenet-200.zip. val becomes the test split, as the labels of its own test
  split are not public.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

FASHION_CLASSES = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]


def write_fashion_mnist(raw: Path, folder: Path) -> None:
    """70,000 gray images of 28 x 28 pixels, 10 classes."""
    for split, stem in (("train", "train"), ("test", "t10k")):
        images = np.frombuffer(_unpacked(raw / f"{stem}-images-idx3-ubyte.gz"), np.uint8, offset=16).reshape(-1, 28, 28)
        labels = np.frombuffer(_unpacked(raw / f"{stem}-labels-idx1-ubyte.gz"), np.uint8, offset=8)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            Image.fromarray(image).save(_in(folder / split / FASHION_CLASSES[label]) / f"{number:05d}.png")


def write_gtsrb(raw: Path, folder: Path) -> None:
    """51,839 photographs of traffic signs of 15 to 250 pixels, 43 classes."""
    for image in sorted((raw / "Final_Training/Images").glob("*/*.ppm")):
        shutil.copy(image, _in(folder / "train" / image.parent.name))
    with (raw / "GT-final_test.csv").open() as lines:
        for line in csv.DictReader(lines, delimiter=";"):
            to = _in(folder / "test" / f"{int(line['ClassId']):05d}")
            shutil.copy(raw / "Final_Test/Images" / line["Filename"], to)


def write_tiny_imagenet(raw: Path, folder: Path) -> None:
    """110,000 photographs of 64 x 64 pixels, 200 classes."""
    for image in sorted((raw / "train").glob("*/images/*.JPEG")):
        shutil.copy(image, _in(folder / "train" / image.parent.parent.name))
    for name, label in _annotations(raw / "val/val_annotations.txt"):
        shutil.copy(raw / "val/images" / name, _in(folder / "test" / label))


def _annotations(path: Path) -> Iterator[tuple[str, str]]:
    """Name and class of each image."""
    for line in path.read_text().splitlines():
        name, label, *_box = line.split("\t")
        yield name, label


def _unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def _in(folder: Path) -> Path:
    """The folder, which exists then."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "fashion-mnist": write_fashion_mnist,
    "gtsrb": write_gtsrb,
    "tiny-imagenet": write_tiny_imagenet,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", choices=WRITERS)
    options.add_argument("raw", type=Path)
    options.add_argument("folder", type=Path)
    given = options.parse_args()
    WRITERS[given.data](given.raw, given.folder)


if __name__ == "__main__":
    main()
