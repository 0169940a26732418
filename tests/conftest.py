"""An S3 server for the tests: the one at LIPT_TEST_S3, else a `minio` program, else moto."""

from __future__ import annotations

import os

# One thread per process: tests run side by side, and a tiny model's threads would mostly wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import hypothesis
import pytest
from minio import Minio
from minio.deleteobjects import DeleteObject

# A shell ignores SIGINT for what it starts in the background, and children would inherit that: tests send Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Time says nothing about an example: on a busy machine each may wait for longer than the limit of hypothesis, 0.2 s.
hypothesis.settings.register_profile("without time", deadline=None)
hypothesis.settings.load_profile("without time")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, because some tests wait: for processes, leases, servers."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) + 1


@dataclass
class S3Server:
    """Where the server is and how to get in."""

    url: str
    access_key: str
    secret_key: str
    checks_credentials: bool = True

    def client(self) -> Minio:
        url = urlsplit(self.url)
        return Minio(
            endpoint=url.netloc, access_key=self.access_key, secret_key=self.secret_key, secure=url.scheme == "https"
        )


class MinioProcess:
    """A MinIO server of our own, on a free port, with random credentials."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.server = S3Server(f"http://127.0.0.1:{free_port()}", "lipt-test", secrets.token_hex(16))

    def start(self) -> None:
        environment = os.environ | {
            "MINIO_ROOT_USER": self.server.access_key,
            "MINIO_ROOT_PASSWORD": self.server.secret_key,
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",
        }
        address = urlsplit(self.server.url).netloc
        command = [self._program, "server", str(self._folder), "--address", address, "--quiet"]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(URLError, ConnectionError), urlopen(f"{self.server.url}/minio/health/ready", timeout=5):
                time.sleep(0.5)  # a bucket made at once may, in one start of 25, wait for a lock for 60 s
                return
            time.sleep(0.1)
        raise TimeoutError("MinIO did not come up")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="session")
def minio_program() -> str:
    program = os.environ.get("LIPT_TEST_MINIO") or shutil.which("minio")
    if not program:
        pytest.skip("needs a `minio` program on PATH or at LIPT_TEST_MINIO")
    return program


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server of this session."""
    url = os.environ.get("LIPT_TEST_S3")
    program = os.environ.get("LIPT_TEST_MINIO") or shutil.which("minio")
    if url:
        yield S3Server(url, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    elif program:
        process = MinioProcess(program, tmp_path_factory.mktemp("minio"))
        process.start()
        yield process.server
        process.stop()
    else:
        from moto.server import ThreadedMotoServer

        port = free_port()
        moto = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
        moto.start()
        yield S3Server(f"http://127.0.0.1:{port}", "lipt-test", secrets.token_hex(16), checks_credentials=False)
        moto.stop()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a location in a fresh bucket; the environment is set for `open_store`."""
    monkeypatch.setenv("LIPT_S3_ENDPOINT", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("LIPT_S3_RETRY_S", "20")
    for name in ("AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    client, bucket = s3_server.client(), f"lipt-{secrets.token_hex(6)}"
    client.make_bucket(bucket_name=bucket)
    yield f"s3://{bucket}/some/prefix"
    objects = client.list_objects(bucket_name=bucket, recursive=True)
    left = [DeleteObject(entry.object_name) for entry in objects if entry.object_name]
    assert not list(client.remove_objects(bucket_name=bucket, delete_object_list=left))
    client.remove_bucket(bucket_name=bucket)


@pytest.fixture
def own_minio(minio_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MinioProcess]:
    """A MinIO of this test alone, which may be stopped; the environment is set, `s3://bucket` exists."""
    process = MinioProcess(minio_program, tmp_path / "minio")
    process.start()
    monkeypatch.setenv("LIPT_S3_ENDPOINT", process.server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", process.server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", process.server.secret_key)
    process.server.client().make_bucket(bucket_name="bucket")
    yield process
    process.stop()
