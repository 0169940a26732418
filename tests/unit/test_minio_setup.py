"""The set-up of a fresh MinIO: what its user may do, and what is said when it cannot be set up."""

from __future__ import annotations

import socket
from base64 import b64decode, b64encode
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from minio import Minio
from minio.error import S3Error

from lipt.adapters import minio_setup as setup
from lipt.adapters.cluster.api import MissingError
from lipt.adapters.minio_setup import Login, login_of, prepare
from lipt.adapters.store import open_store
from lipt.errors import RunError, TransientError, UsageError

if TYPE_CHECKING:
    from tests.conftest import MinioProcess

USER = Login("lipt", "the-password-of-the-user")


class Secrets:
    """The API's Secrets, in memory; it answers with `data`, as Kubernetes does."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}

    def get(self, path: str, **query: str) -> dict[str, Any]:
        if path not in self.secrets:
            raise MissingError(path)
        return self.secrets[path]

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        data = {key: b64encode(text.encode()).decode() for key, text in body["stringData"].items()}
        self.secrets[f"{path}/{body['metadata']['name']}"] = {"data": data}
        return {"data": data}


def client_of(server: MinioProcess, login: Login) -> Minio:
    return Minio(
        endpoint=server.server.url.removeprefix("http://"),
        access_key=login.user,
        secret_key=login.password,
        secure=False,
        region="us-east-1",
    )


def root_of(server: MinioProcess) -> Login:
    return Login(server.server.access_key, server.server.secret_key)


def test_the_user_may_use_her_bucket_and_nothing_else(own_minio: MinioProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(own_minio.server.url, root=root_of(own_minio), user=USER, bucket="lipt")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER.user)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", USER.password)
    store = open_store("s3://lipt/some/prefix")
    store.write("x", b"12345", kind="other")
    assert (store.read("x", kind="other", start=1, length=2), store.size("x"), store.list()) == (b"23", 5, ["x"])
    assert (store.size("missing"), store.delete("x"), store.list()) == (None, None, [])

    user = client_of(own_minio, USER)
    forbidden = {
        "make a bucket": lambda: user.make_bucket(bucket_name="another"),
        "list another": lambda: list(user.list_objects(bucket_name="bucket")),
        "read another": lambda: user.get_object(bucket_name="bucket", object_name="x"),
        "write another": lambda: user.put_object(bucket_name="bucket", object_name="x", data=BytesIO(), length=0),
        "remove the bucket": lambda: user.remove_bucket(bucket_name="lipt"),
        "open the bucket": lambda: user.set_bucket_policy(bucket_name="lipt", policy="{}"),
    }
    client_of(own_minio, root_of(own_minio)).put_object(
        bucket_name="bucket", object_name="x", data=BytesIO(b"1"), length=1
    )
    for what, attempt in forbidden.items():
        with pytest.raises(S3Error) as caught:
            attempt()
        assert caught.value.code == "AccessDenied", what
    assert [bucket.name for bucket in user.list_buckets()] == ["lipt"]
    with pytest.raises(UsageError, match=r"refuses its root credentials \(AccessDenied\)"):
        prepare(own_minio.server.url, root=USER, user=Login("friend", "a-good-password"), bucket="lipt")


def test_again_it_keeps_what_is_there_and_takes_a_new_password(own_minio: MinioProcess) -> None:
    for login in (USER, USER, Login(USER.user, "another-password")):
        prepare(own_minio.server.url, root=root_of(own_minio), user=login, bucket="lipt")
        user = client_of(own_minio, login)
        user.put_object(bucket_name="lipt", object_name="kept", data=BytesIO(b"1"), length=1)
    with pytest.raises(S3Error, match="SignatureDoesNotMatch"):
        list(client_of(own_minio, USER).list_objects(bucket_name="lipt"))


def test_a_server_with_other_root_credentials(own_minio: MinioProcess) -> None:
    with pytest.raises(UsageError, match=r"started with other credentials: kubectl -n lipt-store rollout restart"):
        prepare(own_minio.server.url, root=Login("lipt-root", "not-the-password"), user=USER, bucket="lipt")


def test_a_server_that_does_not_come_up() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # bound and not listening: refused
        endpoint = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(TransientError, match="did not start"):
            prepare(endpoint, root=USER, user=USER, bucket="lipt", wait_s=0.1)


def test_a_password_the_server_refuses(own_minio: MinioProcess) -> None:
    with pytest.raises(RunError, match="answers XMinioAdminInvalidSecretKey"):
        prepare(own_minio.server.url, root=root_of(own_minio), user=Login("lipt", "short"), bucket="lipt")


@pytest.mark.parametrize(
    "endpoint",
    [
        "minio:9000",
        "http://me:secret@minio:9000",
        "http://minio:9000/path",
        "ftp://x",
        "http://minio:port",
        "http://:9000",
    ],
)
def test_no_address(endpoint: str) -> None:
    with pytest.raises(UsageError, match="LIPT_S3_ENDPOINT is not the address") as caught:
        prepare(endpoint, root=USER, user=USER, bucket="lipt")
    assert "secret" not in str(caught.value)


def test_credentials_are_random_and_kept() -> None:
    api, keys = Secrets(), ("accesskey", "secretkey")
    first = login_of(api, "ns", "lipt-s3", user="lipt", keys=keys)
    assert first.user == "lipt"
    assert len(first.password) == 40
    assert login_of(api, "ns", "lipt-s3", user="lipt", keys=keys) == first
    assert login_of(api, "ns", "other", user="lipt", keys=keys) != first
    stored = api.secrets["/api/v1/namespaces/ns/secrets/lipt-s3"]["data"]
    assert b64decode(stored["secretkey"]).decode() == first.password


def test_a_secret_of_somebody_else_is_not_overwritten() -> None:
    api = Secrets()
    api.create("/api/v1/namespaces/ns/secrets", {"metadata": {"name": "lipt-s3"}, "stringData": {"token": "x"}})
    with pytest.raises(UsageError, match="Secret lipt-s3 has no accesskey and no secretkey"):
        login_of(api, "ns", "lipt-s3", user="lipt", keys=("accesskey", "secretkey"))


def test_whole_set_up(
    own_minio: MinioProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Secrets()
    root = {"user": own_minio.server.access_key, "password": own_minio.server.secret_key}
    api.create("/api/v1/namespaces/ns/secrets", {"metadata": {"name": "minio-root"}, "stringData": root})
    monkeypatch.setattr(setup, "Cluster", lambda: api)
    monkeypatch.setenv("LIPT_NAMESPACE", "ns")
    monkeypatch.setenv("LIPT_RUNS_NAMESPACE", "runs")
    assert setup.main(["--bucket", "photos"]) == 0
    assert capsys.readouterr().out.startswith("bucket photos at http://127.0.0.1")
    made = login_of(api, "runs", "lipt-s3", user="", keys=("accesskey", "secretkey"))
    assert list(client_of(own_minio, made).list_objects(bucket_name="photos")) == []
    assert set(api.secrets) == {
        "/api/v1/namespaces/ns/secrets/minio-root",
        "/api/v1/namespaces/runs/secrets/lipt-s3",
    }


@pytest.mark.parametrize("name", ["LIPT_S3_ENDPOINT", "LIPT_NAMESPACE", "LIPT_RUNS_NAMESPACE"])
def test_errors_are_one_line(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LIPT_S3_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("LIPT_NAMESPACE", "ns")
    monkeypatch.setenv("LIPT_RUNS_NAMESPACE", "runs")
    monkeypatch.delenv(name)
    assert setup.main([]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"setup: {name} is not set; ")
    assert told.count("\n") == 1
