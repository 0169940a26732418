"""The compiled pipelines, run whole by kfp.local on real digits: a process per box, only the workspace is shared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from kfp import components, local

from lipt.cli import main
from lipt.config import Config
from lipt.flow.address import report_folder
from lipt.flow.compare import run_with_baseline
from lipt.pods.spec import configure
from lipt.report.document import Document
from lipt.report.verdict import judge
from lipt.runtime.context import Context
from lipt.runtime.workspace import Workspace
from tests.examples import sent
from tests.pipeline.kfp_samples import CONFIG, PARAMETERS
from tests.pipeline.test_kfp_bodies import Bodies

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:kfp", "ignore::UserWarning:kfp")  # what it ignores

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Pods and the run they are compared with add up in the same order; and two cores are not fought for."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Run:
    """What a run under kfp.local left behind."""

    folder: Path

    def artifact(self, box: str, name: str) -> tuple[str, dict[str, Any]]:
        """(content, metadata) of an output."""
        output = json.loads((self.folder / box / "executor_output.json").read_text())
        content = self.folder / box / name
        return content.read_text() if content.exists() else "", output["artifacts"][name]["artifacts"][0]["metadata"]


def run_pipeline(name: str, root: Path, **arguments: Any) -> Run:
    """Run a committed YAML; raises RuntimeError when a box fails."""
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root))
    before = set(root.glob("*"))
    components.load_component_from_file(str(ROOT / "pipelines" / name))(**arguments)
    (folder,) = set(root.glob("*")) - before
    return Run(folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digits, ingested by the pipeline `lipt-ingest`."""
    root = tmp_path_factory.mktemp("ingest")
    run = run_pipeline("ingest.yaml", root / "kfp", store=str(root / "store"), chunk_mb=0.5)
    (answer,) = run.folder.glob("**/executor_output.json")
    metadata = json.loads(answer.read_text())["artifacts"]["dataset"]["artifacts"][0]["metadata"]
    assert (metadata["train"], metadata["test"], metadata["num_classes"]) == (1438, 359, 10)
    return str(metadata["location"])


@dataclass(frozen=True)
class Finished:
    """The pipeline `lipt`, and its workspace."""

    run: Run
    arguments: dict[str, Any]
    config: Config
    workspace: Workspace


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, store: str) -> Finished:
    root = tmp_path_factory.mktemp("lipt")
    arguments = PARAMETERS | {"data": store, "workspace": str(root / "workspace")}
    run = run_pipeline("lipt.yaml", root / "kfp", config=CONFIG, **arguments)
    config = configure(CONFIG, **arguments)
    return Finished(run, arguments, config, Workspace(config.workspace))


def document_of(finished: Finished) -> Document:
    return Document.model_validate_json(
        finished.workspace.store.read(f"{report_folder(finished.config)}/report.json", kind="other")
    )


def test_the_pipeline_selects_what_lipt_run_selects(finished: Finished, tmp_path: Path) -> None:
    config = configure(CONFIG, **finished.arguments | {"workspace": str(tmp_path / "elsewhere")})
    expected = run_with_baseline(Context.of(config))
    document = document_of(finished)
    assert expected is not None
    assert [row.accuracy for row in document.rows] == [row.accuracy for row in expected.rows]
    assert document.subset is not None
    assert expected.subset is not None
    assert document.subset.digest == expected.subset.digest

    ref, _ = finished.run.artifact("select", "subset")
    tables = [
        pq.read_table(Path(where) / ref / "subset.parquet") for where in (config.workspace, finished.config.workspace)
    ]
    assert tables[0].equals(tables[1])
    assert len(tables[0]) - tables[0]["rank"].null_count == document.subset.count > 0


def test_the_last_box_shows_the_report_the_figures_and_the_confusion_matrix(finished: Finished) -> None:
    document = document_of(finished)
    assert document.engine == "kubeflow"
    headline = judge(document.rows).headline
    page = finished.run.artifact("train", "report")[0]
    assert headline in page.replace("&#39;", "'").replace("\u00a0", " ")  # a number and its % stay on one line
    assert headline in finished.run.artifact("train", "verdict")[0]
    _, figures = finished.run.artifact("train", "metrics")
    selected, random = document.rows
    assert figures["accuracy"] == selected.accuracy[0]
    assert random.name == "stratified"
    assert figures["stratified_accuracy"] == random.accuracy[0]
    assert figures["gain_over_stratified"] == pytest.approx(selected.accuracy[0] - random.accuracy[0])
    budgets = PARAMETERS["fraction"], PARAMETERS["epoch_fraction"]
    assert (figures["kept_fraction"], figures["epoch_fraction"]) == budgets
    assert budgets[0] != budgets[1]
    assert figures["steps"] == selected.steps
    assert len(figures) == 10  # Kubeflow shows no more on a page
    assert figures["data_mb"] * 1e6 == pytest.approx(selected.data_bytes)
    assert figures["gflop"] * 1e9 == pytest.approx(selected.flops)
    _, confusion = finished.run.artifact("train", "confusion")
    rows = [entry["row"] for entry in confusion["confusionMatrix"]["rows"]]
    assert sum(map(sum, rows)) == 359
    assert sum(rows[i][i] for i in range(10)) / 359 == pytest.approx(selected.accuracy[0])


def test_artifacts_are_references_into_the_workspace(finished: Finished) -> None:
    """The launcher would download weights and samples whole."""
    for box, name in (("merge", "merged"), ("select", "subset"), ("train", "model")):
        content, metadata = finished.run.artifact(box, name)
        assert content == metadata["ref"]
        assert finished.workspace.get(content).files
    _, figures = finished.run.artifact("merge", "metrics")
    assert (figures["jigsaws_arrived"], figures["jigsaws_missing"]) == (3, 0)
    merged = document_of(finished).merge
    assert merged is not None
    assert figures["soup_validation_accuracy"] == merged.soup_accuracy


def test_compare_takes_what_is_there_and_shows_every_row(finished: Finished, tmp_path: Path) -> None:
    arguments = {name: value for name, value in finished.arguments.items() if name != "seed"}
    config = yaml.safe_dump(yaml.safe_load(CONFIG) | {"compare": {"variants": ["lipt", "random", "theta-star"]}})
    before = set(finished.workspace.store.list())
    run = run_pipeline("compare.yaml", tmp_path, config=config, seeds=[7], **arguments)
    _, figures = run.artifact("compare", "metrics")
    assert {name for name in figures if name.endswith("_accuracy")} == {"random_accuracy", "theta_star_accuracy"}
    assert figures["accuracy"] == document_of(finished).rows[0].accuracy[0]
    page, _ = run.artifact("compare", "report")
    assert "engine kubeflow" in page
    assert "by earlier runs" in page  # one box does the whole comparison, so it knows what it found finished
    new = {key.split("/")[0] for key in set(finished.workspace.store.list()) - before}
    assert new <= {"reports", "score", "select", "train", "evaluate"}  # the swarm was there


def test_the_example_runs_with_what_it_submits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lipt init kubeflow`: all parameters that its `lipt submit` sends, but a folder and one epoch; the boxes of the
    other tests' pipeline, in this process."""
    monkeypatch.chdir(tmp_path)
    main(["init", "kubeflow"])
    example = tmp_path / "10-kubeflow.yaml"
    example.write_text(example.read_text().replace("BUCKET", "lipt"))
    inputs = components.load_component_from_file(str(ROOT / "pipelines" / "lipt.yaml")).component_spec.inputs
    given = {name: int(entry.default) if entry.type == "Integer" else entry.default for name, entry in inputs.items()}
    parameters = sent(example, capsys, monkeypatch)
    assert parameters.keys() <= given.keys()
    given |= parameters | {"workspace": str(tmp_path / "runs"), "epochs": 1}
    bodies = Bodies(tmp_path, given["workspace"])
    assert given.keys() == bodies.settings.keys() | bodies.pods.keys() | {"config"}
    bodies.settings = {name: given[name] for name in bodies.settings}
    bodies.pods = {name: given[name] for name in bodies.pods}
    bodies.pretrain(given["config"])
    bodies.merge()
    bodies.train()
    merged = bodies.metrics.metadata
    assert (merged["jigsaws_arrived"], merged["jigsaws_missing"]) == (4, 0)
    page = Path(bodies.report.path).read_text()
    assert "engine kubeflow" in page
    assert "kubeflow" in page.partition("<title>")[2].partition("</title>")[0]  # the name in the file
    (report,) = (tmp_path / "runs/reports").rglob("report.json")
    assert [row.role for row in Document.model_validate_json(report.read_bytes()).rows] == ["selected", "random"]
