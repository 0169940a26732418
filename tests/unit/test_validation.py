"""One validation: what a run would stumble over late is said at once, by every verb, before anything is ingested."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from lipt.cli import main
from lipt.config import override, parse_config
from lipt.data.sources import open_source
from lipt.data.sources.folder import FolderSource
from lipt.errors import LiptError, UsageError
from lipt.flow.checks.facts import Facts
from lipt.flow.checks.model import check_model
from lipt.flow.checks.validation import _rounded_up, check_comparison, check_from_afar, check_run, problems
from lipt.forecast.sizes import DataSize
from lipt.pods.boxes import dispatch_box
from lipt.progress import Reporter
from lipt.runtime.algorithm import algorithm_of, reason_of_auto, selecting
from lipt.runtime.context import Context
from lipt.runtime.dataset import listing
from lipt.stages.ingest import ingest
from tests.tiny import TINY, tiny_context

WRONG = [
    ("select.options={bta: 0.1}", UsageError, "algorithm ccs has no option 'bta'"),
    ("select.options={beta: 3}", UsageError, "beta must be in [0, 1), not 3"),
    ("select.options={beta: high}", UsageError, "'high' is not a finite number or null"),
    ("select.algorithm=dual", UsageError, "dual needs the outputs of 2 models or more, but there is only 1"),
    ("select={algorithm: ccs, options: {score: forgetting}}", LiptError, "needs scores from each epoch"),
    ("select={fraction: 1, algorithm: el2n}", UsageError, "el2n has nothing to choose with select.fraction: 1"),
    ("select={fraction: 1, race: {rounds: [0.5]}}", UsageError, "all contestants keep the same images"),
    (
        "select.race.contestants=[{algorithm: auto, options: {beta: 0.1}}]",
        UsageError,
        "algorithm auto takes no options",
    ),
    (
        "{data: {validation_fraction: 0.001}, select: {race: {rounds: [0.5]}}}",
        UsageError,
        "select.race: 1 validation image for 10 classes cannot rank",
    ),
    ("select.algorithm=forgetting", UsageError, "needs scores from each epoch"),
    ("data.format=imagefoldr", UsageError, "data.format: no format 'imagefoldr'"),
    ("model.name=resnet81", UsageError, "no model 'resnet81'"),
    ("model.classifier=fc", UsageError, "'fc' is not a linear layer"),
    ("model={name: torchvision.resnet18, width: 3}", UsageError, "has a fixed width"),
    (
        "dispatch.jigsaws=1000",
        UsageError,
        "1000 jigsaws of 32 images need 32,000 candidates, the data set has 1,294 (1,797 images less 359 for the test "
        "and 144 for validation)",
    ),
    ("data.crop_padding=8", UsageError, "data.crop_padding (8) is not below the 8 pixels of an image"),
    ("data={image_size: 16, crop_padding: 16}", UsageError, "is not below the 16 pixels of an image"),
    (
        "{data: {crop_padding: 7}, score: {model: trajectory, proxy: {image_size: 6}}}",
        UsageError,
        "data.crop_padding (7) is not below the 6 pixels of an image",
    ),
    ("data.validation_fraction=0.0001", UsageError, "cannot be set aside for validation"),
    ("select.fraction=0.001", UsageError, "0.001 of 1,294 candidates are 1 image for 10 classes"),
    ("select.fraction=1e-9", UsageError, "1e-09 of 1,294 candidates are 0 images for 10 classes"),
    ("train.epoch_fraction=0.0001", UsageError, "train.epoch_fraction: 0.0001 of 1,294 candidates are 0 images"),
    ("train.raptr={fixed_first: 3, fixed_last: 2}", UsageError, "train.raptr: the network has 5 blocks"),
    ("initialise={batch_size: 1000, raptr: {}}", UsageError, "initialise.raptr.keep: 4 stages need as many steps"),
    (
        "score={model: trajectory, runs: 41, epochs: 2, disjoint: true}",
        UsageError,
        "41 models with a batch of 32 candidates each need 1,312 candidates, the data set has 1,294 (1,797 images less",
    ),
    ("{model: {name: vit_small, width: 16}, data: {image_size: 10}}", UsageError, "which do not fill 10 x 10"),
    ("{model: {name: vit_small, width: 16}, data: {image_size: 68}}", UsageError, "up to 64 pixels, not 68"),
    (
        "{model: {name: vit_small, width: 16}, score: {model: trajectory, proxy: {image_size: 6}}}",
        UsageError,
        "score.proxy: vit_small divides images into patches of 4 x 4 pixels, which do not fill 6 x 6",
    ),
    ("train.batch_size=1", UsageError, "train.batch_size is 1: resnet18 cannot train on a single image of 8x8 pixels"),
    ("initialise.batch_size=1", UsageError, "initialise.batch_size is 1: resnet18 cannot train on a single image"),
    ("train.batch_size=2", UsageError, "train.batch_size is 2 and an epoch has 129 images: resnet18 cannot train on"),
    (
        "{select: {fraction: 0.17}, train: {batch_size: 2, draw: infobatch}}",
        UsageError,
        "train.batch_size is 2 and an epoch has at most 220 images: resnet18 cannot train on",
    ),
    (
        "{initialise: {batch_size: 2}, score: {model: trajectory, runs: 10, epochs: 2, disjoint: true}}",
        UsageError,
        "initialise.batch_size is 2 and an epoch has about 129 images: resnet18 cannot train on",
    ),
    ("train.epoch_fraction=0.001", UsageError, "train.batch_size is 32 and an epoch has 1 image: resnet18 cannot"),
    ("train={epoch_fraction: 0.001, draw: infobatch}", UsageError, "an epoch has at most 1 image: resnet18 cannot"),
    ("merge.recalibration_images=1", UsageError, "merge.recalibration_images is 1: resnet18 cannot train on"),
    ("train={epochs: 3, batch_size: 130, raptr: {}}", UsageError, "or more; the training has 3"),
    ("train={steps: 2, raptr: {}}", UsageError, "or more; the training has 2"),
]


def changed(setting: str) -> dict[str, Any]:
    path, _, value = setting.rpartition("=")
    nested = yaml.safe_load(value)
    for key in reversed(path.split(".") if path else []):
        nested = {key: nested}
    return dict(nested)


@pytest.mark.parametrize("scorer", [{"runs": 3, "disjoint": True}, {"runs": 1, "proxy": {"width": 1}}])
def test_auto_is_ccs_along_the_trajectory_of_another_network(tmp_path: Path, scorer: dict[str, Any]) -> None:
    score = {"model": "trajectory", "epochs": 2} | scorer
    ctx = tiny_context(tmp_path, {"score": score, "select": {"algorithm": "auto", "fraction": 0.1}})
    check_run(ctx)
    assert (algorithm_of(ctx.config), selecting(ctx.config).options) == ("ccs", {"score": "el2n"})
    assert "another network than the trained one" in reason_of_auto(ctx.config, 100)
    own = override(ctx.config, {"score": {"disjoint": False, "proxy": None}})
    assert algorithm_of(own) == "dual"
    random = override(ctx.config, {"select": {"fraction": 0.5}})
    assert algorithm_of(random) == "stratified"
    named = override(ctx.config, {"select": {"algorithm": "dual"}})
    assert algorithm_of(named) == "dual"


@pytest.mark.parametrize(
    "scorer", [{"proxy": {"width": 2}}, {"proxy": {"width": 2, "image_size": 6}}, {"runs": 3, "disjoint": True}]
)
@pytest.mark.parametrize(("fraction", "epochs"), [(0.1, 24), (0.1, 60), (0.05, 200)])
def test_along_the_trajectory_of_another_network_auto_is_ccs(
    tmp_path: Path, scorer: dict[str, Any], fraction: float, epochs: int
) -> None:
    score = {"model": "trajectory", "epochs": 10, "runs": 1} | scorer
    changes = {"score": score, "select": {"algorithm": "auto", "fraction": fraction}, "train": {"epochs": epochs}}
    config = tiny_context(tmp_path, changes).config
    assert selecting(config, 1294).algorithm == "ccs"
    assert reason_of_auto(config, 1294).startswith("auto takes ccs along the trajectory of another network")


@pytest.mark.parametrize(("setting", "kind", "message"), WRONG, ids=[setting for setting, *_ in WRONG])
def test_all_that_is_wrong_is_said_before_anything_runs(
    tmp_path: Path, setting: str, kind: type[LiptError], message: str
) -> None:
    ctx = tiny_context(tmp_path, changed(setting))
    checks: list[Callable[[], Any]] = [
        lambda: check_run(ctx),
        lambda: check_comparison(ctx),
        lambda: check_from_afar(ctx.config),
        lambda: dispatch_box(ctx.config, engine="argo", image="lipt:1"),
    ]
    for check in checks:
        with pytest.raises(kind) as caught:
            check()
        assert message in caught.value.message
        assert caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_a_remedy_beside_another_one_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(LiptError) as caught:
        check_run(tiny_context(tmp_path, {"dispatch": {"jigsaws": 1000}, "select": {"fraction": 1e-9}}))
    assert "lower dispatch.jigsaws" in caught.value.remedy
    assert "raise select.fraction to" in caught.value.remedy


@pytest.mark.parametrize(
    ("held_out", "remedy"),
    [
        (0.993, "raise select.fraction to 1 or more"),  # 10 candidates
        (0.9923, "raise select.fraction to 0.91 or more"),
        (0.995, "lower data.validation_fraction, or add images: there are fewer candidates than classes"),
    ],
)
def test_the_remedy_for_too_few_candidates_is_possible(tmp_path: Path, held_out: float, remedy: str) -> None:
    with pytest.raises(LiptError) as caught:
        check_run(tiny_context(tmp_path, {"data": {"validation_fraction": held_out}}))
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("share", [0.001, 0.951, 0.96, 0.991, 0.9999, 1])
def test_a_share_is_rounded_up_to_one_at_most(share: float) -> None:
    assert share <= float(_rounded_up(share)) <= min(1, 1.1 * share)


def test_what_is_right_passes(tmp_path: Path) -> None:
    for changes in (
        {},
        {"select": {"algorithm": "glister"}},
        {"score": {"model": "jigsaws"}, "select": {"algorithm": "dual"}},
        {"score": {"model": "trajectory", "runs": 1, "epochs": 2}, "select": {"algorithm": "forgetting"}},
        {"select": {"algorithm": "random", "fraction": 1}, "train": {"epoch_fraction": 0.01}},
        {"model": {"name": "torchvision.resnet18", "width": None}},
        {"data": {"crop_padding": 7}},
        {"select": {"algorithm": "random"}, "initialise": {"raptr": {}, "batch_size": 1000}},  # trains no model for it
        {
            "select": {"algorithm": "random"},
            "score": {"model": "trajectory", "runs": 5, "disjoint": True},
            "initialise": {"batch_size": 400},
        },
        {"data": {"crop_padding": 16, "image_size": 8, "crop": "resized"}},
    ):
        ctx = tiny_context(tmp_path, changes)
        check_run(ctx)
        assert check_from_afar(ctx.config) == []


def test_several_mistakes_are_one_error(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"model": {"name": "resnet81"}, "select": {"fraction": 1e-9}})
    with pytest.raises(
        UsageError, match=r"no model 'resnet81'[^;]*\n    -> .*\n  - select.fraction: 1e-09 of"
    ) as caught:
        check_run(ctx)
    assert str(caught.value).startswith("several problems:\n  - model.name: ")
    assert len(caught.value.message.splitlines()) == 1


def test_data_that_cannot_be_read_hide_no_other_mistake(tmp_path: Path) -> None:
    wrong = {"model": {"name": "resnet81"}, "select": {"algorithm": "gardmatch"}}
    missing = tiny_context(tmp_path, wrong | {"data": {"source": f"{tmp_path}/nowhere"}})
    for check in (check_run, check_comparison):
        with pytest.raises(UsageError) as caught:
            check(missing)
        told = [each.message for each in caught.value.problems]
        assert told[0] == f"{tmp_path}/nowhere: no such folder"
        assert told[1:] == ["model.name: no model 'resnet81'", "select.algorithm: no algorithm 'gardmatch'"]
    with pytest.raises(UsageError) as caught:
        check_run(tiny_context(tmp_path, wrong | {"data": {"format": "imagefoldr"}}))
    told = [each.message for each in caught.value.problems]
    assert [text.partition(":")[0] for text in told] == ["data.format", "model.name", "select.algorithm"]


def test_variants_that_cannot_be_made_are_left_out_or_refused(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"score": {"model": "jigsaws"}})
    said = StringIO()
    ctx = Context.of(ctx.config, Reporter(said))
    chosen = [variant.name for variant in check_comparison(ctx)]
    assert "lipt" in chosen
    assert "theta-star" not in chosen
    assert "left out: variant theta-star: " in said.getvalue()
    named = Context.of(override(ctx.config, {"compare": {"variants": ["lipt", "theta-star"]}}))
    with pytest.raises(UsageError, match=r"variant theta-star: .*needs a swarm"):
        check_comparison(named)


def test_a_variant_with_batches_of_one_image_is_refused(tmp_path: Path) -> None:
    """The run has no swarm, so the size of its batches is no mistake there."""
    ctx = tiny_context(
        tmp_path,
        {
            "score": {"model": "trajectory", "epochs": 2},
            "select": {"algorithm": "el2n"},
            "dispatch": {"batch_size": 1, "batches": 4, "jigsaws": 2},
            "compare": {"variants": ["lipt", "swarm-dual"]},
        },
    )
    with pytest.raises(UsageError, match=r"variant swarm-dual: dispatch.batch_size is 1: .* on a single image"):
        check_comparison(ctx)


def test_wrong_names_of_variants_are_told_with_all_other_mistakes(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"compare": {"variants": ["rs3", "randm"]}, "data": {"format": "imagefoldr"}})
    with pytest.raises(UsageError) as caught:
        check_comparison(ctx)
    told = [each.message for each in caught.value.problems]
    assert told[0].startswith("data.format: ")
    assert told[-3:] == [
        "compare.variants: no variant 'rs3'",
        "compare.variants: no variant 'randm'",
        "compare.variants: lipt is missing",
    ]


def test_the_figures_of_known_data_are_right(tmp_path: Path) -> None:
    source = open_source("digits")
    summary = ingest(tiny_context(tmp_path)).make().summary
    for changes in ({}, {"image_size": 12}):
        facts = Facts.of(parse_config({"data": TINY["data"] | changes}).data)
        assert (facts.train, facts.classes) == (summary["train"], len(source.classes))
        assert facts.size == ((12, 12) if changes else (8, 8))
    (store,) = tmp_path.glob("chunks/*/store")
    assert Facts.of(parse_config({"data": {"source": str(store)}}).data).train == summary["train"]


def folder_of(root: Path, counts: dict[str, int], size: tuple[int, int] = (9, 7)) -> Path:
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", size, number).save(root / name / f"{number}.png")
    return root


def test_a_folder_is_counted_as_it_is_ingested(tmp_path: Path) -> None:
    data = folder_of(tmp_path / "data", {"a": 13, "b": 5, "c": 2})
    ctx = tiny_context(tmp_path / "runs", {"data": {"source": str(data)}})
    facts = Facts.of(ctx.config.data, partial(listing, ctx))
    assert (facts.train, facts.classes, facts.size) == (ingest(ctx).make().summary["train"], 3, (7, 9))


def test_unreadable_images_do_not_hide_the_size_of_the_others(tmp_path: Path) -> None:
    """Before the ingest, which names all unreadable images, a dry run predicts the time without them."""
    data = folder_of(tmp_path / "data", {"a": 13, "b": 5})
    files = sorted(data.rglob("*.png"))
    for file in files[:3]:
        file.write_bytes(b"no image")
    ctx = tiny_context(tmp_path / "runs", {"data": {"source": str(data), "image_size": None}})
    assert DataSize.listed(ctx).side == 9
    for file in files:
        file.write_bytes(b"no image")
    assert Facts.of(ctx.config.data).size is None


def test_one_class_is_refused() -> None:
    (problem,) = problems(parse_config(TINY), Facts(train=2000, classes=1, size=(8, 8)))
    assert problem.message == "the data set has one class; training needs two or more"


OWN = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, classes, pixels):
        super().__init__()
        self.fc = nn.Linear(3 * pixels, classes)
        self.scale = float(self.fc.weight.abs().mean().item())  # needs numbers, which `meta` has not
    def forward(self, x):
        return self.fc(x.flatten(1)) / self.scale
class Folded(Net):
    def forward(self, x):
        return super().forward(x).view(-1)
class TwoHeads(Net):
    def forward(self, x):
        y = super().forward(x)
        return (y, y) if self.training else y
class FloatOnly(Net):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.first = nn.Linear(3 * 64, 3 * 64)
    def forward(self, x):
        rows = torch.zeros(len(x), 3 * 64)
        rows[torch.arange(len(x))] = self.first(x.flatten(1))
        return super().forward(rows)
class Idle(FloatOnly):
    def forward(self, x):
        return self.first(x.flatten(1))[:, :10]
class Viewing(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 64, num_classes)
    def forward(self, x):
        return self.fc(self.conv(x).view(-1, 4 * 64))
class Softmax(Net):
    def forward(self, x):
        return super().forward(x).softmax(1)
class Infinite(Net):
    def forward(self, x):
        return super().forward(x) / 0
class Stateful(Net):
    def get_extra_state(self): return {"seen": 1}
    def set_extra_state(self, state): pass
def stateful(num_classes): return Stateful(num_classes, 64)
def compiled(num_classes): return torch.compile(Net(num_classes, 64))
def viewing(num_classes): return Viewing(num_classes)
def softmax(num_classes): return Softmax(num_classes, 64)
def infinite(num_classes): return Infinite(num_classes, 64)
def double(num_classes): return Net(num_classes, 64).double()
def fits(num_classes): return Net(num_classes, 64)
def idle(num_classes): return Idle(num_classes, 64)
def float_only(num_classes): return FloatOnly(num_classes, 64)
def two_heads(num_classes): return TwoHeads(num_classes, 64)
def frozen(num_classes): return Net(num_classes, 64).requires_grad_(False)
def large(num_classes): return Net(num_classes, 32 * 32)
def folded(num_classes): return Folded(num_classes, 64)
"""


def test_an_own_model_gets_two_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_nets.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    facts = Facts(train=100, classes=10, size=(8, 8))

    def check(name: str, precision: str = "fp32") -> int:
        own = {"name": f"own_nets:{name}", "classifier": "fc"}
        return check_model(parse_config({"device": "cpu", "precision": precision, "model": own}), facts)

    assert check("fits") == 3 * 64 * 10 + 10
    with pytest.raises(UsageError, match=r"the state of own_nets:stateful has _extra_state, which is no tensor"):
        check("stateful")
    with pytest.raises(UsageError, match=r"own_nets:compiled is compiled.*\n  -> return it without torch.compile"):
        check_model(parse_config({"device": "cpu", "model": {"name": "own_nets:compiled"}}), facts)
    with pytest.raises(UsageError, match=r"cannot process images of 8x8 pixels: RuntimeError: .*mat1 and mat2"):
        check("large")
    with pytest.raises(UsageError, match=r"returns shape \(20,\) for 2 images and 10 classes"):
        check("folded")
    with pytest.raises(UsageError, match=r"returns a tuple for 2 images and 10 classes in train mode"):
        check("two_heads")
    assert check("float_only")
    with pytest.raises(UsageError, match=r"cannot process .*(?s:.*)  -> correct the model, or set precision: fp32"):
        check("float_only", "bf16")
    with pytest.raises(UsageError, match=r"model\.classifier: the network does not run 'fc'"):
        check("idle")
    with pytest.raises(UsageError, match=r"all weights of own_nets:frozen are frozen"):
        check("frozen")
    with pytest.raises(
        UsageError, match=r"own_nets:viewing uses view\(\) on images .*channels last\n  -> write reshape"
    ):
        check("viewing")
    with pytest.raises(
        UsageError, match=r"the logits of own_nets:softmax are probabilities.*\n  -> leave out the softmax"
    ):
        check("softmax")
    with pytest.raises(UsageError, match=r"own_nets:infinite returns NaN or infinity for images of noise"):
        check("infinite")
    with pytest.raises(UsageError, match=r"own_nets:double has weights of torch.float64\n  -> return it with \.float"):
        check("double")


def test_from_afar_it_is_said_what_was_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIPT_S3_ENDPOINT", raising=False)
    config = parse_config(TINY | {"data": {"source": "s3://bucket/data"}, "model": {"name": "in_the_image:net"}})
    unknown = check_from_afar(config)
    assert [what.partition(":")[0] for what in unknown] == ["the data set", "the model"]
    assert "LIPT_S3_ENDPOINT" in unknown[0]
    with pytest.raises(UsageError, match="no option 'bta'"):
        check_from_afar(override(config, {"select": {"options": {"bta": 1}}}))


@pytest.mark.parametrize(
    "verb",
    [["run"], ["run", "--dry-run"], ["compare"], ["compare", "--dry-run"], ["submit", "--engine", "argo"]],
    ids=" ".join,
)
def test_every_verb_refuses_it(tmp_path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yaml"
    workspace = "s3://bucket/runs" if verb[0] == "submit" else str(tmp_path / "runs")
    path.write_text(yaml.safe_dump(TINY | {"workspace": workspace}))
    with pytest.raises(SystemExit) as stop:
        main([*verb, str(path), "--set", "select.options.bta=1"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "lipt: algorithm ccs has no option 'bta'\n  -> did you mean 'beta'?\n"
    assert not (tmp_path / "runs").exists()


def test_doctor_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "runs")}))
    with pytest.raises(SystemExit):
        main(["doctor", str(path), "--set", "select.options.bta=1"])
    assert "FAIL  selection  algorithm ccs has no option 'bta'" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["doctor", str(path), "--set", "select={algorithm: ccz, fraction: 0.1}"])
    said = capsys.readouterr().out
    assert said.count("FAIL") == 1
    assert "FAIL  selection  select.algorithm: no algorithm 'ccz'" in said
    main(["doctor", str(path)])
    assert "ok    comparison 12 variants, 3 seeds" in capsys.readouterr().out


def test_doctor_refuses_data_that_a_run_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = tmp_path / "photos"
    for name in ("cat/0.png", "cat/1.png", "dog/0.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(photos / name)
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "runs"), "data": {"source": str(photos)}}))
    with pytest.raises(SystemExit):
        main(["doctor", str(path)])
    assert "FAIL  data       class 'dog' has 1 image: too few" in capsys.readouterr().out
    Image.new("RGB", (8, 8)).save(photos / "dog/1.png")
    (photos / "cat/0.png").write_bytes(b"")
    with pytest.raises(SystemExit):
        main(["doctor", str(path)])
    assert f"FAIL  data       {photos / 'cat/0.png'} is not a readable image: it is empty" in capsys.readouterr().out


def test_doctor_lists_the_images_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, opens = [], FolderSource.__init__

    def counted(source: FolderSource, spec: str) -> None:
        opened.append(spec)
        opens(source, spec)

    monkeypatch.setattr(FolderSource, "__init__", counted)
    photos = tmp_path / "photos"
    for name, grey in product(("cat", "dog"), range(160)):
        (photos / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (grey, 0, 0)).save(photos / name / f"{grey}.png")
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(tmp_path / "runs"), "data": {"source": str(photos)}}))
    main(["doctor", str(path)])  # with the check of `lipt compare`
    assert opened == [str(photos)]


def test_more_epochs_than_memory_holds_are_checked(tmp_path: Path) -> None:
    score = {"model": "trajectory", "runs": 1, "epochs": 10**12}
    config = tiny_context(tmp_path, {"select": {"algorithm": "dual"}, "score": score}).config
    tracemalloc.start()
    try:
        assert check_from_afar(config) == []
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 200e6


@pytest.mark.parametrize(("steps", "epochs"), [(10, 2), (16, 4)])
def test_a_training_that_would_never_select_again_is_refused(tmp_path: Path, steps: int, epochs: int) -> None:
    """129 images are five steps of at most 32 images."""
    train = {"steps": steps, "batch_size": 32, "reselect_every": 2}
    config = tiny_context(tmp_path, {"select": {"algorithm": "el2n", "fraction": 0.1}, "train": train}).config
    found = [problem.message for problem in problems(config, Facts.of(config.data))]
    assert found == (
        ["train.reselect_every (2) is not below the epochs that train.steps (10) take, 2: it would never select again"]
        if epochs == 2
        else []
    )


@pytest.mark.parametrize(
    ("scorers", "remedy"),
    [
        ({"score": {"model": "jigsaws"}, "dispatch": {"jigsaws": 1}}, "dispatch.jigsaws: 2"),
        ({"score": {"model": "classic", "runs": 1}}, "score.runs: 2"),
        ({}, "score.model: jigsaws"),
    ],
)
def test_who_has_too_few_models_is_told_how_to_get_more(tmp_path: Path, scorers: dict[str, Any], remedy: str) -> None:
    (problem,) = problems(tiny_context(tmp_path, {"select": {"algorithm": "dual"}} | scorers).config, None)
    assert problem.remedy.endswith(f", or {remedy}")


def test_the_remedy_for_too_few_models_helps(tmp_path: Path) -> None:
    """Selecting again during the training excludes every other scorer."""
    again: dict[str, Any] = {
        "select": {"algorithm": "dual", "fraction": 0.1},
        "train": {"epochs": 4, "reselect_every": 2},
    }
    (problem,) = problems(tiny_context(tmp_path, again).config, None)
    assert problem.message.startswith("select.algorithm: dual needs the outputs of 2 models")
    assert problem.remedy == "set train.reselect_every: 0 and score: {model: trajectory, runs: 1, epochs: 10}"
    again["train"]["reselect_every"] = 0
    again["score"] = {"model": "trajectory", "runs": 1, "epochs": 10}
    assert problems(tiny_context(tmp_path, again).config, None) == []
