"""What a reader of the README does, word by word, from an empty cluster to a report."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path

from tests.docs.pages import script
from tests.e2e.cluster import NAMESPACE, kubectl, shell

#: `tests.e2e.prepare` does these with the cluster at hand; the page tests compare them with its driver, kind.sh.
PREPARED = (
    "kind create cluster",
    "make image VARIANT=cpu",
    "kind load docker-image",
    "kubectl create namespace argo",
    "kubectl apply --server-side -n argo",
    "pip install '.[kubeflow]'",
)


def test_from_the_readme_to_a_report(tmp_path: Path) -> None:
    code = script("README.md", "kind create cluster", without=PREPARED)
    apply, wait, create, watch, report = re.sub(r" +#.*", "", code).splitlines()
    shell(apply)
    shell(wait)
    name = shell(create).split()[0].rpartition("/")[2]
    labels = json.loads(kubectl("get", "namespace", NAMESPACE, "-o", "json"))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert followed(watch, name) == "Succeeded"
    told = shell(report.replace("NAME", name), folder=tmp_path)
    (page,) = tmp_path.glob("*.html")
    assert told.splitlines()[-1] == str(page)
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    nodes = json.loads(kubectl("get", "wf", name, "-o", "json"))["status"]["nodes"]
    outputs = {entry["name"]: entry["value"] for entry in nodes[name]["outputs"]["parameters"]}
    assert outputs["verdict"].split("**")[1] in told
    done = [node["displayName"] for node in nodes.values() if node["type"] == "Retry"]
    assert sorted(done) == ["dispatch", "merge", "pretrain", "select", "train"]


def followed(watch: str, name: str) -> str:
    """The last phase of a run, as the reader sees it; who would stop looking now."""
    with subprocess.Popen(f"exec {watch}", shell=True, stdout=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(900, process.terminate)
        limit.start()
        assert process.stdout
        phases = (words[1] for line in process.stdout if (words := line.split())[:1] == [name] and len(words) > 1)
        last = next((phase for phase in phases if phase in ("Succeeded", "Failed", "Error")), "")
        process.terminate()
        limit.cancel()
    return last
