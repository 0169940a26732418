"""What a process imports: torch only for tensors; torch's compiler and torchvision only if a setting asks for them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import yaml

from lipt.config import parse_config
from lipt.pods.boxes import dispatch_box
from tests.programs import run_python
from tests.tiny import TINY
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

COMPILER = {"torch._dynamo", "torch._inductor", "sympy"}
UNUSED = COMPILER | {"torchvision", "sklearn", "scipy", "kfp", "minio"}
TENSORS = {"torch", "numpy", "pyarrow", "PIL"}

PROGRAM = """
import contextlib, io, json, sys
from lipt.cli import main
printed = []
for arguments in json.loads(sys.argv[1]):
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        try:
            main([printed[int(each[1:])] if each.startswith("@") else each for each in arguments])
        except SystemExit as end:
            assert not end.code, arguments
    printed.append(stdout.getvalue().strip().rpartition("\\n")[2])
    print(json.dumps([printed[-1], list(sys.modules)]))
"""


def imports(*verbs: str) -> list[tuple[str, str, set[str]]]:
    """Run command lines one after the other in one new process; @N is the last line that the N-th printed.

    Returns:
        For each: the command line, the last line that it printed, all modules imported by then.
    """
    lines = run_python("-c", PROGRAM, json.dumps([verb.split() for verb in verbs])).splitlines()
    return [(verb, *json.loads(line)) for verb, line in zip(verbs, lines, strict=True)]


def found(done: list[tuple[str, str, set[str]]], unwanted: set[str]) -> dict[str, list[str]]:
    """The unwanted modules, by the command after which they were there."""
    return {verb: sorted(unwanted & set(modules)) for verb, _, modules in done if unwanted & set(modules)}


def configured(folder: Path) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(TINY | {"workspace": str(folder / "runs")}))
    return path


def test_verbs_import_no_compiler_and_reports_no_torch(tmp_path: Path) -> None:
    config = configured(tmp_path)
    labels, logits, subset = (tmp_path / name for name in ("labels.npy", "logits.npy", "subset.parquet"))
    np.save(labels, np.arange(40) % 4)
    np.save(logits, np.eye(40, 4, dtype=np.float32))
    done = imports(
        f"doctor {config}",
        f"run {config} --dry-run",
        f"ingest digits {tmp_path}/chunks",
        f"run {config} --set train.random_baseline=false",
        f"plan {config}",
        f"export {config} --set train.random_baseline=false --to {tmp_path}/list.txt",
        f"select --labels {labels} --logits {logits} --fraction 0.1 --to {subset}",
    )
    assert found(done, UNUSED | {"kubernetes"}) == {}
    assert set(done[-1][2]) >= TENSORS  # of what is imported, all is listed
    shown = imports(f"config show {config}", f"report {config} --set train.random_baseline=false")
    assert shown[-1][1] == done[3][1]
    assert found(shown, UNUSED | {"torch", "pyarrow"}) == {}


def test_boxes_and_worker_pods_import_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    config = json.dumps(TINY | {"workspace": str(tmp_path)}, separators=(",", ":"))
    done = imports(
        f"box dispatch -p config={config} -p image=lipt:1",
        "box worker @0 pretrain --items [0,1,2] --of 1",
        "box pretrain @0",
        "box merge @0",
        "box select @0 --merged @3",
        "box train @0 --merged @3 --subset @4",
    )
    assert found(done, UNUSED | {"kubernetes"}) == {}
    assert done[2][1] == "3 of 3"


BOX = """
import json, os, sys
os.environ |= {"LIPT_POD": "box", "LIPT_NAMESPACE": "vision"}
os.environ.pop("OMP_NUM_THREADS", None)
from lipt.config import parse_config
from lipt.pods.boxes import dispatch_box, select_box
if len(sys.argv) == 2:
    print(dispatch_box(parse_config(json.loads(sys.argv[1])), engine="kubeflow", image="lipt:1", nodes=1, cpu="200m"))
else:
    print(select_box(sys.argv[1], sys.argv[2] or None).ref)
import torch
print(torch.get_num_threads())
"""


def test_boxes_compute_with_as_many_threads_as_they_request_cpus(tmp_path: Path) -> None:
    config = TINY | {"workspace": str(tmp_path), "merge": {"method": "none"}}
    *_, spec, threads = run_python("-c", BOX, json.dumps(config)).splitlines()
    assert threads == "1"
    *_, threads = run_python("-c", BOX, spec, "").splitlines()
    assert threads == "1"


class Api(JsonHandler):
    """A Job whose pods all leave without a result."""

    made = False

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.endswith("/pods/box"):
            self.answer({"metadata": {"name": "box", "uid": "1"}})
        elif path.endswith(("/pods", "/jobs")):
            self.answer({"items": []})
        elif type(self).made:
            conditions = [{"type": "Complete", "status": "True"}]
            self.answer(
                {
                    "metadata": {"name": "job"},
                    "spec": {"completions": 3, "parallelism": 3},
                    "status": {"succeeded": 3, "completedIndexes": "0-2", "conditions": conditions},
                }
            )
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        type(self).made = True
        self.answer(self.body())


def test_the_box_that_waits_for_worker_pods_imports_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse_config(TINY | {"workspace": str(tmp_path / "runs")})
    address = dispatch_box(config, engine="argo", image="lipt:1")
    with serving(Api) as server:
        use_cluster(server, tmp_path, monkeypatch)
        environment = {"KUBECONFIG": str(tmp_path / "config"), "LIPT_POD": "box", "LIPT_NAMESPACE": "vision"}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        ((_, printed, modules),) = imports(f"box pretrain {address}")
    assert Api.made
    assert printed == "0 of 3"
    assert not set(modules) & (UNUSED | TENSORS)
    assert "kubernetes" in modules
