"""Every example runs: the commands in its first lines, on less data, with fewer epochs. Every setting has a comment."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from docs.generate.notebook import EXECUTED, digest
from lipt import describe
from lipt.cli import main
from lipt.pods.spec import PARAMETERS, configure
from tests.examples import asks_a_cluster, commands, sent
from tests.unit.cluster.installed import TEMPLATE

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").iterdir())
#: On the digits: 3 jigsaws of 32 images, one epoch.
SMALL = ["model.width=4", "initialise.epochs=1", "dispatch.jigsaws=2", "train.epochs=1"]
#: On the 64 images of `photos`.
PHOTOS = [*SMALL, "initialise.batch_size=8", "dispatch.batch_size=8", "train.batch_size=8", "select.fraction=0.2"]


def run(path: Path, changes: list[str]) -> list[str]:
    """Run the commands that need no cluster; returns their verbs."""
    local = [words[1:] for words in commands(path) if not asks_a_cluster(words)]
    for words in local:
        main([*words, *(part for change in changes for part in ("--set", change))])
    return [words[0] for words in local]


def test_every_example_has_a_test() -> None:
    tested = set(re.findall(r'start\("([a-z0-9-]+)"\)', Path(__file__).read_text()))
    assert tested == {Path(name).stem.partition("-")[2] for name in EXAMPLES}
    assert [int(name[:2]) for name in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


def test_every_setting_has_a_comment() -> None:
    """On its own line; a line that ends in a colon only names a section."""
    lines = [(path, line) for path in (ROOT / "examples").rglob("*.yaml") for line in path.read_text().splitlines()]
    bare = [(path.name, line) for path, line in lines if not re.search(r"^#|:$|: \|$|\S +# \S", line)]
    assert bare == []


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes an example into a new current folder, beside a folder of images."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for split, count in (("train", 24), ("test", 8)):
        for label, name in enumerate(("cat", "dog")):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(100 * label, 100 * label + 150, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i:02d}.png")

    def written(name: str) -> Path:
        main(["init", name])
        (path,) = (path for path in tmp_path.iterdir() if path.name != "photos")
        return path

    return written


def verdict(folder: Path) -> dict[str, Any]:
    """The newest report of a workspace."""
    (report,) = (folder / "runs/reports").rglob("*.json")
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_quickstart(start: Callable[[str], Path]) -> None:
    path = start("quickstart")
    assert run(path, SMALL) == ["run"]
    assert [row["role"] for row in verdict(path.parent)["rows"]] == ["selected", "random"]


def test_cifar10_from_a_folder(start: Callable[[str], Path]) -> None:
    path = start("cifar10-cpu")
    assert len(commands(path)) == 2  # the second one downloads CIFAR-10
    main([*commands(path)[0][1:], *(part for change in PHOTOS for part in ("--set", change))])
    assert verdict(path.parent)["rows"][0]["kept_fraction"] == 0.2


def test_compare(start: Callable[[str], Path]) -> None:
    path = start("cifar10-compare")
    assert run(path, [*PHOTOS, "compare.seeds=[0, 1]", "compare.variants=[random, rs2, lipt]"]) == ["compare"]
    rows = verdict(path.parent)["rows"]
    assert [row["role"] for row in rows].count("selected") == 1
    assert [len(row["accuracy"]) for row in rows] == [2, 2, 2]


def test_your_folder_ends_with_the_list_of_kept_files(
    start: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = start("your-folder")
    assert run(path, PHOTOS) == ["doctor", "run", "export", "export", "export"]
    names = (path.parent / "kept.txt").read_text().splitlines()
    assert len(names) == len(set(names)) > 1
    assert all((path.parent / "photos" / name).is_file() for name in names), names
    with open(path.parent / "kept.csv") as file:
        assert [row["source"] for row in csv.DictReader(file)] == names
    assert len(list((path.parent / "kept").rglob("*.png"))) == len(names)


def test_your_model(start: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = start("your-model")
    monkeypatch.chdir(folder)
    assert run(folder / "run.yaml", [change for change in SMALL if "width" not in change]) == ["doctor", "run"]
    assert verdict(folder)["rows"][0]["role"] == "selected"


def test_the_notebook(start: Callable[[str], Path]) -> None:
    """Its cells are executed in order, in one namespace, as a kernel does."""
    notebook = json.loads(start("features").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    namespace: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
    assert namespace["accuracies"].keys() == {"herding", "stratified"}
    assert all(len(each) == 3 and min(each) > 0.5 for each in namespace["accuracies"].values())  # chance is .1
    assert Path("subset.parquet").is_file()


def test_the_notebook_shows_what_its_code_gave(start: Callable[[str], Path]) -> None:
    """`make notebook` wrote the outputs; after a change of the code they would show something else."""
    notebook = json.loads(start("features").read_text())
    assert notebook["metadata"][EXECUTED] == digest(notebook), "run `make notebook`"
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} == {"execute_result", "stream"}  # no error, no warning
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} == {"stdout"}
    (described, accuracies) = ("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
    assert described == f"{describe('herding')}\n"
    assert re.findall(r"^(\w+) +[\d.]+ %", accuracies, flags=re.MULTILINE) == ["herding", "stratified"]


def test_fresh_draws(start: Callable[[str], Path]) -> None:
    path = start("fresh-draws")
    assert run(path, SMALL[3:] + SMALL[:1]) == ["run", "run"]
    reports = [json.loads(each.read_text()) for each in (path.parent / "runs/reports").rglob("*.json")]
    rows = [row for report in reports for row in report["rows"] if row["role"] == "selected"]
    assert sorted((row["kept_fraction"], row["epoch_fraction"]) for row in rows) == [(0.1, 0.02), (1.0, 0.02)]


def test_raptr(start: Callable[[str], Path]) -> None:
    path = start("raptr")
    assert run(path, [change for change in PHOTOS if "epochs" not in change] + ["train.epochs=4"]) == ["run"]
    assert [row["epochs"] for row in verdict(path.parent)["rows"]] == [4, 4]


def test_several_nodes(
    start: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = start("several-nodes")
    assert run(path, []) == ["plan"]
    assert "pretrain" in capsys.readouterr().out
    parameters = sent(path, capsys, monkeypatch)
    assert {name: str(parameters[name]) for name in ("workspace", "gpus", "nodes", "train_nodes", "jigsaws")} == {
        "workspace": "s3://lipt/several-nodes", "gpus": "1", "nodes": "4", "train_nodes": "2", "jigsaws": "16"
    }  # fmt: skip


def test_kubeflow(
    start: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = start("kubeflow")
    path.write_text(path.read_text().replace("BUCKET", "lipt"))
    parameters = sent(path, capsys, monkeypatch)
    wanted = ("s3://lipt/digits", "REGISTRY/lipt:0.1.0", 8)
    assert (parameters["workspace"], parameters["image"], parameters["width"]) == wanted


def test_kubectl(start: Callable[[str], Path]) -> None:
    workflow = yaml.safe_load(start("kubectl").read_text())
    assert workflow["spec"]["workflowTemplateRef"]["name"] == TEMPLATE["metadata"]["name"]
    known = {each["name"]: each.get("value") for each in TEMPLATE["spec"]["arguments"]["parameters"]}
    given = {each["name"]: each["value"] for each in workflow["spec"]["arguments"]["parameters"]}
    assert given.keys() <= known.keys()
    settings = {name: value for name, value in (known | given).items() if name in PARAMETERS}
    config = configure(str(known.get("config") or ""), **settings)
    assert (config.workspace, config.model.width, config.dispatch.jigsaws) == ("s3://lipt/digits", 16, 4)


def test_sweep(start: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = start("sweep")
    assert run(path, ["model.width=4", "dispatch.jigsaws=2", "train.steps=1", "compare.seeds=[0]"]) == [
        "sweep",
        "sweep",
    ]
    assert capsys.readouterr().out.splitlines()[-1] == "results: 14-sweep.jsonl"
    points = [json.loads(line)["point"] for line in Path("14-sweep.jsonl").read_text().splitlines()]
    assert [tuple(point.values()) for point in points] == [(0.05, "ccs"), (0.05, "grand"), (0.1, "ccs"), (0.1, "grand")]


def test_draws_by_loss(start: Callable[[str], Path]) -> None:
    path = start("draws-by-loss")
    assert run(path, ["model.width=4", "train.steps=20"]) == ["run", "run"]
    reports = [json.loads(report.read_text()) for report in (path.parent / "runs/reports").rglob("*.json")]
    assert [report["rows"][0]["epoch_fraction"] for report in reports] == [0.1, 0.1]
    assert {tuple(row["label"] for row in report["rows"]) for report in reports} == {
        (f"Class-balanced random, {draw} draws", "Class-balanced random") for draw in ("ordered", "infobatch")
    }
    assert len({tuple(report["curves"][0]["train_loss"]) for report in reports}) == 2  # the draws differ


def test_race(start: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = start("race")
    assert run(path, ["model.width=4", "score.epochs=2", "train.steps=20"]) == ["run", "plan"]
    shown = capsys.readouterr()
    assert "race, 10 % of the steps, validation accuracy: Class-balanced random" in shown.err
    assert "race, 30 % of the steps, validation accuracy:" in shown.err
    assert re.search(r"^race ", shown.out, re.MULTILINE), shown.out


def test_many_passes(start: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = start("many-passes")
    photos = ["initialise.batch_size=8", "train.batch_size=8", "select.fraction=0.2"]
    assert run(path, [*photos, "model.width=4", "score.proxy.width=2", "score.epochs=2", "train.steps=4"]) == [
        "compare",
        "plan",
    ]
    shown = capsys.readouterr().out
    assert "10 epochs, half width" in shown
    assert re.search(r"give a limit:\n\nlipt plan 15-many-passes.yaml .*--advise --storage 0.0", shown)
    report = verdict(path.parent)
    assert [row["name"] for row in report["rows"]] == ["lipt", "stratified", "random-longer"]
    assert report["rows"][2]["steps"] > report["rows"][1]["steps"] == report["rows"][0]["steps"]
