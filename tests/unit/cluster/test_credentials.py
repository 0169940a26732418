"""Credentials for a cluster that are missing, damaged, expired or of a pod."""

from __future__ import annotations

import base64
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from kubernetes.config import incluster_config, kube_config

from lipt.adapters.cluster.api import Cluster
from lipt.adapters.cluster.kubeconfig import proxy_to
from lipt.adapters.cluster.kubeflow import Kubeflow
from lipt.adapters.cluster.patience import FIRST_ANSWER_S, UnreachableError
from lipt.errors import LiptError, UsageError
from tests.certificates import self_signed
from tests.programs import lipt
from tests.unit.cluster.servers import JsonHandler, serving, use_cluster

SECRET = "do-not-print-this"


def _kubeconfig(address: str = "http://127.0.0.1:9", proxy: str = "", **user: Any) -> str:
    cluster = {"server": address} | ({"proxy-url": proxy} if proxy else {})
    return yaml.safe_dump(
        {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


def _program(command: str, *arguments: str) -> str:
    version = "client.authentication.k8s.io/v1"
    return _kubeconfig(exec={"apiVersion": version, "command": command, "args": list(arguments)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "file is empty"),
        (b"a: [b", "the kubeconfig is damaged: ParserError: "),
        (b"hello", "the kubeconfig is damaged: TypeError: "),
        (b"\xff\xfe", "the kubeconfig is damaged: UnicodeDecodeError: "),
        (_program("no-such-program").encode(), "No such file or directory: 'no-such-program'"),
        (_program("sh", "-c", "echo please log in >&2; exit 1").encode(), "please log in"),
    ],
    ids=["empty", "no YAML", "text", "binary", "no program", "program fails"],
)
def test_kubeconfig_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, told: str
) -> None:
    (tmp_path / "config").write_bytes(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    ended = lipt("status", "argo/lipt/x")
    first, remedy = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert first.startswith("lipt: no Kubernetes credentials: ")
    assert told in first
    assert remedy == "  -> set KUBECONFIG, or log in"


class Refusing(JsonHandler):
    """Refuses every token, as an API server does when it has expired."""

    def do_GET(self) -> None:
        self.answer({"message": "Unauthorized"}, 401)


def test_expired_credentials_are_no_missing_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Refusing) as address:
        use_cluster(address, tmp_path, monkeypatch)
        with pytest.raises(
            LiptError, match="does not accept your credentials: Unauthorized\n  -> log in again"
        ) as told:
            Cluster().get("/version")
    assert told.value.exit_code == 2


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (
            {"token": f"{SECRET}\nx"},
            "the credentials for the cluster have a character that cannot be sent\n  -> log in again",
        ),
        (
            {"proxy": f"socks5://me:{SECRET}@127.0.0.1:9"},
            "cannot reach the cluster through a proxy of kind socks5\n  -> use an http:// proxy",
        ),
    ],
    ids=["a token that cannot be sent", "the password of a proxy"],
)
def test_no_error_shows_a_secret(
    contents: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(_kubeconfig(**contents))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    ended = lipt("-v", "status", "argo/lipt/x")
    assert ended.returncode == 2
    assert said in ended.stderr
    assert SECRET not in ended.stderr


class Named(JsonHandler):
    """Answers with the token that came."""

    def do_GET(self) -> None:
        self.answer({"token": self.headers.get("Authorization", "")})


def test_in_a_pod_the_kubeconfig_counts_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "of-the-pod"), ("ca", "a certificate")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "9")
    with serving(Named) as address:
        use_cluster(address, tmp_path, monkeypatch)
        (tmp_path / "config").write_text(_kubeconfig(address, token="of-the-person"))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        assert Cluster().get("/version") == {"token": "Bearer of-the-person"}
        monkeypatch.delenv("KUBECONFIG")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert Cluster(patience_s=0.1).host == "https://127.0.0.1:9"
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").symlink_to(tmp_path / "config")
        assert Cluster().get("/version") == {"token": "Bearer of-the-person"}


class Proxy(JsonHandler):
    """Answers with the address that it was asked for."""

    def do_GET(self) -> None:
        self.answer({"asked": self.path})


@pytest.mark.parametrize("named", ["kubeconfig", "HTTP_PROXY"])
def test_the_cluster_is_reached_through_the_proxy_that_kubectl_uses(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Proxy) as address:
        use_cluster(address, tmp_path, monkeypatch)
        if named == "kubeconfig":
            monkeypatch.setenv("NO_PROXY", "cluster.example")  # concerns the variables only
            (tmp_path / "config").write_text(_kubeconfig("http://cluster.example", proxy=address))
        else:
            monkeypatch.setenv(named, address)
            (tmp_path / "config").write_text(_kubeconfig("http://cluster.example"))
        assert Cluster().get("/version") == {"asked": "http://cluster.example/version"}


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_proxy_may_want_a_login_and_have_no_scheme(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def answer(self: Proxy) -> None:
        asked.append(self.headers.get("Proxy-Authorization"))
        self.answer({})

    with serving(type("Handler", (Proxy,), {"do_GET": answer})) as address:
        use_cluster(address, tmp_path, monkeypatch)
        (tmp_path / "config").write_text(_kubeconfig("http://cluster.example"))
        monkeypatch.setenv("HTTP_PROXY", f"{scheme}me:p%40ss@{address.removeprefix('http://')}")
        Cluster().get("/version")
    assert asked == ["Basic " + base64.b64encode(b"me:p@ss").decode()]


@pytest.mark.parametrize("named", ["kubeconfig", "HTTP_PROXY"])
@pytest.mark.parametrize("endpoint", ["", "http://kubeflow.example"])
def test_kubeflow_is_reached_through_the_same_proxy(
    endpoint: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With KFP_ENDPOINT through that of the environment."""
    asked: list[str] = []
    handler = type("Handler", (Proxy,), {"do_GET": lambda self: (asked.append(self.path), self.answer({}))})
    with serving(handler) as address:
        use_cluster(address, tmp_path, monkeypatch)
        own = named == "kubeconfig" and not endpoint
        (tmp_path / "config").write_text(_kubeconfig("http://cluster.example", proxy=address if own else ""))
        if not own:
            monkeypatch.setenv("HTTP_PROXY", address)
        if endpoint:
            monkeypatch.setenv("KFP_ENDPOINT", endpoint)
        Kubeflow(Cluster(), "vision").client.list_pipelines()
    through = "http://cluster.example/api/v1/namespaces/vision/services/ml-pipeline:http/proxy/"
    assert asked[-1].startswith(f"{endpoint or through}/apis/v2beta1/pipelines")


def test_no_proxy_leads_to_kubeflow_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "kubeflow.example")
    assert proxy_to("http://127.0.0.1:8888") is None
    assert proxy_to("http://kubeflow.example/pipeline") is None
    assert proxy_to("http://other.example") == "http://127.0.0.1:9"


def test_no_proxy_leads_to_a_cluster_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving(Proxy) as address:
        use_cluster(address, tmp_path, monkeypatch)
        assert Cluster().get("/version") == {"asked": "/version"}


def test_an_empty_kubeconfig_variable_counts_as_unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Named) as address:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text(_kubeconfig(address, token="of-the-person"))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", "")  # as the client library reads it then
        assert Cluster().get("/version") == {"token": "Bearer of-the-person"}


def test_a_kubeconfig_that_acts_as_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library would act with all rights of the user."""
    (tmp_path / "config").write_text(_kubeconfig(**{"token": SECRET, "as": "bob"}))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(UsageError, match=r"acts as another user \(as: bob\)"):
        Cluster()


def test_a_certificate_that_does_not_fit_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Named) as server:
        server.socket = self_signed(tmp_path).wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        use_cluster(f"https://127.0.0.1:{server.server_port}", tmp_path, monkeypatch)  # names no authority
        begin = time.monotonic()
        try:
            with pytest.raises(UsageError, match=r"no TLS connection .* \[SSL: CERTIFICATE_VERIFY_FAILED\]"):
                Cluster().get("/version")
        finally:
            server.shutdown()
        assert time.monotonic() - begin < FIRST_ANSWER_S


def test_once_the_server_has_answered_an_error_of_tls_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a load balancer restarts, or a new certificate comes before its authority."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Named) as server:
        server.socket = self_signed(tmp_path).wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        use_cluster(f"https://127.0.0.1:{server.server_port}", tmp_path, monkeypatch)
        cluster = Cluster(patience_s=0.1)
        try:
            cluster._answered = True
            with pytest.raises(UnreachableError, match=r"is unreachable: \[SSL: CERTIFICATE_VERIFY_FAILED\]"):
                cluster.get("/version")
        finally:
            server.shutdown()
