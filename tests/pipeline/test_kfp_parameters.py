"""Pipeline parameters become a configuration: what the run page shows is what runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from components.compare import compare
from components.dispatch import dispatch
from lipt.adapters.cluster.job_manifest import Pods
from lipt.config import Config, load_config, parse_config
from lipt.errors import UsageError
from lipt.pods.spec import PARAMETERS, configure, parameters_of
from lipt.runtime.context import Context
from lipt.stages.dispatch import dispatch as cut_shards
from lipt.stages.ingest import ingest
from pipelines.lipt_pipeline import lipt
from tests.programs import ROOT


def defaults() -> dict[str, Any]:
    parameters = inspect.signature(lipt.pipeline_func).parameters.values()
    return {entry.name: entry.default for entry in parameters if entry.name in PARAMETERS and entry.name != "workspace"}


def test_a_run_with_nothing_but_a_workspace_fits_the_digits(tmp_path: Path) -> None:
    config = configure("", workspace=str(tmp_path), **defaults())
    ctx = Context.of(config)
    assert cut_shards(ctx, ingest(ctx).make()).make().summary["jigsaws"] == config.dispatch.jigsaws


def test_defaults_are_those_of_the_configuration_but_for_the_jigsaws() -> None:
    """Ten workers would need more images than the digits have."""
    assert configure("dispatch: {jigsaws: 10}", **defaults() | {"jigsaws": 10}) == Config()


def test_both_budgets_and_the_rest_arrive() -> None:
    config = configure("select: {balanced: false}", fraction=0.2, epoch_fraction=0.05, width=8, seeds=[4, 5])
    assert (config.select.fraction, config.train.epoch_fraction, config.model.width) == (0.2, 0.05, 8)
    assert (config.select.balanced, config.compare.seeds) == (False, [4, 5])


def test_zero_leaves_a_setting_to_the_configuration() -> None:
    config = configure("{model: {width: 16}, train: {epoch_fraction: 0.05}}", width=0, epoch_fraction=0.0)
    assert (config.model.width, config.train.epoch_fraction) == (16, 0.05)


@pytest.mark.parametrize(
    ("config", "parameters", "message"),
    [
        ("select: {fraction: 0.2}", {"fraction": 0.1}, "parameter fraction is 0.1, config says select.fraction: 0.2"),
        ("seed: 3", {"seed": 0}, "parameter seed is 0, config says seed: 3"),
        ("", {"profile": "paper", "algorithm": "auto"}, "the profile says select.algorithm: 'grand'"),
        ("select: {fractoin: 0.2}", {}, "did you mean 'select.fraction'"),
        ("train: {draw: ordered}", {}, "config, line 1: train.draw: ordered needs train.epoch_fraction"),
        ("select: 0.2", {"fraction": 0.1}, "config, line 1: select is 0.2"),
        ("[1]", {}, "config contains a list"),
        ("a: [", {}, "config is not YAML"),
        ("# A file, pasted into a field of one line. train: {epochs: 3}", {}, "config contains only a comment"),
        ("", {"fraction": 2.0}, "pipeline parameters: select.fraction"),
        ("", {"fraction": 0.1, "epoch_fraction": 0.2}, "an epoch cannot draw more than is kept"),
    ],
)
def test_a_contradiction_or_mistake_is_named(config: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure(config, **parameters)
    assert message in str(caught.value)


@pytest.mark.parametrize("component", [dispatch, compare], ids=lambda component: component.name)
def test_every_parameter_of_a_box_stands_for_a_setting(component: Any) -> None:
    names = {name for name, spec in component.component_spec.inputs.items()}
    assert names - {"config"} <= set(PARAMETERS) | set(Pods.model_fields)


def test_engines_without_types_hand_over_text() -> None:
    as_text = {name: str(value) for name, value in defaults().items()}
    assert configure("dispatch: {jigsaws: 4}", **as_text) == configure("", **defaults())


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"profile": "paper", "dispatch": {"jigsaws": 3}},
        {"profile": "paper", "select": {"algorithm": "glister"}},
        {"profile": "paper", "select": {"algorithm": "auto", "fraction": 0.2}},
        {"model": {"width": 8}, "train": {"epoch_fraction": 0.05}, "select": {"options": {"beta": 0.3}}},
        {"name": "x", "data": {"flip": False}, "merge": {"method": "uniform"}, "seed": 5, "device": "cpu"},
        {"pretrain": {"density": [0.5, 0.6]}, "select": {"algorithm": "random"}, "compare": {"seeds": [1]}},
        {"profile": "ccs"},
        {"profile": "ccs", "train": {"epochs": 3}},
        {"profile": "ccs", "train": {"epochs": 200}},
        {"profile": "ccs", "train": {"steps": 7}},
    ],
)
def test_a_configuration_survives_its_way_through_parameters(document: dict[str, Any]) -> None:
    arrives(parse_config(document))


#: Of the examples, those that are neither a workflow nor a sweep.
CONFIGURATIONS = [
    path
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    if not re.search(r"^(apiVersion|base):", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_an_example_survives_its_way_through_parameters(path: Path) -> None:
    """Its settings may depend on each other, and some are parameters: `train.draw: ordered` needs an epoch fraction."""
    arrives(load_config(str(path)))


def arrives(config: Config) -> None:
    parameters = parameters_of(config, list(inspect.signature(lipt.pipeline_func).parameters))
    assert configure(**parameters) == config
    assert "\n" not in parameters["config"]  # a field of Kubeflow's form would lose it
