"""`lipt export --to FILE.pt2`: the trained network of a run, for programs without LiPT."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from lipt.cli import main
from lipt.flow.compare import run_with_baseline
from lipt.runtime import Attempt, Context
from lipt.runtime.dataset import open_dataset, open_test_images
from tests.tiny import tiny_context


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Context]:
    """The configuration of a finished run, and its context."""
    folder = tmp_path_factory.mktemp("network")
    ctx = tiny_context(folder / "runs", {"select": {"algorithm": "random", "fraction": 0.3}, "train": {"epochs": 2}})
    run_with_baseline(ctx)
    (folder / "run.yaml").write_text(yaml.safe_dump(ctx.config.model_dump(mode="json")))
    return folder / "run.yaml", ctx


_USE = """
import json, sys, torch
from safetensors.torch import load_file
files = {"lipt.json": ""}
network = torch.export.load(sys.argv[1], extra_files=files).module()
images = load_file(sys.argv[2])["images"]
print(json.dumps([network(images).argmax(1).tolist(), json.loads(files["lipt.json"])]))
assert not any(name.split(".")[0] == "lipt" for name in sys.modules)
"""


def test_a_program_without_lipt_classifies_the_test_images_as_evaluate_did(
    ran: tuple[Path, Context], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, ctx = ran
    main(["export", str(config), "--to", str(tmp_path / "x.pt2")])
    told = capsys.readouterr()
    assert told.out == f"{tmp_path / 'x.pt2'}\n"
    evaluations = (ctx.workspace.get(f"evaluate/{each.name}") for each in (config.parent / "runs/evaluate").iterdir())
    (evaluation,) = (each for each in evaluations if f"from {each.inputs[1]}\n" in told.err)
    dataset = open_dataset(Attempt(ctx=ctx, ref="x", label="x"), ctx.workspace.get(evaluation.inputs[0]))
    images = open_test_images(ctx, dataset)
    rows = torch.arange(len(images))
    save_file({"images": next(iter(images.batches(rows, [len(rows)])))}, tmp_path / "images.safetensors")
    used = subprocess.run(
        [sys.executable, "-c", _USE, tmp_path / "x.pt2", tmp_path / "images.safetensors"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    predicted, facts = json.loads(used.stdout)
    confusion = np.zeros((10, 10), dtype=int)
    np.add.at(confusion, (images.labels_N.numpy(), np.array(predicted)), 1)
    assert confusion.tolist() == evaluation.summary["confusion"]
    assert facts["test_accuracy"] == evaluation.summary["accuracy"]
    assert facts["classes"] == list("0123456789")
    assert facts["shape"] == [3, 8, 8]
    assert facts["model"] == evaluation.inputs[1]


def test_json_and_no_second_file(
    ran: tuple[Path, Context, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "x.pt2"
    main(["export", str(ran[0]), "--to", str(target), "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["to"], told["kind"]) == (str(target), "network")
    before = target.read_bytes()
    with pytest.raises(SystemExit) as error:
        main(["export", str(ran[0]), "--to", str(target)])
    assert error.value.code == 2
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]
