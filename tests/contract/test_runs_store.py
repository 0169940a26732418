"""The store of a cluster's runs, reached with what the cluster knows. Only `kubectl port-forward` is a program of ours:
the end-to-end tests use the real one."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lipt.adapters.cluster.api import RefusedError
from lipt.adapters.cluster.runs_store import open_store_of_runs
from lipt.errors import TransientError, UsageError
from tests.conftest import S3Server
from tests.unit.cluster.answers import Answers

HOME = "/api/v1/namespaces/vision"
SECRET, CONFIG, SERVICE = (
    f"{HOME}/secrets/lipt-s3",
    f"{HOME}/configmaps/lipt-s3",
    "/api/v1/namespaces/store/services/s3",
)
INSIDE = {"endpoint": "http://s3.store:9000"}
#: The pause never ends by itself: whoever starts it must stop it.
FORWARDS = "echo Forwarding from 127.0.0.1:{port} '->' 9000; echo $$ $* > {told}; exec sleep 1000"


@pytest.fixture
def cluster(s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """A cluster whose runs use the server of this session; this machine has no variables of its own."""
    for name in ("LIPT_S3_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    keys = {"accesskey": s3_server.access_key, "secretkey": s3_server.secret_key}
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in keys.items()}
    return Answers({SECRET: {"data": encoded}, CONFIG: {"data": {"endpoint": s3_server.url}}})


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a program of that name."""

    def install(script: str) -> None:
        program = tmp_path / "bin/kubectl"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return install


def use(cluster: Answers, uri: str) -> bytes:
    before = dict(os.environ)
    with open_store_of_runs(cluster, "vision", "lipt-s3", uri) as store:
        assert dict(os.environ) == before
        store.write("x", b"1", kind="other")
        return store.read("x", kind="other")


def test_an_address_outside_the_cluster_is_used_as_it_is(
    cluster: Answers, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other\ncredentials")  # refused, if it were read
    assert use(cluster, s3) == b"1"


def test_a_service_is_reached_through_a_tunnel_that_ends_with_the_block(
    cluster: Answers, s3: str, s3_server: S3Server, kubectl: Callable[[str], None], tmp_path: Path
) -> None:
    told = tmp_path / "told"
    kubectl(FORWARDS.format(port=urlsplit(s3_server.url).port, told=told))
    cluster.documents |= {CONFIG: {"data": INSIDE}, SERVICE: {}}
    assert use(cluster, s3) == b"1"
    process, arguments = told.read_text().strip().split(" ", 1)
    assert arguments == "-n store port-forward --address 127.0.0.1 service/s3 :9000"
    assert not Path(f"/proc/{process}").exists()


def test_a_tunnel_that_does_not_stand_says_why(cluster: Answers, s3: str, kubectl: Callable[[str], None]) -> None:
    kubectl("echo no pod of this service runs >&2; exit 1")
    cluster.documents |= {CONFIG: {"data": INSIDE}, SERVICE: {}}
    with pytest.raises(TransientError, match="service/s3: no pod of this service runs"):
        use(cluster, s3)


def test_without_kubectl(cluster: Answers, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    cluster.documents |= {CONFIG: {"data": INSIDE}, SERVICE: {}}
    with pytest.raises(UsageError, match=r"kubectl, which leads to s3\.store, is not installed"):
        use(cluster, s3)


def test_the_variables_of_this_machine_come_first(
    cluster: Answers, s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIPT_S3_ENDPOINT", s3_server.url)
    with pytest.raises(UsageError, match="AWS_ACCESS_KEY_ID"):
        use(cluster, s3)


def test_the_remedies_name_what_the_pods_use(cluster: Answers, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of this machine do not count."""
    monkeypatch.setenv("LIPT_S3_RETRY_S", "0")
    monkeypatch.setenv("LIPT_S3_ENDPOINT", "")
    cluster.documents[CONFIG] = {"data": {"endpoint": "http://127.0.0.1:9"}}
    with pytest.raises(TransientError, match=r"-> check .* \(`endpoint` in the ConfigMap of -p s3=NAME\) is correct"):
        use(cluster, s3)


def test_what_is_missing_in_the_cluster_is_named(cluster: Answers, s3: str, tmp_path: Path) -> None:
    assert use(Answers(), str(tmp_path)) == b"1"  # a folder needs none of it
    for change, message in [
        ({SECRET: {"data": {"accesskey": "eA=="}}}, "lipt-s3 in vision has no key 'secretkey'"),
        (
            {SECRET: {"data": {"accesskey": "eA==", "secretkey": "/w=="}}},
            "Secret lipt-s3 in vision has a key that is no text",
        ),
        ({SECRET: RefusedError("secrets: forbidden", "")}, "secrets: forbidden"),
        ({CONFIG: {}}, "lipt-s3 in vision has no key 'endpoint'"),
    ]:
        cluster.documents |= change
        with pytest.raises(UsageError, match=message) as found:
            use(cluster, s3)
        assert "LIPT_S3_ENDPOINT" in str(found.value.remedy)
        cluster.documents[SECRET] = {"data": {"accesskey": "eA==", "secretkey": "eA=="}}
