"""The commands of the pages that ask a cluster, word by word, about a finished run. README: test_first_hour.py."""

from __future__ import annotations

import json
import re
from copy import copy
from pathlib import Path
from typing import Any

from tests.docs.pages import script
from tests.e2e.cluster import BUCKET, NAMESPACE, STORE, Run, kubectl, shell

KUBEFLOW, CLUSTER = "docs/explanation/kubeflow.md", "docs/howto/cluster.md"


def test_a_run_from_a_file_that_computes_nothing_again(
    reference: tuple[Run, dict[str, bytes]], tmp_path: Path, same: Any
) -> None:
    words = {"examples/01-quickstart.yaml": str(reference[0].config), "s3://lipt/demo": f"s3://{BUCKET}/reference"}
    told = shell(script(KUBEFLOW, "config=", words) + "echo $handle", folder=tmp_path).splitlines()
    run = copy(reference[0])
    run.handle = told[-1]
    same(run)
    assert run.workers() == []
    assert "train ccs         up to date" in run.logs()
    assert any(line.startswith("select ") and "up to date" in line for line in told)
    (page,) = tmp_path.glob("*.html")
    assert page.name == told[-2]


def test_doctor(reference: tuple[Run, dict[str, bytes]]) -> None:
    words = {"CONFIG": str(reference[0].config), "NAMESPACE": NAMESPACE, "BUCKET/PREFIX": f"{BUCKET}/reference"}
    argo, kubeflow = re.split(r"\n(?=lipt doctor)", script(CLUSTER, "lipt doctor", words).strip())
    assert "--engine kubeflow" in kubeflow  # not installed here
    found = json.loads(shell(f"{argo} -o json"))
    assert not [name for name, check in found.items() if check["ok"] is False]
    assert found["pod"]["ok"] is True


def test_when_something_fails(reference: tuple[Run, dict[str, bytes]]) -> None:
    run = reference[0]
    told = shell(script(CLUSTER, "lipt status", {"HANDLE": run.handle, "NAMESPACE": NAMESPACE}))
    assert "Succeeded" in told
    assert "4 of 4" in told  # of the pretrain box
    assert all(pod["metadata"]["name"] in told for pod in run.workers())


def test_our_store_from_here(reference: tuple[Run, dict[str, bytes]]) -> None:
    code = script(CLUSTER, "kubectl -n lipt-store port-forward")
    until = "until (: < /dev/tcp/localhost/9000) 2> /dev/null; do sleep 1; done"
    listed = shell(f"{code}trap 'kill %1' EXIT\n{until}\nlipt ls s3://{BUCKET}/{reference[0].workspace}")
    assert len(listed.splitlines()) >= 2


def test_people_and_pull_secrets(overlay: None) -> None:
    shell(script(CLUSTER, "kubectl -n NAMESPACE create rolebinding", {"NAMESPACE": NAMESPACE, "NAME": "someone"}))
    asked = ("--as=someone", "auth", "can-i")  # Argo's aggregate roles add the workflows, where they are installed
    for namespace, verb, kind, answer in (
        (NAMESPACE, "delete", "jobs.batch", "yes"),
        (STORE, "list", "pods", "yes"),
        (STORE, "get", "secrets", "no"),
        ("default", "list", "pods", "no"),
    ):
        assert kubectl(*asked, verb, kind, namespace=namespace, check=False).strip() == answer, (namespace, kind)
    shell(script(CLUSTER, "kubectl -n NAMESPACE patch serviceaccount", {"NAMESPACE": NAMESPACE, '"NAME"': '"pull"'}))
    account = json.loads(kubectl("get", "serviceaccount", "lipt-worker", "-o", "json"))
    assert account["imagePullSecrets"] == [{"name": "pull"}]
    for namespace in (NAMESPACE, STORE):
        kubectl("delete", "rolebinding", "lipt-users", namespace=namespace)
    kubectl("patch", "serviceaccount", "lipt-worker", "--type=merge", "-p", '{"imagePullSecrets": null}')
