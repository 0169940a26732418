"""What a reader of the README does, word by word, from an empty cluster to a report."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path

from tests.docs.pages import blocks
from tests.e2e.cluster import IMAGE, NAMESPACE, ROOT, kubectl, shell

#: `tests.e2e.prepare` does these with the cluster at hand.
PREPARED = f"""kind create cluster
make image VARIANT=cpu
kind load docker-image {IMAGE}
kubectl create namespace argo"""


def test_from_the_readme_to_a_report(tmp_path: Path) -> None:
    (block,) = [one for one in blocks("bash") if one.page == "README.md" and "kind create cluster" in one.code]
    code = re.sub(r" +#.*", "", block.code.replace("\\\n ", ""))
    prepared, argo, rest = code.partition("kubectl apply --server-side -n argo -f")
    assert prepared.strip() == PREPARED
    address, *lines = rest.strip().splitlines()
    assert address.strip() in (ROOT / "tests/e2e/kind.sh").read_text(encoding="utf-8")
    apply, wait, create, watch, install, report = lines
    assert (argo != "", install) == (True, "pip install '.[kubeflow]'")

    shell(apply)
    shell(wait)
    name = shell(create).split()[0].rpartition("/")[2]
    labels = json.loads(kubectl("get", "namespace", NAMESPACE, "-o", "json"))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert followed(watch, name) == "Succeeded"
    told = shell(report.replace("NAME", name), folder=tmp_path)
    (page,) = tmp_path.glob("*.html")
    assert told.splitlines()[-1] == page.name
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
