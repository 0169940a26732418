"""The component bodies, called in this process: lost workers, wrong settings, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from components.dispatch import dispatch
from components.ingest import ingest
from components.merge import merge
from components.pretrain import pretrain
from components.select import select
from components.train import train
from lipt.errors import IntegrityError
from lipt.flow.dag import prepare
from lipt.pods.spec import RunSpec, configure
from lipt.runtime.context import Context
from lipt.runtime.workspace import Workspace
from tests.pipeline.kfp_samples import CONFIG, PARAMETERS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:kfp", "ignore::UserWarning:kfp")  # what it ignores


class Bodies:
    """The component bodies, called in this process one after the other on KFP's own artifacts."""

    def __init__(self, folder: Path, workspace: str, **changes: Any) -> None:
        rest = {"model": "resnet18", "algorithm": "auto", "batches": 1, "profile": "robust", "random_baseline": True}
        rest |= {"train_nodes": 1}
        pods = {
            "image": "lipt:0",
            "gpus": "0",
            "gpu_resource": "nvidia.com/gpu",
            "tolerations": [],
            "node_selector": {},
            "cpu": "1",
            "memory": "1Gi",
        }
        self.folder = folder
        self.settings = PARAMETERS | rest | {"data": "digits", "workspace": workspace} | changes
        self.pods = pods | {"s3": "lipt-s3", "nodes": 0, "deadline": 1, "grace": 3.0, "queue": "", "priority": ""}
        self.spec = ""
        self.pretrained = self.output(dsl.Metrics, "pretrain-metrics")
        self.merged = self.output(dsl.Model, "merged")
        self.metrics = self.output(dsl.Metrics, "merge-metrics")
        self.report = self.output(dsl.HTML, "report")

    def output(self, kind: type[dsl.Artifact], name: str) -> Any:
        return kind(uri=str(self.folder / name))

    def lose(self, *workers: int) -> None:
        """Damage the shards of these workers in the store, once they are cut.

        They keep their size: a file of another size would be made again before anybody reads it.
        """
        ctx = Context.of(configure(CONFIG, **self.settings))
        shards = prepare(ctx).shards
        assert shards is not None
        for index in workers:
            file = f"shard-{index:05d}.json"
            ctx.workspace.store.write(f"{shards.ref}/{file}", bytes(shards.files[file].num_bytes), kind="other")

    def pretrain(self, config: str = CONFIG) -> None:
        self.spec = dispatch.python_func(**self.settings, **self.pods, config=config)
        pretrain.python_func(spec=self.spec, metrics=self.pretrained)

    def merge(self) -> None:
        merge.python_func(spec=self.spec, merged=self.merged, metrics=self.metrics)

    def train(self) -> dict[str, Any]:
        """Select, train; returns the figures."""
        subset, figures = self.output(dsl.Dataset, "subset"), self.output(dsl.Metrics, "metrics")
        select.python_func(spec=self.spec, merged=self.merged, subset=subset)
        train.python_func(
            spec=self.spec,
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
    assert bodies.train()["kept_fraction"] == 0.05
    assert "shard-00001.json is damaged" in Path(bodies.report.path).read_text()
    headline, *sentences, report = (tmp_path / "verdict").read_text().split("\n\n")
    assert headline.startswith("**")
    if "both at chance" not in headline:  # which differs from processor to processor
        *sentences, step, command = sentences
        assert step.startswith("To find out, compare over 5 seeds")
        assert command.startswith("```bash\nlipt compare CONFIG \\\n  --set 'compare.seeds=[0,1,2,3,4]' \\\n")
        assert command.endswith("\n```")
    assert sentences
    assert all(sentence.startswith("• ") for sentence in sentences)
    assert report.startswith("Report: `s3://")


def test_an_algorithm_that_needs_no_model_passes_through_all_boxes(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path, str(tmp_path / "workspace"), algorithm="random", random_baseline=False)
    bodies.pretrain()
    assert bodies.pretrained.metadata == {"jigsaws_arrived": 0, "jigsaws_expected": 0}
    bodies.merge()
    assert (Path(bodies.merged.path).read_text(), bodies.metrics.metadata) == ("", {})
    assert bodies.train()["kept_fraction"] == 0.05


def test_a_repeated_run_does_not_claim_the_work_of_the_boxes_before(tmp_path: Path) -> None:
    """The last box finds its own work finished, but cannot tell who did the work of the other boxes."""
    for _ in range(2):
        bodies = Bodies(tmp_path, str(tmp_path / "workspace"), algorithm="random", random_baseline=False)
        bodies.pretrain()
        bodies.merge()
        bodies.train()
    report = Path(bodies.report.path).read_text()
    assert "Cost of each stage" in report
    assert "earlier runs" not in report
    assert ">this run<" not in report


def test_a_box_without_work_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = Bodies(tmp_path, str(tmp_path / "workspace"))
    bodies.pretrain()
    capsys.readouterr()
    bodies.pretrain()
    assert capsys.readouterr().err.splitlines()[-1] == "pretrain            up to date  3 of 3"
    bodies = Bodies(tmp_path, str(tmp_path / "workspace"), algorithm="random", random_baseline=False)
    bodies.pretrain()
    bodies.merge()
    assert capsys.readouterr().err.splitlines()[-2:] == ["nothing to do: these settings need no swarm"] * 2


def test_the_box_that_ingests_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = dsl.Dataset(uri=str(tmp_path / "dataset"))
    settings = {"data": "digits", "store": str(tmp_path / "store"), "chunk_mb": 0.5, "shuffle_seed": 0, "config": ""}
    ingest.python_func(**settings, dataset=dataset)
    assert capsys.readouterr().err.endswith(" s  train 1,438  test 359  classes 10\n")


def test_wrong_settings_end_the_first_box_in_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = Bodies(tmp_path, str(tmp_path / "workspace"))
    with pytest.raises(SystemExit) as caught:
        bodies.pretrain("select: {fraction: 0.5}")
    assert caught.value.code == 2
    message = "lipt: parameter fraction is 0.05, config says select.fraction: 0.5\n  -> set it once, in the parameter\n"
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
    assert remedy == "  -> for the lost ones: run again: dispatch is repeated; or lower merge.quorum"


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
    (key,) = store.list("specs/")
    store.write(key, store.read(key, kind="other").replace(b"tiny", b"tiMy"), kind="other")
    with pytest.raises(IntegrityError, match="is damaged"):
        RunSpec.load(bodies.spec)
