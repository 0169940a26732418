"""A location in memory and a source of random images."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from torch import Tensor

from lipt.data.chunks import Manifest, RangeRead, SampleRanges, decode_samples, fitted, read_samples, write_dataset
from lipt.data.sources import Source


class Memory:
    """A location in memory that can fail at a chosen write."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.order: list[str] = []
        self.reads: list[tuple[str, int, int | None]] = []
        self.fail_at = fail_at

    def put(self, file: str, data: bytes) -> None:
        if self.fail_at == len(self.order):
            raise KeyboardInterrupt
        self.order.append(file)
        self.files[file] = data

    def get(self, file: str) -> bytes | None:
        return self.files.get(file)

    def delete(self, file: str) -> None:
        self.files.pop(file, None)

    def read(self, file: str, start: int, length: int | None) -> bytes:
        self.reads.append((file, start, length))
        return self.files[file][start : None if length is None else start + length]


class Noise(Source):
    """Random images of 4x6 pixels, `counts[split][c]` of class c; the first pixel of an image spells its row."""

    name = "noise"

    def __init__(self, counts: dict[str, list[int]], *, jpeg: bool = False) -> None:
        self.classes = [f"class {label}" for label in range(len(counts["train"]))]
        self.splits = {split: np.repeat(np.arange(len(per)), per) for split, per in counts.items()}
        self.names = {split: [f"{split}/{i}" for i in range(len(rows))] for split, rows in self.splits.items()}
        self.jpeg = jpeg
        self.num_read = 0

    def pixels(self, split: str, i: int) -> np.ndarray:
        pixels = np.random.default_rng([i, len(split)]).integers(0, 256, (4, 6, 3), dtype=np.uint8)
        pixels[0, 0] = i // 65536, i // 256 % 256, i % 256
        return pixels

    def read(self, split: str, i: int) -> tuple[bytes, str]:
        self.num_read += 1
        buffer = io.BytesIO()
        Image.fromarray(self.pixels(split, i)).save(buffer, format="JPEG" if self.jpeg else "PNG")
        return buffer.getvalue(), "jpg" if self.jpeg else "png"

    def fingerprint(self) -> str:
        return f"noise {[labels.tolist() for labels in self.splits.values()]}"


def write(memory: Memory, source: Source, *, seed: int = 0, chunk_bytes: int = 40_000) -> Manifest:
    return write_dataset(
        source, memory.put, seed=seed, chunk_bytes=chunk_bytes, test_fraction=0.2, get=memory.get, delete=memory.delete
    )


def load_images(wanted: SampleRanges, read: RangeRead, *, image_size: int | None) -> Tensor:
    """Read and decode samples: uint8 RGB (N, 3, H, W), in the order of `wanted.positions_N`."""
    samples, unnamed = read_samples(wanted, read), lambda _position: None
    return decode_samples(samples, wanted.positions_N, wanted.split, fitted(image_size), unnamed)
