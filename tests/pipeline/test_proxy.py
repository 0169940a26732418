"""Another network scores: `score.proxy`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from lipt.cli.machine_checks import model
from lipt.config import Network, override
from lipt.errors import UsageError
from lipt.flow.checks.validation import check_comparison, check_from_afar, check_run
from lipt.flow.dag import run
from lipt.flow.outcome import Outcome
from lipt.runtime.artifact import Artifact
from lipt.runtime.context import Context
from lipt.runtime.network import WEIGHTS
from lipt.training.networks import _BUILDERS
from lipt.training.tensor_files import unpack
from tests.tiny import tiny_context

PROXY = {"width": 2, "image_size": 5}
OWN = {"name": "tests.pipeline.test_networks:own_network", "width": None, "classifier": "5"}


def stem(ctx: Context, artifact: Artifact) -> int:
    """Channels after the stem of a stored network."""
    found = unpack(ctx.workspace.store.read(f"{artifact.ref}/{WEIGHTS}", kind="model"), origin="the weights")
    return len(found["stem.weight"])


def flops(ctx: Context, outcome: Outcome) -> dict[str, int]:
    return {artifact.stage: ctx.workspace.cost(artifact).flops for artifact in outcome.artifacts()}


def test_the_proxy_scores_and_the_network_itself_is_trained(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"train": {"epochs": 1}})
    small = Context.of(override(ctx.config, {"score": {"proxy": PROXY}}))
    whole, proxied = run(ctx), run(small)
    for artifact in (*proxied.prepared.initial, proxied.merged):
        assert artifact is not None
        assert stem(small, artifact) == 2
        assert artifact.settings["model"]["width"] == 2
        assert artifact.settings["view"]["size"] == 5
    assert stem(small, proxied.trained.model) == stem(ctx, whole.trained.model) == 4
    assert proxied.trained.model.settings["view"]["size"] is None
    assert proxied.prepared.shards == whole.prepared.shards
    assert not {artifact.ref for artifact in proxied.jigsaws} & {artifact.ref for artifact in whole.jigsaws}
    # Half the width is a quarter of the FLOPs (half in the stem), 25 of 64 pixels are 0.4; odd sides are rounded up.
    assert flops(small, proxied)["initialise"] < 0.2 * flops(ctx, whole)["initialise"]
    assert flops(small, proxied)["train"] == pytest.approx(flops(ctx, whole)["train"], rel=0.02)


def test_another_network_scores(tmp_path: Path) -> None:
    proxy = {"name": "vit_small", "width": 16}
    ctx = tiny_context(tmp_path, {"score": {"proxy": proxy}, "train": {"epochs": 1}})
    outcome = run(ctx)
    for artifact in (*outcome.prepared.initial, *outcome.jigsaws, outcome.merged):
        assert artifact is not None
        assert artifact.settings["model"] == {"name": "vit_small", "width": 16, "classifier": None}
    assert outcome.trained.model.settings["model"] == {"name": "resnet18", "width": 4, "classifier": None}


def test_one_of_our_networks_scores_for_the_users_own(tmp_path: Path) -> None:
    proxy = {"name": "resnet18", "width": 2}
    ctx = tiny_context(tmp_path, {"model": OWN, "score": {"proxy": proxy}, "train": {"epochs": 1}})
    check_run(ctx)
    outcome = run(ctx)
    assert outcome.merged is not None
    assert stem(ctx, outcome.merged) == 2
    assert "code" not in outcome.merged.settings["model"]
    assert outcome.trained.model.settings["model"]["name"] == ctx.config.model.name
    assert outcome.trained.model.settings["model"]["code"]


def test_a_wrong_proxy_of_the_users_own_network_is_refused_everywhere(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"model": OWN, "score": {"proxy": {"name": "vit_small", "width": 10}}})
    checks = (lambda: check_run(ctx), lambda: check_from_afar(ctx.config), lambda: model(ctx.config, None))
    for check in checks:
        with pytest.raises(UsageError, match=r"score\.proxy: model\.width: 10 cannot be divided"):
            check()


def test_a_proxy_of_the_users_own_network_has_its_width(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"model": OWN, "score": {"proxy": {"width": 8}}})
    with pytest.raises(UsageError, match=r"score\.proxy\.width: .* has a fixed width") as caught:
        check_run(ctx)
    assert caught.value.remedy.endswith("set score.proxy.name to one of LiPT's networks")


def test_each_network_is_checked_for_its_own_trainings(tmp_path: Path) -> None:
    """RaPTr needs blocks that may be skipped; the user's network has none."""
    score = {"proxy": {"name": "resnet18", "width": 4}}
    raptr = {"keep": [0.5, 1.0], "fixed_first": 0, "fixed_last": 0}
    check_run(tiny_context(tmp_path, {"model": OWN, "score": score, "initialise": {"raptr": raptr}}))
    with pytest.raises(UsageError, match=r"train\.raptr: the network has 0 blocks"):
        check_run(tiny_context(tmp_path, {"model": OWN, "score": score, "train": {"raptr": raptr}}))


def test_a_proxy_can_be_each_of_our_networks() -> None:
    assert list(_BUILDERS) == list(get_args(Network))


def test_a_proxy_equal_to_the_network_changes_nothing(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path)
    same = Context.of(override(ctx.config, {"score": {"proxy": {"width": 4}}}))
    assert same.of_scorer().config == ctx.config
    assert same.of_scorer().of_scorer().config == ctx.config
    assert ctx.of_scorer() is ctx


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": {"proxy": {}}}, "score.proxy needs a name, a width or an image_size"),
        ({"score": {"proxy": {"width": 0}}}, "score.proxy.width is 0; it should be greater than 0"),
        ({"score": {"proxy": {"side": 8}}}, "unknown key 'score.proxy.side'"),
        ({"score": {"proxy": PROXY}, "train": {"start": "continue"}}, "it excludes score.proxy"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tiny_context(tmp_path, changes)


def test_a_proxy_that_cannot_be_built_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    model = {"name": "torchvision.resnet18", "width": None}
    ctx = tiny_context(tmp_path, {"model": model, "score": {"proxy": {"width": 8}}})
    for check in (lambda: check_run(ctx), lambda: check_comparison(ctx), lambda: check_from_afar(ctx.config)):
        with pytest.raises(UsageError, match=r"score\.proxy\.width: torchvision\.resnet18 has a fixed width"):
            check()
