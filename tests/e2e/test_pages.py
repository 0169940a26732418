"""The commands of the pages that ask a cluster, word by word, about a finished run. README: test_first_hour.py."""

from __future__ import annotations

import json
import shutil
from copy import copy
from pathlib import Path
from typing import Any

import torch

from tests.docs.pages import script
from tests.e2e.cluster import BUCKET, NAMESPACE, ROOT, STORE, Run, kubectl, shell

CLUSTER, INSTALL = "docs/howto/cluster.md", "docs/howto/cluster-install.md"
RIGHTS, FAILURES = "docs/howto/cluster-rights.md", "docs/howto/cluster-failures.md"
#: Stands for the namespace of a Kubeflow profile; Kubeflow is not installed.
PROFILE = "lipt-profile"
#: The page creates the credentials, and later replaces them.
CREATE = (
    "kubectl -n NAMESPACE create secret generic lipt-s3 \\\n  --from-literal=accesskey=… --from-literal=secretkey=…\n"
)
REPLACE = (
    "kubectl -n NAMESPACE create secret generic lipt-s3 \\\n  --from-literal=accesskey=… --from-literal=secretkey=… \\"
)


def test_a_run_from_a_file_that_computes_nothing_again(
    reference: tuple[Run, dict[str, bytes]], tmp_path: Path, same: Any
) -> None:
    words = {"examples/01-quickstart.yaml": str(reference[0].config), "s3://lipt/demo": f"s3://{BUCKET}/reference"}
    told = shell(script(CLUSTER, "config=", words) + "echo $handle", folder=tmp_path).splitlines()
    run = copy(reference[0])
    run.handle = told[-1]
    same(run)
    assert run.workers() == []
    assert "train ccs           up to date" in run.logs()
    assert any(line.startswith("select ") and "up to date" in line for line in told)
    (page,) = tmp_path.glob("*.html")
    assert (str(page), told[-2]) == (told[-3], "net.pt2")
    files = {"lipt.json": ""}
    network = torch.export.load(tmp_path / "net.pt2", extra_files=files).module()
    shape = json.loads(files["lipt.json"])["shape"]
    assert network(torch.zeros(1, *shape, dtype=torch.uint8)).shape == (1, 10)


def test_doctor(reference: tuple[Run, dict[str, bytes]]) -> None:
    words = {"CONFIG": str(reference[0].config), "NAMESPACE": NAMESPACE, "BUCKET/PREFIX": f"{BUCKET}/reference"}
    one = script(CLUSTER, "lipt doctor", words, without=("lipt doctor CONFIG --engine kubeflow",))
    smaller = {"photos.yaml": words["CONFIG"], "s3://lipt/data/photos": "digits", "gpus=4": "gpus=1"}
    several = script("docs/howto/several-nodes.md", "lipt doctor photos.yaml", smaller, without=("lipt submit",))
    for command in (one, several):
        found = json.loads(shell(f"{command.rstrip()} -o json"))
        assert not [name for name, check in found.items() if check["ok"] is False]
        assert found["pod"]["ok"] is True


def test_a_run_that_lost_no_worker_has_no_event(reference: tuple[Run, dict[str, bytes]]) -> None:
    listed = shell(script("docs/howto/metrics.md", "kubectl -n lipt get events"))
    assert reference[0].workflow not in listed


def test_when_something_fails(reference: tuple[Run, dict[str, bytes]]) -> None:
    run = reference[0]
    told = shell(script(FAILURES, "lipt status", {"HANDLE": run.handle, "NAMESPACE": NAMESPACE}))
    assert "Succeeded" in told
    assert "4 of 4" in told  # of the pretrain box
    assert all(pod["metadata"]["name"] in told for pod in run.workers())


def test_our_store_from_here(reference: tuple[Run, dict[str, bytes]]) -> None:
    code = script(RIGHTS, "kubectl -n lipt-store port-forward")
    until = "until (: < /dev/tcp/localhost/9000) 2> /dev/null; do sleep 1; done"
    listed = shell(f"{code}trap 'kill %1' EXIT\n{until}\nlipt ls s3://{BUCKET}/{reference[0].workspace}")
    assert len(listed.splitlines()) >= 2


def test_people_and_pull_secrets(overlay: None) -> None:
    shell(script(RIGHTS, "kubectl -n NAMESPACE create rolebinding", {"NAMESPACE": NAMESPACE, "NAME": "someone"}))
    asked = ("--as=someone", "auth", "can-i")  # Argo's aggregate roles add the workflows, where they are installed
    for namespace, verb, kind, answer in (
        (NAMESPACE, "delete", "jobs.batch", "yes"),
        (STORE, "list", "pods", "yes"),
        (STORE, "get", "secrets", "no"),
        ("default", "list", "pods", "no"),
    ):
        assert kubectl(*asked, verb, kind, namespace=namespace, check=False).strip() == answer, (namespace, kind)
    shell(script(INSTALL, "kubectl -n NAMESPACE patch serviceaccount", {"NAMESPACE": NAMESPACE, '"NAME"': '"pull"'}))
    account = json.loads(kubectl("get", "serviceaccount", "lipt-worker", "-o", "json"))
    assert account["imagePullSecrets"] == [{"name": "pull"}]
    for namespace in (NAMESPACE, STORE):
        kubectl("delete", "rolebinding", "lipt-users", namespace=namespace)
    kubectl("patch", "serviceaccount", "lipt-worker", "--type=merge", "-p", '{"imagePullSecrets": null}')


def test_a_profile_of_kubeflow(overlay: None, tmp_path: Path) -> None:
    """What the page installs for a profile, changes and removes again. A namespace stands for it, without Kubeflow."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    words = {"NAMESPACE": PROFILE}
    ours = words | {"HOST:PORT": f"minio.{STORE}.svc:9000", "name: STORE": f"name: {STORE}", "PODPORT": "9000"}
    shell(script("README.md", "folder=manifests/overlays/kubeflow", ours), folder=tmp_path)
    overlay_of = tmp_path / "manifests/overlays/kubeflow"
    assert f"\nnamespace: {PROFILE}\n" in (overlay_of / "kustomization.yaml").read_text(encoding="utf-8")
    assert (overlay_of / "s3.yaml").read_bytes() == (ROOT / "manifests/overlays/kubeflow/s3.yaml").read_bytes()
    kubectl("create", "namespace", PROFILE)
    try:
        shell(script(INSTALL, CREATE, words))
        shell(script(INSTALL, "kubectl apply -k manifests/overlays/kubeflow"), folder=tmp_path)
        assert "lipt-s3" in kubectl("get", "configmaps", "-o", "name", namespace=PROFILE)
        made = kubectl("get", "secret", "lipt-s3", "-o", "jsonpath={.metadata.uid}", namespace=PROFILE)
        shell(script(RIGHTS, REPLACE, words | {"secretkey=…": "secretkey=another"}))
        assert kubectl("get", "secret", "lipt-s3", "-o", "jsonpath={.metadata.uid}", namespace=PROFILE) == made
        assert "YW5vdGhlcg==" in kubectl("get", "secret", "lipt-s3", "-o", "json", namespace=PROFILE)
        shell(script(RIGHTS, "kubectl -n NAMESPACE create rolebinding", words, without=("kubectl -n lipt-store",)))
        shell(script(INSTALL, "kubectl -n NAMESPACE get workflows", words, without=("kfp",)), folder=tmp_path)
        kinds = "serviceaccounts,roles,rolebindings,configmaps,secrets,services,networkpolicies"
        assert "lipt" not in kubectl("get", kinds, "-o", "name", namespace=PROFILE)
    finally:
        kubectl("delete", "namespace", PROFILE)
