"""Pods on AWS: the keys come from the role of their account. MinIO lends keys in the same way as AWS."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from lipt.adapters.store import open_store
from lipt.errors import TransientError, UsageError
from tests.conftest import MinioProcess
from tests.unit.cluster.servers import JsonHandler, serving

CLIENT = "lipt"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(key: RSAPrivateKey, claims: dict[str, object]) -> str:
    """A token as Kubernetes writes it into the file of a pod."""
    head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
    text = ".".join(base64url(json.dumps(part).encode()) for part in (head, claims))
    return f"{text}.{base64url(key.sign(text.encode(), PKCS1v15(), SHA256()))}"


@pytest.fixture(scope="module")
def key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def issuer(key: RSAPrivateKey) -> Iterator[str]:
    """The address at which an issuer of tokens shows its public key, as the API server of a cluster does."""
    numbers = key.public_key().public_numbers()
    shown = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": base64url(numbers.n.to_bytes(256, "big"))}
    shown["e"] = base64url(numbers.e.to_bytes(3, "big"))

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = f"http://127.0.0.1:{self.server.server_port}"
            answer = {"keys": [shown]} if self.path == "/keys" else {"issuer": url, "jwks_uri": f"{url}/keys"}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def pod(
    minio_program: str, issuer: str, key: RSAPrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The token of a pod whose account may use the store; the environment is that of such a pod."""
    monkeypatch.setenv("MINIO_IDENTITY_OPENID_CONFIG_URL", f"{issuer}/.well-known/openid-configuration")
    monkeypatch.setenv("MINIO_IDENTITY_OPENID_CLIENT_ID", CLIENT)
    process = MinioProcess(minio_program, tmp_path / "minio")
    process.start()
    process.server.client().make_bucket(bucket_name="bucket")
    token = tmp_path / "token"
    claims = {"iss": issuer, "aud": CLIENT, "sub": "system:serviceaccount:lipt:lipt-worker", "policy": "readwrite"}
    token.write_text(signed(key, claims | {"exp": int(time.time()) + 3600}))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LIPT_S3_ENDPOINT", process.server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", process.server.url)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    yield token
    process.stop()


def test_a_pod_without_keys_reads_and_writes_as_its_role(pod: Path) -> None:
    store = open_store("s3://bucket/of-a-role")
    store.write("a", b"of a role", kind="data")
    pod.write_text("no token")  # the keys are lent for an hour
    assert store.read("a", kind="data") == b"of a role"


def test_keys_of_the_environment_come_before_the_role(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nobodys-key")
    with pytest.raises(UsageError, match="refuses the credentials"):
        open_store("s3://bucket/of-a-role").write("a", b"", kind="data")


def test_a_refused_role_is_named_and_its_token_is_not(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod.write_text("a-token-that-nobody-signed")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1234:role/lipt")
    with pytest.raises(UsageError, match=r"no keys for arn:aws:iam::1234:role/lipt \(HTTP 400\)") as caught:
        open_store("s3://bucket/of-a-role").write("a", b"", kind="data")
    assert caught.value.__suppress_context__
    assert "nobody-signed" not in str(caught.value)


def test_a_pod_that_cannot_reach_aws_says_so(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    monkeypatch.setenv("LIPT_S3_RETRY_S", "0")
    with pytest.raises(TransientError, match=r"AWS did not answer .*\n  -> let pods reach it"):
        open_store("s3://bucket/of-a-role").write("a", b"", kind="data")


@pytest.fixture
def lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a pod with a role; its store is not there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "token").write_text("a token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("LIPT_S3_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("LIPT_S3_RETRY_S", "0")


class Busy(JsonHandler):
    """Answers as AWS does that has too much to do."""

    status, code = 503, "busy"

    def do_POST(self) -> None:
        text = f"<ErrorResponse><Error><Type>Sender</Type><Code>{self.code}</Code></Error></ErrorResponse>"
        self.answer_text(text, self.status, kind="text/xml")


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (503, "ServiceUnavailable", "HTTP 503"),
        (400, "Throttling", "Throttling"),
        (400, "RequestLimitExceeded", "RequestLimitExceeded"),
        (400, "IDPCommunicationError", "IDPCommunicationError"),
    ],
)
def test_aws_that_answers_with_an_error_of_its_own_is_asked_again(
    lent: None, monkeypatch: pytest.MonkeyPatch, status: int, code: str, told: str
) -> None:
    with serving(type("Handler", (Busy,), {"status": status, "code": code})) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
        with pytest.raises(
            TransientError, match=rf"AWS cannot lend .* at the moment \({told}\)\n  -> run the same command again"
        ):
            open_store("s3://bucket/of-a-role").write("a", b"", kind="data")


def test_a_refusal_of_aws_is_not_taken_for_a_busy_one(lent: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(type("Handler", (Busy,), {"status": 400, "code": "InvalidIdentityToken"})) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
        with pytest.raises(UsageError, match=r"AWS gives no keys for the pod's account \(HTTP 400\)"):
            open_store("s3://bucket/of-a-role").write("a", b"", kind="data")


@pytest.mark.parametrize("variable", ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"])
def test_a_token_that_is_not_there_is_said(pod: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, str(pod.with_name("missing")))
    with pytest.raises(UsageError, match=rf"{variable}: cannot read .*/missing\n  -> start the pod again"):
        open_store("s3://bucket/of-a-role").write("a", b"", kind="data")
