"""The commands of the pages that need no cluster run, in the order of the page, on few small images and for few steps.

All pages share one folder with one workspace, so a stage that two commands need runs once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from lipt.cli import main
from tests.docs.pages import ROOT, Block, blocks
from tests.docs.test_blocks import commands, written

VERBS = {"run", "compare", "doctor", "plan", "export", "sweep", "reproduce"}
#: What a reader fills in.
FILLED = {"CONFIG": "photos.yaml", "FOLDER": "photos", "data.source=FOLDER": "data.source=photos"}
#: Small enough for one core.
SMALL = ["model.width=4", "initialise.epochs=1", "dispatch.jigsaws=2", "compare.seeds=[0]", "device=cpu"]
BATCHES = [f"{stage}.batch_size=16" for stage in ("initialise", "dispatch", "train")]
#: Runs of hours on CIFAR-10; test_paper.py runs their like.
LONG = {"lipt reproduce table3", "lipt reproduce table3 --draw"}


def runnable(block: Block) -> list[list[str]]:
    """The commands of a block that run on one machine with what the page gives."""
    found = []
    for words in commands(block.code):
        filled = [FILLED.get(word, word) for word in words]
        here = words[0] == "lipt" and words[1] in VERBS and " ".join(words) not in LONG
        if "--engine" in words and words[1] != "plan":
            here = False  # it asks the cluster
        if here and not any(word.isupper() or "full" in word for word in filled):
            found.append(filled[1:])
    return found


PAGES = sorted({block.page for block in blocks("bash") if runnable(block)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A reader's folder: images, the examples, and the files that the pages tell to write."""
    root = tmp_path_factory.mktemp("reader")
    draw = np.random.default_rng(0)
    for split, label, i in np.ndindex(2, 2, 150):
        path = root / "photos" / ("train", "test")[split] / ("cat", "dog")[label] / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(100 * label, 100 * label + 150, (32, 32, 3), dtype=np.uint8)).save(path)
    (root / "examples").symlink_to(ROOT / "examples")
    for page in PAGES:
        for name, code in written(page).items():
            (root / name).write_text(code)
    photos = yaml.safe_load((root / "photos.yaml").read_text())
    photos["data"]["image_size"] = 16
    (root / "photos.yaml").write_text(yaml.safe_dump(photos))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.syspath_prepend(str(root))
        yield root


def small(words: list[str]) -> list[str]:
    """A command with settings that make it small, behind its own."""
    if words[0] == "reproduce" or "--engine" in words:
        return words
    text = " ".join(words)
    length = "train.steps=4" if "train.steps" in text else "train.epochs=4" if "raptr" in text else "train.epochs=1"
    changes = [length, *SMALL, *([] if "quickstart" in text else BATCHES)]
    if "mine.yaml" in text:  # `width` belongs to LiPT's own networks
        changes.remove("model.width=4")
    return [*words, *(part for change in changes for part in ("--set", change))]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in blocks("bash"):
        for name, value in re.findall(r"^export (LIPT_METRICS)=(\S+)$", block.code, re.MULTILINE):
            if block.page == page:
                monkeypatch.setenv(name, value)
        for words in runnable(block) if block.page == page else ():
            if words[0] == "export":
                Path(words[-1]).unlink(missing_ok=True)  # of another page
            main(small(words))  # SystemExit if it fails
            if words[0] == "export":
                assert Path(words[-1]).exists()
