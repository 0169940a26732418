"""The component that is offered to Kubeflow's catalogue. `catalogue/validate` runs the catalogue's own checks."""

from __future__ import annotations

import re
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from kfp import dsl
from PIL import Image
from safetensors.torch import load_file

from catalogue.train_on_subset import train_on_subset
from lipt import __version__

FOLDER = Path(__file__).parents[2] / "catalogue/train_on_subset"
CONFIG = """
model: {width: 4}
initialise: {epochs: 1, batch_size: 8}
dispatch: {jigsaws: 2, batch_size: 8}
train: {batch_size: 8}
"""


def test_a_run_in_one_pod(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for split, label, i in np.ndindex(2, 2, 24):
        path = tmp_path / "photos" / ("train", "test")[split] / ("cat", "dog")[label] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(100 * label, 100 * label + 150, (32, 32, 3), dtype=np.uint8)).save(path)
    kinds = {"subset": dsl.Dataset, "model": dsl.Model, "metrics": dsl.Metrics, "report": dsl.HTML}
    made: dict[str, Any] = {name: kind(name=name, uri=str(tmp_path / name)) for name, kind in kinds.items()}
    images = dsl.Dataset(name="images", uri=str(tmp_path / "photos"))
    train_on_subset.python_func(images=images, fraction=0.25, epochs=1, config=CONFIG, **made)

    names = (tmp_path / "subset").read_text().splitlines()
    assert len(names) == made["metrics"].metadata["images"] == 11  # a quarter of 43; five of the 48 validate
    assert all((tmp_path / "photos" / name).is_file() for name in names)
    assert load_file(tmp_path / "model")["classifier.weight"].shape[0] == 2
    assert (tmp_path / "report").read_text().lower().startswith("<!doctype html>")
    # `auto` takes a random part at this share; so it is compared with fresh random parts.
    assert made["metrics"].metadata.keys() == {"images", "selected_accuracy", "rs2_accuracy"}
    assert 0 <= made["metrics"].metadata["selected_accuracy"] <= 100


def test_its_pod_installs_this_version() -> None:
    container = train_on_subset.component_spec.implementation.container
    assert container.image.startswith("python:")  # the catalogue accepts no other registry than its own
    assert f"lipt[run]=={__version__}" in " ".join(container.command)


def test_the_readme_is_that_of_the_component() -> None:
    """`catalogue/validate` writes it."""
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    described = re.findall(r"^ {4}(\w+): (.+)$", getdoc(train_on_subset.python_func) or "", re.MULTILINE)
    assert [name for name, _ in described] == list(signature(train_on_subset.python_func).parameters)
    assert [
        name for name, text in described if not re.search(rf"^\| `{name}` .*\| {re.escape(text)} \|$", readme, re.M)
    ] == []


def test_the_metadata_name_the_component() -> None:
    metadata = yaml.safe_load((FOLDER / "metadata.yaml").read_text(encoding="utf-8"))
    assert metadata["name"] == FOLDER.name == train_on_subset.python_func.__name__
