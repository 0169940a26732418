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
from components.select import select
from components.train import train
from lipt.config import Config
from lipt.errors import IntegrityError
from lipt.progress import Reporter
from lipt.report.document import Document
from lipt.report.verdict import judge
from lipt.stages.compare import run_with_baseline
from lipt.stages.context import Context
from lipt.stages.graph import prepare
from lipt.stages.plan import Plan, configure
from lipt.stages.report import report_key
from lipt.stages.workspace import Workspace
from tests.tiny import TINY

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:kfp", "ignore::UserWarning:kfp")  # what it ignores

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


class Bodies:
    """The component bodies, called in this process one after the other on KFP's own artifacts."""

    def __init__(self, folder: Path, workspace: str, **changes: Any) -> None:
        rest = {"model": "resnet18", "algorithm": "auto", "batches": 1, "profile": "robust", "random_baseline": True}
        pods = {"image": "lipt:0", "gpus": "0", "tolerations": [], "node_selector": {}, "cpu": "1", "memory": "1Gi"}
        self.folder = folder
        self.settings = PARAMETERS | rest | {"data": "digits", "workspace": workspace} | changes
        self.pods = pods | {"s3": "lipt-s3", "nodes": 0, "deadline": 1}
        self.plan = ""
        self.pretrained = self.output(dsl.Metrics, "pretrain-metrics")
        self.merged = self.output(dsl.Model, "merged")
        self.metrics = self.output(dsl.Metrics, "merge-metrics")
        self.report = self.output(dsl.HTML, "report")

    def output(self, kind: type[dsl.Artifact], name: str) -> Any:
        return kind(uri=str(self.folder / name))

    def lose(self, *workers: int) -> None:
        """Damage the shards of these workers in the store, once they are cut."""
        ctx = context(configure(CONFIG, **self.settings))
        plans = prepare(ctx).plans
        assert plans is not None
        for index in workers:
            ctx.workspace.store.write(f"{plans.ref}/shard-{index:05d}.json", b"{}", kind="other")

    def pretrain(self, config: str = CONFIG) -> None:
        self.plan = dispatch.python_func(**self.settings, **self.pods, config=config)
        pretrain.python_func(plan=self.plan, metrics=self.pretrained)

    def merge(self) -> None:
        merge.python_func(plan=self.plan, merged=self.merged, metrics=self.metrics)

    def train(self) -> dict[str, Any]:
        """Select, train; returns the figures."""
        subset, figures = self.output(dsl.Dataset, "subset"), self.output(dsl.Metrics, "metrics")
        select.python_func(plan=self.plan, merged=self.merged, subset=subset)
        train.python_func(
            plan=self.plan,
            merged=self.merged,
            subset=subset,
            model=self.output(dsl.Model, "model"),
            metrics=figures,
            confusion=self.output(dsl.ClassificationMetrics, "confusion"),
            report=self.report,
            verdict=self.output(dsl.Markdown, "verdict"),
        )
        return dict(figures.metadata)


def test_a_lost_worker_leaves_a_run_that_says_so(s3: str, tmp_path: Path) -> None:
    bodies = Bodies(tmp_path, s3)
    bodies.lose(1)
    bodies.pretrain()
    assert bodies.pretrained.metadata == {"jigsaws_arrived": 2, "jigsaws_expected": 3}
    bodies.merge()
    assert (bodies.metrics.metadata["jigsaws_arrived"], bodies.metrics.metadata["jigsaws_missing"]) == (2, 1)
    assert bodies.train()["kept_fraction"] == 0.1
    assert "shard-00001.json is damaged" in Path(bodies.report.path).read_text()


def test_an_algorithm_that_needs_no_model_passes_through_all_boxes(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path, str(tmp_path / "workspace"), algorithm="random", random_baseline=False)
    bodies.pretrain()
    assert bodies.pretrained.metadata == {"jigsaws_arrived": 0, "jigsaws_expected": 0}
    bodies.merge()
    assert (Path(bodies.merged.path).read_text(), bodies.metrics.metadata) == ("", {})
    assert bodies.train()["kept_fraction"] == 0.1


def test_wrong_settings_end_the_first_box_in_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = Bodies(tmp_path, str(tmp_path / "workspace"))
    with pytest.raises(SystemExit) as caught:
        bodies.pretrain("select: {fraction: 0.5}")
    assert caught.value.code == 2
    message = "lipt: parameter fraction is 0.1, config says select.fraction: 0.5\n  -> say it once, in the parameter\n"
    assert capsys.readouterr().err == message


def test_a_wrong_pod_parameter_is_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = Bodies(tmp_path, str(tmp_path / "workspace"))
    bodies.pods["gpus"] = "one"
    with pytest.raises(SystemExit) as caught:
        bodies.pretrain()
    assert caught.value.code == 2
    assert capsys.readouterr().err == "lipt: parameter gpus is 'one'\n  -> write it like 1\n"
    assert not (tmp_path / "workspace").exists()


def test_below_the_quorum_the_merge_fails_in_one_message(
    s3: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = Bodies(tmp_path, s3)
    bodies.lose(0, 2)
    bodies.pretrain()
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        bodies.merge()
    assert caught.value.code == 1
    message, remedy = capsys.readouterr().err.splitlines()
    assert message.startswith("lipt: 1 of 3 jigsaws arrived, the quorum is 2; missing: 0, 2 (jigsaw 0: ")
    assert "shard-00002.json is damaged" in message
    assert remedy.startswith("  -> run again: only the missing ones are trained")


def test_damage_is_repaired_by_running_again(s3: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged artifact counts as unfinished once it was found out: its stage is repeated, the rest is not."""
    bodies = Bodies(tmp_path, s3)
    bodies.pretrain()
    store = Workspace(s3).store
    delta = next(key for key in store.list("pretrain/") if key.endswith(".zst"))
    good = store.read(delta, kind="model")
    others = {key: store.read(key, kind="other") for key in store.list("pretrain/") if key.endswith("cost.json")}
    store.write(delta, good[:99] + bytes([good[99] ^ 1]) + good[100:], kind="model")
    with pytest.raises(SystemExit) as caught:
        bodies.merge()
    assert caught.value.code == 1
    message, remedy = capsys.readouterr().err.splitlines()[-2:]
    assert message == f"lipt: {s3}/{delta} is damaged: not the {len(good):,} bytes written"
    assert remedy == "  -> run again: pretrain is repeated"

    bodies.pretrain()
    bodies.merge()
    assert bodies.metrics.metadata["jigsaws_arrived"] == 3
    assert store.read(delta, kind="model") == good
    repeated = [key for key, cost in others.items() if store.read(key, kind="other") != cost]
    assert repeated == [f"{delta.rpartition('/')[0]}/cost.json"]


def test_the_plan_is_verified(s3: str, tmp_path: Path) -> None:
    bodies = Bodies(tmp_path, s3)
    bodies.pretrain()
    store = Workspace(s3).store
    (key,) = store.list("plans/")
    store.write(key, store.read(key, kind="other").replace(b"tiny", b"tiMy"), kind="other")
    with pytest.raises(IntegrityError, match="is damaged"):
        Plan.load(bodies.plan)
