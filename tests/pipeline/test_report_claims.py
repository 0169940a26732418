"""What a report says about a run is what the run did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from lipt.config import load_config
from lipt.flow.address import run_id
from lipt.flow.compare import run_comparison, run_with_baseline
from lipt.report.costs import stage_ledger, worker_ledger
from lipt.report.document import Document
from lipt.report.next_step import Origin
from tests.tiny import tiny_context


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Two models record trajectories, but herding reads their outputs; the training counts steps."""
    changes = {
        "select": {"algorithm": "herding", "fraction": 0.1},
        "score": {"model": "trajectory", "runs": 2, "epochs": 1},
        "train": {"steps": 8, "batch_size": 32},
    }
    found = run_with_baseline(tiny_context(tmp_path_factory.mktemp("claims"), changes))
    assert found is not None
    return found


def test_an_algorithm_that_reads_outputs_is_not_said_to_read_a_trajectory(document: Document) -> None:
    assert document.done["Choice"].endswith("It looks at the outputs of models from 2 trainings of 1 epoch.")


def test_the_first_of_several_models_is_a_worker_too(document: Document) -> None:
    assert [line.label for line in worker_ledger(document.ledger)] == ["initialise 0", "initialise 1"]
    notes = {line.label: line.note for line in stage_ledger(document.ledger)}
    assert "2 workers" in notes["initialise"]


def test_chance_is_the_share_of_the_most_frequent_class_and_not_of_the_most_frequent_prediction(
    document: Document,
) -> None:
    """After 8 steps the network predicts one class far too often."""
    assert document.classes is not None
    for row in document.rows:
        assert row.chance == max(document.classes.images) / row.num_test_images < 0.15


def test_the_papers_arithmetic_counts_the_steps_that_were_made(document: Document, tmp_path: Path) -> None:
    """And the images of theta_*, of this run's own swarm (three jigsaws of 32 images, twice), and of its race."""
    assert document.paper_accounting is None  # without a swarm
    changes = {"select": {"race": {"rounds": [0.5]}}, "train": {"steps": 8, "batch_size": 32}}
    swarm = run_with_baseline(tiny_context(tmp_path, changes))
    assert swarm is not None
    assert swarm.paper_accounting is not None
    paper, row = swarm.paper_accounting.paper, swarm.rows[0]
    assert row.images is not None
    passes = row.images / 1294  # candidates of digits
    assert paper.main_epochs == pytest.approx(passes)
    assert paper.full_epochs == pytest.approx(10 * passes)  # as many epochs of all candidates
    assert paper.pretrain_epochs == pytest.approx(1 + 3 * 2 * 32 / 1294)
    assert paper.race_epochs == pytest.approx(2 * 4 * 26 / 1294, rel=0.05)  # two contestants, four steps
    assert paper.saved_vs_classic == pytest.approx(
        1 - (paper.pretrain_epochs + paper.race_epochs + passes) / (10 + passes)
    )
    assert swarm.paper_accounting.measured.race_epochs is not None
    assert swarm.rows[0].race_flops is not None
    assert swarm.race_images == 144


def test_the_papers_arithmetic_counts_no_images_that_a_draw_left_out(tmp_path: Path) -> None:
    changes = {"train": {"epochs": 4, "batch_size": 32, "draw": "infobatch", "random_baseline": False}}
    found = run_with_baseline(tiny_context(tmp_path, changes))
    assert found is not None
    assert found.paper_accounting is not None
    images = found.rows[0].images
    assert images is not None
    assert images < 4 * 129  # all that are kept
    assert found.paper_accounting.paper.main_epochs == pytest.approx(images / 1294)


def test_the_settings_of_a_comparison_are_not_offered_to_lipt_run(document: Document, tmp_path: Path) -> None:
    changes = {"select": {"algorithm": "random"}, "train": {"epochs": 1}}
    compared = run_comparison(tiny_context(tmp_path, changes | {"compare": {"seeds": [0], "variants": ["lipt"]}}))
    assert compared is not None
    for verb, found in (("run", document), ("compare", compared)):
        (settings,) = (link for link in found.links if link.name == "Configuration")
        assert f"`lipt {verb}` with it" in settings.meaning


def test_the_configuration_beside_a_report_names_the_same_images_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("net_beside.py").write_text(
        "from torch import nn\n\ndef net(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(192, num_classes))\n"
    )
    pixels = np.random.default_rng(0).integers(0, 256, (2, 40, 8, 8, 3), dtype=np.uint8)
    for label, images in enumerate(pixels):
        Path(f"photos/{label}").mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(f"photos/{label}/{number}.png")
    changes = {
        "data": {"source": "photos"},
        "model": {"name": "net_beside:net", "width": None},
        "select": {"algorithm": "random"},
        "train": {"epochs": 1},
    }
    found = run_with_baseline(tiny_context("runs", changes))
    assert found is not None
    monkeypatch.chdir(tmp_path / "elsewhere")
    origin = Origin.stored(found, found.workspace)
    config = load_config(origin.config, list(origin.overrides))
    assert config.data.source == str(tmp_path / "here/photos")
    assert run_id(config) == found.run_id
    assert yaml.safe_load(found.provenance.config_yaml)["workspace"] == "runs"  # the workspace may be moved
    assert origin.module == "net_beside"  # not to be named by a path
    (settings,) = (link for link in found.links if link.name == "Configuration")
    assert settings.meaning.endswith("repeats the run, in a folder where Python finds the module net_beside")
