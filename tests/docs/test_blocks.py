"""Every block of code on a page works.

- Python is executed; settings are loaded; commands of `lipt` are parsed by the command line itself.
- Commands of other programs are checked as far as they name files or targets of ours.
- Where commands are executed says places.py.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
import yaml
from PIL import ExifTags, Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

from lipt.cli import cli
from lipt.config import load_config, load_sweep, parse_config
from lipt.data.chunks.images import fitted
from lipt.data.chunks.reading import Sample
from lipt.data.decoding import image_to_store
from lipt.data.sources import open_source
from lipt.selection import ALGORITHMS, Candidates, select
from lipt.training.program import program
from lipt.training.tensor_files import pack, state_of
from tests.docs.commands import commands
from tests.docs.pages import ROOT, Block, blocks, inline_commands, written
from tests.manifests.objects import built
from tests.tiny import TINY

LANGUAGES = {"bash", "bibtex", "python", "text", "yaml"}
#: Programs that are not ours.
OTHERS = {"base64", "docker", "export", "git", "kfp", "kind", "kubectl", "pip", "sed", "source"}
#: Python that is executed elsewhere, or must not be.
ELSEWHERE = {
    "docs/reference/examples.md": "test_examples.py runs the notebook and the network in examples/",
    "CONTRIBUTING.md": "test_add_a_source.py, test_add_an_algorithm.py and test_add_a_stage.py run it",
    "docs/explanation/architecture.md": "it crashes the process: test_a_fault_of_onednn runs it in one of its own",
}


def test_every_block_says_its_language() -> None:
    assert {str(block): block.language for block in blocks() if block.language not in LANGUAGES} == {}


def test_the_page_about_your_folder_chooses_as_its_example_does() -> None:
    page = parse_config(yaml.safe_load(written("docs/howto/your-folder.md")["photos.yaml"]))
    example = load_config(str(ROOT / "examples/04-your-folder.yaml"))
    for section in ("model", "initialise", "score", "select", "train"):
        assert getattr(page, section) == getattr(example, section)


#: Pages that are read in a terminal or in a column as narrow.
NARROW = ("README", "docs/index", "docs/start", "docs/howto", "docs/explanation")


@pytest.mark.parametrize("block", [block for block in blocks() if block.page.startswith(NARROW)], ids=str)
def test_blocks_fit_into_80_columns(block: Block) -> None:
    if block.language in ("bash", "python", "text", "yaml"):
        lines = [line for line in block.code.splitlines() if "https://" not in line]
        assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("block", blocks("bash"), ids=str)
def test_commands(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = written(block.page)
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(block.code):
        program, *arguments = words
        if program == "lipt":
            check_lipt([str(tmp_path / word) if word in files else word for word in arguments])
        elif program == "make":
            assert next(word for word in arguments if "=" not in word) in targets, words
        elif program in ("python", "python3"):
            module = arguments[1].replace(".", "/") if arguments[0] == "-m" else arguments[0]
            places = (module, f"{module}.py", f"{module}/__main__.py")
            assert module == "venv" or any((ROOT / place).is_file() for place in places), words
        else:
            assert program in OTHERS or program == "cd" or (ROOT / program).is_file(), words
            paths = [word for word in arguments if re.match(r"(manifests|pipelines|examples|images)/", word)]
            assert [path for path in paths if not (ROOT / path).exists() and "mine" not in path] == [], words


def check_lipt(arguments: list[str]) -> None:
    """Parse a command as `lipt` does, and its settings; run nothing."""
    command: click.Command = cli
    context = click.Context(cli, info_name="lipt", **cli.context_settings)
    if arguments == ["--version"]:
        return
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments.pop(0))
        assert found is not None
        command, context = found, click.Context(found, parent=context)
    if "--help" in arguments:
        return
    parsed = command.make_context(command.name, [_number(word) for word in arguments], parent=context.parent).params
    config, overrides = parsed.get("config_path") or parsed.get("config"), list(parsed.get("overrides", ()))
    if isinstance(config, str) and config.endswith((".yaml", ".yml")):
        load_config(config, [_filled(each) for each in overrides])
    elif overrides:
        load_config(None, [_filled(each) for each in overrides])


def _number(word: str) -> str:
    """A placeholder such as N, as a number."""
    return "1" if re.fullmatch(r"[A-Z]", word) else word


def _filled(override: str) -> str:
    """A setting with a placeholder for its value, with a value."""
    key, _, value = override.partition("=")
    if not re.fullmatch(r"[A-Z]+", value):
        return override
    filled = {"select.fraction": "0.5", "select.algorithm": "herding", "data.source": "digits"}
    return f"{key}={filled.get(key, '1')}"


@pytest.mark.parametrize(("page", "line"), sorted(set(inline_commands())))
def test_commands_in_sentences(page: str, line: str) -> None:
    """Verbs and options exist; arguments may be left out or be placeholders."""
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "…"]
    context, command = click.Context(cli, info_name="lipt", **cli.context_settings), cli
    if words[0] in ("VERB", "-v", "--help"):
        return
    while isinstance(command, click.Group) and words and not words[0].isupper():
        command = command.get_command(context, words.pop(0))  # type: ignore[assignment]  # raises if it does not exist
        context = click.Context(command, parent=context)
    takes_value = {name for each in command.params if not getattr(each, "is_flag", False) for name in each.opts}
    command.make_parser(context).parse_args([*words, "VALUE"] if words and words[-1] in takes_value else words)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_settings(block: Block, tmp_path: Path) -> None:
    document = yaml.safe_load(block.code)
    if "grid" in document:
        for name, code in written(block.page).items():
            (tmp_path / name).write_text(code)
        (tmp_path / "sweep.yaml").write_text(block.code)
        assert load_sweep(str(tmp_path / "sweep.yaml")).points
    elif document.get("kind") == "Kustomization":
        manifests = Path(shutil.copytree(ROOT / "manifests", tmp_path / "manifests"))
        place = manifests / "overlays/mine"
        place.mkdir()
        (place / "kustomization.yaml").write_text(block.code)
        assert built(place)
    elif "apiVersion" not in document:  # a workflow: test_examples.py checks it
        config = parse_config(document)
        assert config.select.algorithm in ALGORITHMS


def test_python_that_is_executed_elsewhere() -> None:
    tests = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for test in re.findall(r"test_\w+\.py", ELSEWHERE["CONTRIBUTING.md"]):
        assert "CONTRIBUTING.md" in tests[test]
    cells = json.loads(next((ROOT / "examples").glob("*.ipynb")).read_text())["cells"]
    sources = ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "code"]
    sources += [path.read_text().strip() for path in (ROOT / "examples").rglob("*.py")]
    shown = [block.code.strip() for block in blocks("python", page="docs/reference/examples.md")]
    assert shown
    assert [code for code in shown if code not in sources] == []


def test_a_fault_of_onednn(tmp_path: Path) -> None:
    """The example is Python without an error: it ends well, or torch's library ends the process by a signal."""
    (block,) = blocks("python", page="docs/explanation/architecture.md")
    (tmp_path / "fault.py").write_text(block.code)
    ended = subprocess.run([sys.executable, tmp_path / "fault.py"], capture_output=True, text=True, check=False)
    assert ended.returncode <= 0, ended.stderr


class _Namespace(dict[str, Any]):
    """What the blocks of a page take as given: `model`, `dataset` and the files that other commands write."""

    def __init__(self, folder: Path) -> None:
        super().__init__(DataLoader=DataLoader, ImageFolder=ImageFolder, Path=Path, transform=None)
        torch.manual_seed(0)
        self["dataset"] = TensorDataset(torch.rand(300, 3, 8, 8), torch.arange(300) % 10)
        self["model"] = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
        self["small"] = lambda num_classes: nn.Sequential(nn.Flatten(), nn.Linear(192, num_classes))
        (folder / "weights.safetensors").write_bytes(pack(state_of(self["small"](10))))
        facts = {"shape": [3, 8, 8], "classes": list("abcdefghij")}
        network = program(self["small"](10), (3, 8, 8), {"lipt.json": json.dumps(facts)})
        (folder / "network.pt2").write_bytes(network)
        Image.new("RGB", (12, 9)).save(folder / "photo.jpg")
        (folder / "photos.yaml").write_text(yaml.safe_dump(TINY | {"train": {"epochs": 1, "batch_size": 32}}))
        select("random", Candidates.of(torch.arange(300) % 10), k=7).save(folder / "subset.parquet")
        for name in ("cat/1.png", "dog/2.png"):
            path = folder / "FOLDER/train" / name
            path.parent.mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(path)
        (folder / "list.txt").write_text("train/cat/1.png\n")
        (folder / "flat").mkdir()
        for name in ("1.png", "2.png"):
            Image.new("RGB", (4, 4)).save(folder / "flat" / name)
        (folder / "flat/labels.csv").write_text("file,label\n1.png,cat\n2.png,dog\n")


def executed(page: str, folder: Path) -> dict[str, Any]:
    """The namespace after all Python blocks of a page, in order."""
    namespace = _Namespace(folder)
    for block in blocks("python"):
        if block.page == page:
            exec(compile(block.code, str(block), "exec"), namespace)
    return namespace


def test_a_photo_is_prepared_as_lipt_prepares_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = _Namespace(tmp_path)
    (block,) = (each for each in blocks("python", page="docs/howto/export.md") if "photo.jpg" in each.code)
    draw = np.random.default_rng(0)
    for number, (width, height) in enumerate([(41, 30), (40, 31), (64, 47), (27, 24), (9, 60), (5, 7), (8, 8)]):
        photo = Image.fromarray(draw.integers(256, size=(height, width, 4), dtype=np.uint8))
        data = io.BytesIO()
        if number % 2:
            photo.save(data, "PNG")  # with transparent pixels
        else:
            exif = Image.Exif()
            exif[ExifTags.Base.Orientation] = 6
            photo.convert("RGB").save(data, "JPEG", exif=exif)
        (tmp_path / "photo.jpg").write_bytes(data.getvalue())
        exec(compile(block.code, str(block), "exec"), namespace)
        stored, _ = image_to_store(data.getvalue(), "photo")
        expected = fitted(8)(Sample(position=0, label=0, image=stored, ext="png"), "photo")
        assert torch.equal(namespace["image"], expected), (width, height)


@pytest.mark.parametrize("page", sorted({block.page for block in blocks("python")} - set(ELSEWHERE)))
def test_python(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = executed(page, tmp_path)
    if page == "README.md":
        assert len(next(iter(namespace["loader"]))[1]) == 3  # 1 % of 300 images
    elif page == "docs/howto/export.md":
        assert [Path(path).name for path, _ in namespace["data"].samples] == ["1.png"]
        assert namespace["logits"].shape == (1, 10)
        assert namespace["name"] in "abcdefghij"
    elif page == "docs/reference/python.md":
        assert Path(namespace["done"].page).is_file()
    elif page == "docs/reference/sources.md":
        assert open_source("sorted").names == {"train": ["cat/1.png", "dog/2.png"]}
    elif page == "docs/howto/your-model.md":
        assert namespace["small"](7)(torch.zeros(2, 3, 8, 8)).shape == (2, 7)
        weights = resnet18().state_dict()
        torch.save(weights, "resnet18.pth")
        namespace["__file__"] = str(tmp_path / "fine_tuning.py")
        found = namespace["pretrained"](7)
        assert found.fc.out_features == 7
        assert torch.equal(found.conv1.weight, weights["conv1.weight"])
    elif page == "docs/reference/formats.md":
        assert namespace["chosen"].num_rows == 7
        assert namespace["model"](torch.zeros(1, 3, 8, 8)).shape == (1, 10)
