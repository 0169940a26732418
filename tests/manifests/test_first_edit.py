"""What README writes into the overlay for Kubeflow."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import yaml

from tests.docs.pages import ROOT, script


def test_the_edits_of_the_readme_reach_their_files(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "manifests/overlays/kubeflow", tmp_path / "manifests/overlays/kubeflow")
    words = {"HOST:PORT": "s3.storage:9001", "name: STORE": "name: storage", "PODPORT": "8333", "NAMESPACE": "team-a"}
    edits = script("README.md", "folder=manifests/overlays/kubeflow", words)
    subprocess.run(["bash", "-euc", edits], cwd=tmp_path, check=True)
    address, rule = yaml.safe_load_all((folder / "s3.yaml").read_text(encoding="utf-8"))
    assert address["data"]["endpoint"] == "http://s3.storage:9001"
    (egress,) = rule["spec"]["egress"]
    assert egress["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "storage"}}}]
    assert [each["port"] for each in egress["ports"]] == [8333]
    assert yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["namespace"] == "team-a"
