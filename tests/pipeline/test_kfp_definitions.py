"""What is uploaded: the committed YAML is what the sources compile to, and its parameters are a frozen interface."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lipt import __version__
from pipelines.__main__ import PIPELINES, WORKFLOW_TEMPLATE

ROOT = Path(__file__).parents[2]
COMPONENTS = sorted((ROOT / "components").glob("[!_]*.py"))

RUN = {
    "workspace": ("STRING", None),
    "data": ("STRING", "digits"),
    "model": ("STRING", "resnet18"),
    "width": ("NUMBER_INTEGER", 0),
    "algorithm": ("STRING", "auto"),
    "fraction": ("NUMBER_DOUBLE", 0.05),
    "epoch_fraction": ("NUMBER_DOUBLE", 0.0),
    "jigsaws": ("NUMBER_INTEGER", 4),
    "batches": ("NUMBER_INTEGER", 1),
    "passes": ("NUMBER_INTEGER", 5),
    "epochs": ("NUMBER_INTEGER", 200),
    "profile": ("STRING", "robust"),
    "config": ("STRING", ""),
}
POD = {
    "image": ("STRING", f"lipt:{__version__}"),
    "cpu": ("STRING", "1"),
    "memory": ("STRING", "2Gi"),
    "s3": ("STRING", "lipt-s3"),
}
PLACEMENT = {"tolerations": ("LIST", []), "node_selector": ("STRUCT", {})}
GPUS = {"gpus": ("STRING", "0"), "gpu_resource": ("STRING", "nvidia.com/gpu")}
INTERFACE = {
    "lipt.yaml": RUN
    | POD
    | PLACEMENT
    | GPUS
    | {
        "seed": ("NUMBER_INTEGER", 0),
        "random_baseline": ("BOOLEAN", True),
        "nodes": ("NUMBER_INTEGER", 0),
        "deadline": ("NUMBER_INTEGER", 720),
        "grace": ("NUMBER_DOUBLE", 3.0),
        "train_nodes": ("NUMBER_INTEGER", 1),
        "queue": ("STRING", ""),
        "priority": ("STRING", ""),
    },
    "compare.yaml": RUN | POD | PLACEMENT | GPUS | {"seeds": ("LIST", [0, 1, 2])},
    "ingest.yaml": POD
    | PLACEMENT
    | {
        "store": ("STRING", None),
        "data": ("STRING", "digits"),
        "claim": ("STRING", ""),
        "chunk_mb": ("NUMBER_DOUBLE", 64.0),
        "shuffle_seed": ("NUMBER_INTEGER", 0),
        "config": ("STRING", ""),
    },
}


def documents(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(pipeline, platform) of a committed file."""
    pipeline, platform = yaml.safe_load_all((ROOT / "pipelines" / name).read_text(encoding="utf-8"))
    return pipeline, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


def test_the_committed_yaml_is_what_compiles(tmp_path: Path) -> None:
    names = [WORKFLOW_TEMPLATE, *(f"pipelines/{name}" for name in PIPELINES)]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    # In a process of its own, as `make pipelines` does: other libraries change how PyYAML writes.
    program = "import pathlib, sys; from pipelines.__main__ import compile_all; compile_all(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=ROOT)
    for name in names:
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes(), f"{name} is stale: run `make pipelines`"


@pytest.mark.parametrize("name", PIPELINES)
def test_parameters_are_frozen_and_described(name: str) -> None:
    parameters = documents(name)[0]["root"]["inputDefinitions"]["parameters"]
    assert {key: (entry["parameterType"], entry.get("defaultValue")) for key, entry in parameters.items()} == INTERFACE[
        name
    ]
    assert [key for key, entry in parameters.items() if not entry.get("description")] == []


@pytest.mark.parametrize("name", PIPELINES)
def test_every_box_is_a_pod_that_can_reach_its_store_and_is_repeated(name: str) -> None:
    pipeline, platform = documents(name)
    for executor in pipeline["deploymentSpec"]["executors"]:
        settings = platform[executor]
        # A box of `lipt` may wait while its worker pods are queued, which counts against no deadline.
        assert ("activeDeadlineSeconds" in settings) == (name != "lipt.yaml")
        assert [pair["envVar"] for pair in settings["secretAsEnv"][0]["keyToEnv"]] == [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
        ]
        assert settings["configMapAsEnv"][0]["keyToEnv"][0] == {
            "configMapKey": "endpoint",
            "envVar": "LIPT_S3_ENDPOINT",
        }
        assert {mount["mountPath"] for mount in settings["emptyDirMounts"]} == {"/dev/shm", "/tmp"}
        assert settings["securityContext"] == {"runAsNonRoot": True}  # Pod Security `restricted` wants it
    for _, task in executor_tasks(pipeline):
        assert task["retryPolicy"]["maxRetryCount"] == 2
        assert not task["cachingOptions"].get("enableCache")


@pytest.mark.parametrize("name", PIPELINES)
def test_what_a_pod_is_given_at_run_time_reaches_it(name: str) -> None:
    """KFP compiles a resource whose parameter a loop does not hand down, and its driver then fails."""
    pipeline, platform = documents(name)
    for scope, task in executor_tasks(pipeline):
        executor = pipeline["components"][task["componentRef"]["name"]]["executorLabel"]
        container = pipeline["deploymentSpec"]["executors"][executor]["container"]
        given = yaml.safe_dump([container["image"], container["resources"]])
        used = re.findall(r"inputs\.parameters\[''(.+?)''\]", given)
        assert used
        for parameter in used:
            assert task["inputs"]["parameters"][parameter]["componentInputParameter"] in scope
        of_its_pod = re.findall(r"componentInputParameter: (\S+)", yaml.safe_dump(platform[executor]))
        assert of_its_pod
        assert set(of_its_pod) <= scope
        assert "pipelinechannel--image" in container["image"]
        assert container["resources"]["resourceMemoryLimit"]


def executor_tasks(pipeline: dict[str, Any]) -> list[tuple[set[str], dict[str, Any]]]:
    """(parameters of the enclosing DAG, task) of every task that becomes a pod."""
    dags = [pipeline["root"], *(entry for entry in pipeline["components"].values() if "dag" in entry)]
    return [
        (set(dag["inputDefinitions"]["parameters"]), task)
        for dag in dags
        for task in dag["dag"]["tasks"].values()
        if "executorLabel" in pipeline["components"][task["componentRef"]["name"]]
    ]


def test_five_boxes() -> None:
    pipeline, platform = documents("lipt.yaml")
    assert set(platform) == {f"exec-{box}" for box in ("dispatch", "pretrain", "merge", "select", "train")}
    assert len(pipeline["root"]["dag"]["tasks"]) == 5


@pytest.mark.parametrize("path", COMPONENTS, ids=lambda path: path.stem)
def test_a_body_is_short_and_carries_all_it_uses(path: Path) -> None:
    """The pod sees the body alone: a name of the module around it would be a NameError there."""
    functions = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    assert len(functions) == 1
    function = functions[0]
    body = function.body[1:]  # after the docstring
    nodes = [node for statement in body for node in ast.walk(statement)]
    assert len([node for node in nodes if isinstance(node, ast.stmt)]) <= 10
    bound = {argument.arg for argument in function.args.args}
    bound |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    assert {node.id for node in names} - bound - set(dir(builtins)) == set()

    signature = [node for part in (function.args, function.returns) if part for node in ast.walk(part)]
    used = {node.id for node in signature if isinstance(node, ast.Name)}
    assert used - set(dir(builtins)) <= {"dsl"}  # KFP's header imports it
