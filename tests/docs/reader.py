"""A reader who types the commands of a page, in their order, on few small images and for few steps.

What is smaller than on the pages is settled here alone: `FILLED` says what stands for UPPER CASE, and `small` adds
`--set` behind each command that takes it. Nothing else of a command changes.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import click
import numpy as np
import yaml
from PIL import Image

from lipt.cli import cli, main
from tests.docs.pages import PAGES, ROOT, written

FILLED = {
    "CONFIG": "photos.yaml", "FILE": "photos.yaml", "T1": "photos.yaml", "N": "2",
    "SMALL": "small.yaml", "WIDTH_8": "small.yaml", "WIDE": "wider.yaml", "WIDTH_32": "wider.yaml",
    "FOLDER": "photos", "SOURCE": "photos", "DESTINATION": "thumbnails", "TARGET": "list.csv", "cifar10:DATA": "photos",
    "S": "1", "F": "0.1", "E": "1", "A": "herding", "REPOSITORY": str(ROOT), "0123456789abcdef": "KEY",
}  # fmt: skip
#: Small enough for one core.
SMALL = ["model.width=4", "initialise.epochs=1", "dispatch.jigsaws=2", "compare.seeds=[0]", "device=cpu"]
BATCHES = [f"{stage}.batch_size=16" for stage in ("initialise", "dispatch", "train")]


class Reader:
    """A reader in a folder of images with the examples and with the files that the pages tell to write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._done: set[tuple[str, ...]] = set()
        draw = np.random.default_rng(0)
        for split, label, i in np.ndindex(2, 2, 150):
            path = folder / "photos" / ("train", "test")[split] / ("cat", "dog")[label] / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(100 * label, 100 * label + 150, (32, 32, 3), dtype=np.uint8)).save(path)
        (folder / "examples").symlink_to(ROOT / "examples")
        shutil.copy(ROOT / "examples/01-quickstart.yaml", folder)
        shutil.copytree(ROOT / "benchmarks/results/paper", folder / "benchmarks/results/paper")
        for page in PAGES:
            for name, code in written(page.relative_to(ROOT).as_posix()).items():
                (folder / name).write_text(code)
        for names, values in {
            ("labels.npy", "y.npy"): np.arange(300) % 10,
            ("logits.npy", "z.npy"): draw.random((300, 10), dtype=np.float32),
            ("features.npy",): draw.random((300, 16), dtype=np.float32),
        }.items():
            for name in names:
                np.save(folder / name, values)
        self._configurations()

    def _configurations(self) -> None:
        """photos.yaml of the pages with smaller images; two finished runs of other widths, to calibrate with."""
        path = self.folder / "photos.yaml"
        photos = yaml.safe_load(path.read_text())
        photos["data"]["image_size"] = 16
        for name in ("photos", "big"):
            (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(photos))
        main(small(["run", "photos.yaml"]))
        for name, width in (("small", 2), ("wider", 6)):
            changes = [*small(["run"])[1:], "--set", f"model.width={width}", "--set", f"name={name}"]
            with open(self.folder / f"{name}.yaml", "w") as file, redirect_stdout(file):
                main(["config", "show", "photos.yaml", *changes])
            main(["run", f"{name}.yaml"])

    def types(self, words: Sequence[str]) -> None:
        """Run a command of `lipt` in this process; SystemExit if it fails. One that stands on two pages runs once."""
        filled = [fill(word) for word in words[1:]]
        if tuple(filled) in self._done:
            return
        self._done.add(tuple(filled))
        if filled[0] == "export":
            Path(filled[-1]).unlink(missing_ok=True)  # of another page
        if "dataset=ingest/KEY" in filled:
            key = min(path.parent.name for path in self.folder.glob("runs/ingest/*/artifact.json"))
            filled[filled.index("dataset=ingest/KEY")] = f"dataset=ingest/{key}"
        filled = [path for word in filled for path in _expanded(word)]
        stored = any("/reports/" in word for word in filled)  # such a report takes no settings
        main(filled if stored else small(filled))
        if filled[0] == "export":
            assert Path(filled[-1]).exists()


def _expanded(word: str) -> list[str]:
    """The paths that a shell makes of `runs/reports/NAME-*`; another word itself."""
    return sorted(glob.glob(word)) if "/reports/" in word and "*" in word else [word]


def shell(script: Sequence[Sequence[str]], folder: Path) -> None:
    """Run the commands of other programs that a block has, in one shell in a folder with a virtual environment."""
    venv.create(folder / ".venv")
    lines = [shlex.join(map(fill, words)) for words in script]
    installed = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=folder, env=installed, check=True, timeout=300)


def make(target: str, folder: Path) -> None:
    """Make a target in a copy of the repository, whose files are up to date; so nothing in it changes.

    The environment of the tests counts as installed (`-o`).
    """
    left_out = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "e2e-logs")
    copy = shutil.copytree(ROOT, folder / target, ignore=left_out)
    (copy / ".venv").symlink_to(sys.prefix)
    started = time.time()
    subprocess.run(["make", "-o", ".venv/dev.ok", target], cwd=copy, check=True, timeout=300)
    files = [path for path in copy.rglob("[!.]*/**/*.*") if path.is_file() and path.suffix != ".pyc"]
    made = [path.relative_to(copy) for path in files if path.stat().st_mtime >= started]
    assert made
    changed = [path for path in made if (copy / path).read_bytes() != (ROOT / path).read_bytes()]
    assert not changed, changed


def fill(word: str) -> str:
    """A word with a value for what a reader fills in, alone or behind the last `=` or `/`."""
    start, sign, last = re.fullmatch(r"(?:(.*)([=/]))?(.*)", word, re.DOTALL).groups(default="")  # type: ignore[union-attr]  # matches all
    return f"{start}{sign}{FILLED.get(last, last)}".replace("BUCKET", "bucket")


def small(words: list[str]) -> list[str]:
    """A command with settings that make it small, behind its own."""
    command = cli.get_command(click.Context(cli), words[0])
    takes = command and any(each.name == "overrides" for each in command.params)
    elsewhere = "--engine" in words and (words[0] != "plan" or "--images" in words)  # not with the images of the tests
    if not takes or elsewhere or "--draw" in words:
        return words
    text = " ".join(words)
    steps = "train.steps" in text or words[0] == "reproduce"
    length = "train.steps=4" if steps else "train.epochs=4" if "raptr" in text else "train.epochs=1"
    if words[0] == "reproduce" and "--dry-run" in words:  # table 1 selects again after 10 epochs; nothing runs
        length = "train.steps=400"
    changes = [length, *SMALL, *([] if "quickstart" in text else BATCHES)]
    if "mine.yaml" in text:  # `width` belongs to LiPT's own networks
        changes.remove("model.width=4")
    return [*words, *(part for change in changes for part in ("--set", change))]
