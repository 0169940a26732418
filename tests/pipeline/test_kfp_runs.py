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
from kfp import components, dsl, local

from components.dispatch import dispatch
from components.merge import merge
from components.pretrain import pretrain
from lipt.adapters.store import open_store
from lipt.config import Config
from lipt.progress import Reporter
from lipt.report.document import Document
from lipt.report.verdict import judge
from lipt.stages.boxes import configure
from lipt.stages.compare import run_with_baseline
from lipt.stages.context import Context
from lipt.stages.graph import prepare
from lipt.stages.report import report_key
from lipt.stages.workspace import Workspace
from tests.tiny import TINY

ROOT = Path(__file__).parents[2]
PARAMETERS: dict[str, Any] = {
    "width": 4,
    "fraction": 0.1,
    "epoch_fraction": 0.05,
    "jigsaws": 3,
    "passes": 2,
    "epochs": 3,
    "seed": 7,
}
#: Everything else of the smallest run.
CONFIG = yaml.safe_dump(
    {
        "name": "tiny",
        "device": "cpu",
        "data": {"flip": False, "crop_padding": 1},
        "initialise": TINY["initialise"],
        "dispatch": {"batch_size": 32},
        "merge": TINY["merge"],
        "train": {"batch_size": 32},
    }
)


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


def context(config: Config) -> Context:
    return Context(config=config, workspace=Workspace(config.workspace), reporter=Reporter())


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
        finished.workspace.store.read(report_key(finished.config, "json"), kind="other")
    )


def test_the_pipeline_selects_what_lipt_run_selects(finished: Finished, tmp_path: Path) -> None:
    config = configure(CONFIG, **finished.arguments | {"workspace": str(tmp_path / "elsewhere")})
    expected = run_with_baseline(context(config))
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
    assert headline in finished.run.artifact("train", "report")[0].replace("&#39;", "'")
    assert headline in finished.run.artifact("train", "verdict")[0]
    _, figures = finished.run.artifact("train", "metrics")
    selected, random = document.rows
    assert figures["accuracy"] == selected.accuracy[0]
    assert figures["random_accuracy"] == random.accuracy[0]
    assert figures["gain_over_random"] == pytest.approx(selected.accuracy[0] - random.accuracy[0])
    assert (figures["kept_fraction"], figures["epoch_fraction"]) == (0.1, 0.05)
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
    assert document_of(finished).merge is not None
    assert figures["soup_validation_accuracy"] == document_of(finished).merge.soup_accuracy  # type: ignore[union-attr]


def test_compare_takes_what_is_there_and_shows_every_row(finished: Finished, tmp_path: Path) -> None:
    arguments = {name: value for name, value in finished.arguments.items() if name != "seed"}
    config = yaml.safe_dump(yaml.safe_load(CONFIG) | {"compare": {"variants": ["lipt", "random", "theta-star"]}})
    before = set(finished.workspace.store.list())
    run = run_pipeline("compare.yaml", tmp_path, config=config, seeds=[7], **arguments)
    _, figures = run.artifact("compare", "metrics")
    assert {name for name in figures if name.endswith("_accuracy")} == {"random_accuracy", "theta_star_accuracy"}
    assert figures["accuracy"] == document_of(finished).rows[0].accuracy[0]
    new = {key.split("/")[0] for key in set(finished.workspace.store.list()) - before}
    assert new <= {"reports", "score", "select", "train", "evaluate"}  # the swarm was there


def lose(ctx: Context, worker: int) -> None:
    """Damage the shard of a worker in the store, after the shards were cut."""
    plans = prepare(ctx).plans
    assert plans is not None
    ctx.workspace.store.write(f"{plans.ref}/shard-{worker:05d}.json", b"{}", kind="other")


def test_a_lost_worker_leaves_a_run_that_says_so(s3: str, tmp_path: Path) -> None:
    arguments = PARAMETERS | {"jigsaws": 2, "workspace": s3}
    config = configure(CONFIG, **arguments)
    lose(context(config), 1)
    run = run_pipeline("lipt.yaml", tmp_path, config=CONFIG, **arguments)
    _, figures = run.artifact("merge", "metrics")
    assert (figures["jigsaws_arrived"], figures["jigsaws_missing"]) == (1, 1)
    document = Document.model_validate_json(open_store(s3).read(report_key(config, "json"), kind="other"))
    assert document.merge is not None
    lost = [step for step in document.merge.steps if step.missing]
    assert [step.index for step in lost] == [1]
    assert "is damaged" in lost[0].note


def test_below_the_quorum_the_merge_fails_in_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bodies themselves, on KFP's own artifacts."""
    arguments = PARAMETERS | {"data": "digits", "workspace": str(tmp_path / "workspace")}
    rest = {"model": "resnet18", "algorithm": "auto", "batches": 1, "profile": "robust", "random_baseline": False}
    lose(context(configure(CONFIG, **arguments, **rest)), 0)
    lose(context(configure(CONFIG, **arguments, **rest)), 2)
    plan = dsl.Artifact(uri=str(tmp_path / "plan"))
    workers = dispatch.python_func(**arguments, **rest, config=CONFIG, plan=plan)
    jigsaws = [dsl.Model(uri=str(tmp_path / f"jigsaw-{worker['index']}")) for worker in workers]
    for worker, jigsaw in zip(workers, jigsaws, strict=True):
        pretrain.python_func(plan=plan, index=worker["index"], jigsaw=jigsaw)
    assert [bool(jigsaw.metadata.get("error")) for jigsaw in jigsaws] == [True, False, True]
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        merge.python_func(
            plan=plan, jigsaws=jigsaws, merged=dsl.Model(uri=str(tmp_path / "merged")), metrics=dsl.Metrics()
        )
    assert caught.value.code == 1
    *reasons, message, remedy = capsys.readouterr().err.splitlines()
    assert message == "lipt: 1 of 3 jigsaws arrived, the quorum is 2; missing: 0, 2"
    assert remedy.startswith("  -> run again: only the missing ones are trained")
    assert [reason.startswith(f"pretrain[{index}] was lost: ") for index, reason in zip((0, 2), reasons, strict=True)]
