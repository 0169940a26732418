"""The experiments of the results, each on the digits for a few steps: it writes its lines, and a second call adds none.

test_result_tables.py runs the programs that print tables from committed lines.
"""

from __future__ import annotations

import gzip
import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from benchmarks import merge, raptr
from lipt.config import override, parse_config
from tests.docs.pages import PAGES, ROOT
from tests.tiny import TINY

SHORT = {"fractions": 0.1, "steps": 2, "seeds": 0}
MAP = SHORT | {"rules": ("random", "dual", "ccs el2n, theta_p"), "epochs": 2}
#: Program -> its options, and how many trainings that is.
EXPERIMENTS: dict[str, tuple[dict[str, object], int]] = {
    "map": (MAP, 3),
    "draws": (SHORT | {"pools": 0.5, "rows": ("uniform", "ordered from scores")}, 2),
    "start": (SHORT, 6),
    "rounds": (SHORT | {"rules": "dual", "workers": 2, "rounds": 2}, 2),
    "tuning": (SHORT | {"rules": "random"}, 8),
}
#: Programs that measure speed or memory, and need a GPU, other libraries or an idle machine.
BENCHMARKS = {"bf16", "peers", "selection", "startup", "training"}
#: Programs that print a table of lines that are there.
TABLES = {
    "beta_table",
    "compare_table",
    "draws_table",
    "map_table",
    "network_table",
    "race_table",
    "start_table",
    "tuning_table",
}
#: Programs with a test of their own below.
OTHERS = {"certainty", "data_map", "hardness", "merge", "other_data", "raptr"}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "workspace")}))
    return str(path)


def call(program: str, monkeypatch: pytest.MonkeyPatch, *words: object, **options: object) -> None:
    """Run `python -m benchmarks.PROGRAM WORDS` with the options in this process."""
    given = [str(word) for word in words]
    for name, value in options.items():
        given += [f"--{name}", *(str(each) for each in (value if isinstance(value, tuple) else [value]))]
    monkeypatch.setattr(sys, "argv", [program, *given])
    importlib.import_module(f"benchmarks.{program}").main()


def test_each_program_that_a_page_names_is_known() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for page in pages for name in re.findall(r"python -m benchmarks\.(\w+)", page)}
    assert named - BENCHMARKS - TABLES - OTHERS == EXPERIMENTS.keys()
    assert [name for name in BENCHMARKS | TABLES | OTHERS if name not in named] == []
    tested = (ROOT / "tests/docs/test_result_tables.py").read_text(encoding="utf-8")
    assert [name for name in TABLES if f'"{name}"' not in tested] == []


@pytest.mark.parametrize("program", EXPERIMENTS)
def test_an_experiment(program: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, trainings = EXPERIMENTS[program]
    results = tmp_path / "results.jsonl"
    call(program, monkeypatch, config, results, **options)
    written = results.read_text()
    accuracies = [json.loads(line)["accuracy"] for line in written.splitlines()]
    assert len(accuracies) == trainings
    assert all(0 < accuracy < 1 for accuracy in accuracies)
    call(program, monkeypatch, config, results, **options)
    assert results.read_text() == written


def test_the_scorers_of_the_map_serve_its_relatives(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, figure = tmp_path / "results.jsonl", tmp_path / "figure.svg"
    options = MAP | {"epochs": 10, "rules": ("random", "dual"), "seeds": (0, 1)}
    call("map", monkeypatch, config, results, **options)
    scorers = sorted(results.with_suffix(".scorers").iterdir())
    assert len(scorers) == 2  # one for each seed
    capsys.readouterr()
    call("certainty", monkeypatch, config, scorers[0].parent, results, steps=2)
    assert re.search(r"\| dual \| 10 \| 2 \| \S+ \| \S+ \| \S+ ± ", capsys.readouterr().out)
    call("hardness", monkeypatch, config, results, seeds=(0, 1), fractions=(0.1, 1), rules=("dual", "el2n"))
    easy, hardest = (
        [float(cell) for cell in line.split("|")[2:-1]] for line in capsys.readouterr().out.splitlines()[-2:]
    )
    assert easy[1] == hardest[1] == 1  # all images are as hard as themselves
    assert hardest[0] > max(1, easy[0])
    assert sorted(results.with_suffix(".scorers").iterdir()) == scorers
    call("data_map", monkeypatch, config, results, figure=figure)
    assert figure.read_text().startswith("<?xml")


def test_merge(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merge.main(config, tmp_path / "results.jsonl", range(2), [])
    assert "default - grid" in capsys.readouterr().out
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 4


def test_raptr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(raptr, "_IMAGES", 200)  # 5,000 for each of five seeds are more than the digits have
    settings = {"train": {"steps": 20, "raptr": {"keep": [0.5, 1.0]}}, "workspace": str(tmp_path / "workspace")}
    path, results = tmp_path / "raptr.yaml", tmp_path / "results.jsonl"
    path.write_text(override(parse_config(TINY), settings).model_dump_json())
    raptr.main(str(path), results, [])
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(rows) == 25
    flops = {name: sum(row["flops"] for row in rows if row["row"] == name) for name in ("raptr", "fewer steps", "full")}
    assert flops["full"] > 1.1 * flops["raptr"]
    assert re.search(r"^full +n 5 .*\(raptr [+-][\d.]+ \+- [\d.]+\)", capsys.readouterr().out, re.MULTILINE)


def test_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "raw"
    photograph = Image.fromarray(np.full((20, 15, 3), 7, np.uint8))
    signs = [raw / "Final_Training/Images/00001/00000_00029.ppm", raw / "Final_Test/Images/00000.ppm"]
    pictures = [raw / "train/n01/images/n01_0.JPEG", raw / "val/images/val_0.JPEG"]
    for path in signs + pictures:
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph.save(path)
    (raw / "GT-final_test.csv").write_text("Filename;Width;Height;ClassId\n00000.ppm;15;20;1\n")
    (raw / "val/val_annotations.txt").write_text("val_0.JPEG\tn01\t0\t0\t9\t9\n")
    images = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8)
    for stem in ("train", "t10k"):
        (raw / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + images.tobytes()))
        (raw / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + bytes([9, 0])))
    expected = {
        "fashion-mnist": [
            "test/boot/00000.png",
            "test/t-shirt/00001.png",
            "train/boot/00000.png",
            "train/t-shirt/00001.png",
        ],
        "gtsrb": ["test/00001/00000.ppm", "train/00001/00000_00029.ppm"],
        "tiny-imagenet": ["test/n01/val_0.JPEG", "train/n01/n01_0.JPEG"],
    }
    for data, names in expected.items():
        folder = tmp_path / data
        call("other_data", monkeypatch, data, raw, folder)
        assert sorted(str(path.relative_to(folder)) for path in folder.glob("*/*/*")) == names
    second = np.asarray(Image.open(tmp_path / "fashion-mnist/train/t-shirt/00001.png"))
    assert second.tolist() == images[784:].reshape(28, 28).tolist()
