"""The workflow for Argo alone and the Kubeflow pipeline are the same run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lipt.cli import cli
from lipt.pods.spec import RunSpec
from pipelines.argo import _SOON_ELSEWHERE
from tests.programs import lipt
from tests.tiny import TINY

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / "manifests/base/workflowtemplate.yaml").read_text(encoding="utf-8"))["spec"]
KUBEFLOW, PLATFORM = yaml.safe_load_all((ROOT / "pipelines/lipt.yaml").read_text(encoding="utf-8"))
TASKS = KUBEFLOW["root"]["dag"]["tasks"]
EXECUTORS = KUBEFLOW["deploymentSpec"]["executors"]
TEMPLATES = {template["name"]: template for template in WORKFLOW["templates"]}
BOXES = [task["name"] for task in TEMPLATES["lipt"]["dag"]["tasks"]]


def test_same_parameters_with_the_same_defaults_and_descriptions() -> None:
    expected = KUBEFLOW["root"]["inputDefinitions"]["parameters"]
    found = {entry["name"]: entry for entry in WORKFLOW["arguments"]["parameters"]}
    assert set(found) == set(expected)
    for name, spec in expected.items():
        assert found[name]["description"] == spec["description"]
        default = spec.get("defaultValue")
        assert ("value" in found[name]) == (default is not None), name
        if default is not None:
            value = found[name]["value"]
            assert (value if isinstance(default, str) else json.loads(value)) == default, name


def test_what_a_model_of_ones_own_prints_is_no_part_of_the_result_of_a_box(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import os\nfrom torchvision.models import resnet18\nprint('in Python')\nos.system('echo in a child')\n"
        "def net(num_classes): return resnet18(num_classes=num_classes)\n"
    )
    settings = TINY | {"workspace": str(tmp_path / "w"), "model": {"name": "noisy:net", "width": None}}
    settings |= {"select": {"algorithm": "stratified", "fraction": 0.1}}  # no model is trained
    config = json.dumps(settings, separators=(",", ":"))
    ended = lipt("box", "dispatch", "-p", f"config={config}", "-p", "image=lipt:1", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"file://\S+/specs/[0-9a-f]{16}\.json\n", ended.stdout)
    assert "in Python\n" in ended.stderr
    assert "in a child\n" in ended.stderr


def test_same_boxes_in_the_same_order() -> None:
    assert set(BOXES) == set(TASKS)
    order = {task["name"]: set(task.get("dependencies", [])) for task in TEMPLATES["lipt"]["dag"]["tasks"]}

    def before(graph: dict[str, set[str]], name: str) -> set[str]:
        return graph[name].union(*(before(graph, other) for other in graph[name]))

    kubeflow = {name: set(task.get("dependentTasks", [])) for name, task in TASKS.items()}
    assert {name: before(order, name) for name in order} == {name: before(kubeflow, name) for name in kubeflow}


@pytest.mark.parametrize("box", BOXES)
def test_same_inputs_image_and_resources_and_no_deadline(box: str) -> None:
    template, executor = TEMPLATES[box], EXECUTORS[f"exec-{box}"]["container"]
    inputs = KUBEFLOW["components"][f"comp-{box}"].get("inputDefinitions", {})
    given = set(inputs.get("artifacts", {})) | set(inputs.get("parameters", {}))
    if box == "dispatch":
        pairs = template["container"]["args"][3::2]
        assert pairs == [f"{name}={{{{workflow.parameters.{name}}}}}" for name in sorted(given)]
    else:
        assert {entry["name"] for entry in template["inputs"]["parameters"]} == given
    assert template["container"]["image"] == "{{workflow.parameters.image}}"
    assert "pipelinechannel--image" in executor["image"]
    patch = re.sub(r"{{workflow\.parameters\.(\w+)}}", r"<\1>", template["podSpecPatch"])
    patch = patch.replace(_SOON_ELSEWHERE, "<tolerations>")
    assert _SOON_ELSEWHERE.count("(") == _SOON_ELSEWHERE.count(")")
    patch = json.loads(re.sub(r": <(\w+)>", r': "<\1>"', patch))
    (container,) = patch["containers"]

    def same(argo: str, kubeflow: str) -> bool:
        name = re.search(r"pipelinechannel--(\w+)", kubeflow)
        return argo == (f"<{name[1]}>" if name else kubeflow)

    resources = executor["resources"]
    assert same(container["resources"]["requests"]["cpu"], resources["resourceCpuRequest"])
    assert same(container["resources"]["requests"]["memory"], resources["resourceMemoryRequest"])
    assert same(container["resources"]["limits"]["memory"], resources["resourceMemoryLimit"])
    if "accelerator" in resources:
        (resource,) = set(container["resources"]["limits"]) - {"memory"}
        assert same(resource, resources["accelerator"]["resourceType"])
        gpus = container["resources"]["limits"][resource]
        if box in ("dispatch", "train"):  # with several nodes their pods train; Kubeflow has no such expressions
            assert gpus == "{{=asInt(workflow.parameters.train_nodes) > 1 ? '0' : workflow.parameters.gpus}}"
            gpus = "<gpus>"
        assert same(gpus, resources["accelerator"]["resourceCount"])
    else:
        assert container["resources"]["limits"].keys() == {"memory"}
    assert (patch["tolerations"], patch["nodeSelector"]) == ("<tolerations>", "<node_selector>")
    placed = PLATFORM["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{box}"]
    assert "tolerations" in str(placed["tolerations"])
    assert "node_selector" in str(placed["nodeSelector"])
    assert "activeDeadlineSeconds" not in template


@pytest.mark.parametrize("box", BOXES)
def test_same_environment(box: str) -> None:
    platform = PLATFORM["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{box}"]
    expected = {pair["envVar"] for source in platform["secretAsEnv"] for pair in source["keyToEnv"]}
    expected |= {pair["envVar"] for source in platform["configMapAsEnv"] for pair in source["keyToEnv"]}
    expected |= {entry["name"] for entry in platform["fieldPathAsEnv"]}
    expected |= {entry["name"] for entry in EXECUTORS[f"exec-{box}"]["container"]["env"]}
    assert {entry["name"] for entry in TEMPLATES[box]["container"]["env"]} == expected


def substituted(text: str, values: dict[str, str]) -> str:
    """What Argo makes of a text."""
    return re.sub(r"{{(.+?)}}", lambda match: values[match[1].split(".")[-1]], text)


def test_the_commands_are_those_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every box's command line, with values in place, run one after the other as Argo would."""
    monkeypatch.delenv("LIPT_POD", raising=False)
    values = {entry["name"]: entry.get("value", "") for entry in WORKFLOW["arguments"]["parameters"]}
    values |= {"workspace": str(tmp_path / "w"), "width": "4", "jigsaws": "3", "passes": "2", "epochs": "2"}
    rest = {key: value for key, value in TINY.items() if key in ("name", "device", "initialise", "merge")}
    rest |= {"dispatch": {"batch_size": 32}, "train": {"batch_size": 32}, "data": {"flip": False}}
    values["config"] = yaml.safe_dump(rest)
    names = {"dispatch": "spec", "merge": "merged", "select": "subset"}
    for box in BOXES:
        arguments = [substituted(text, values) for text in TEMPLATES[box]["container"]["args"]]
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        values[names.get(box, box)] = result.stdout.strip()  # Argo's outputs.result
    assert Path(values["train"].removeprefix("file://")).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert RunSpec.load(values["spec"]).engine == "argo"
