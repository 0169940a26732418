"""What can go wrong with an S3 server, and how it is told."""

from __future__ import annotations

import os
import re
import socket
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from lipt.adapters.store import Store, open_store
from lipt.errors import TransientError, UsageError

if TYPE_CHECKING:
    from tests.conftest import MinioProcess, S3Server

SECRET = "do-not-print-this-secret"

OPERATIONS: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read("x", kind="data"),
    "write": lambda store: store.write("x", b"1", kind="data"),
    "size": lambda store: store.size("x"),
    "list": lambda store: store.list(),
    "delete": lambda store: store.delete("x"),
}
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("LIPT_S3_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("LIPT_S3_RETRY_S", "1")
    return monkeypatch


@pytest.mark.parametrize("name", ["LIPT_S3_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_missing_setting_is_named(settings: pytest.MonkeyPatch, name: str) -> None:
    settings.delenv(name)
    with pytest.raises(UsageError, match=rf"{name}\n  -> set it to"):
        open_store("s3://bucket/x")


@pytest.mark.parametrize(
    "endpoint",
    [
        "minio:9000",
        f"http://me:{SECRET}@host:9000",
        "http://host/path",
        "http://h:x",
        "http://",
        "https://",
        "http://:9000",
        "http://[::1",
    ],
)
def test_malformed_endpoint_is_refused_but_not_repeated(settings: pytest.MonkeyPatch, endpoint: str) -> None:
    settings.setenv("LIPT_S3_ENDPOINT", endpoint)
    with pytest.raises(UsageError, match="LIPT_S3_ENDPOINT is not the address of a store") as caught:
        open_store("s3://bucket/x")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


VARIABLES = ["LIPT_S3_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"]


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("odd", [f"{SECRET}\nx", f"{SECRET}\u20ac"])
def test_character_that_cannot_be_sent_is_refused_but_not_repeated(
    settings: pytest.MonkeyPatch, name: str, odd: str
) -> None:
    settings.setenv(name, odd)
    with pytest.raises(UsageError, match=f"{name} has a character that no store accepts") as caught:
        open_store("s3://bucket/x").list()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_region_that_is_none(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("AWS_REGION", "us east")
    with pytest.raises(UsageError, match="AWS_REGION=us east is not a region"):
        open_store("s3://bucket/x")


def test_line_break_at_the_end_of_a_setting_is_ignored(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:  # as `kubectl create secret generic --from-file` takes it from a file
        if name in os.environ:
            monkeypatch.setenv(name, f"{os.environ[name]}\n")
    store = open_store(s3)
    store.write("x", b"1", kind="data")
    assert store.read("x", kind="data") == b"1"


@pytest.mark.parametrize("retry_s", ["soon", "-1", "nan", "inf"])
def test_malformed_retry_time(settings: pytest.MonkeyPatch, retry_s: str) -> None:
    settings.setenv("LIPT_S3_RETRY_S", retry_s)
    with pytest.raises(UsageError, match="LIPT_S3_RETRY_S"):
        open_store("s3://bucket/x")


@pytest.mark.parametrize("location", ["s3://", "s3:///half", "s3://a", "s3://UPPER/x"])
def test_location_without_a_valid_bucket(settings: pytest.MonkeyPatch, location: str) -> None:
    with pytest.raises(UsageError, match="s3://bucket/prefix"):
        open_store(location)


def test_location_that_leaves_its_bucket(settings: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no valid key"):
        open_store("s3://bucket/a/../../other")


@operations
def test_unreachable_store_is_transient_within_the_set_time(
    settings: pytest.MonkeyPatch, operation: Callable[[Store], object]
) -> None:
    settings.setenv("LIPT_S3_RETRY_S", "0.5")
    store = open_store("s3://bucket/x")
    begin = time.monotonic()
    with pytest.raises(TransientError, match=r"s3://bucket/x.* unreachable .*\n  -> ") as caught:
        operation(store)
    assert 0.5 <= time.monotonic() - begin < 20  # by default a minute
    assert caught.value.exit_code == 3
    assert sum(store.traffic.requests.values()) > 1
    assert sum(store.traffic.written.values()) == 0


def test_silent_server_is_transient(settings: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, never answers
        settings.setenv("LIPT_S3_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        begin = time.monotonic()
        with pytest.raises(TransientError, match="ReadTimeoutError"):
            open_store("s3://bucket/x").read("y", kind="data")
        assert time.monotonic() - begin < 20  # by default half a minute for each attempt


def test_http_instead_of_https_is_a_usage_error(s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    if not s3_server.url.startswith("http://"):
        pytest.skip("the server speaks TLS")
    monkeypatch.setenv("LIPT_S3_ENDPOINT", s3_server.url.replace("http://", "https://"))
    with pytest.raises(UsageError, match="TLS"):
        open_store(s3).list()


@operations
def test_missing_bucket_is_a_usage_error(s3: str, operation: Callable[[Store], object]) -> None:
    with pytest.raises(UsageError, match=r"s3://lipt-no-such-bucket: no such bucket\n  -> create"):
        operation(open_store("s3://lipt-no-such-bucket/x"))


@operations
@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_a_usage_error_at_once(
    s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, operation: Callable[[Store], object]
) -> None:
    if not s3_server.checks_credentials:
        pytest.skip("moto lets everybody in")
    monkeypatch.setenv(name, SECRET)
    store = open_store(s3)
    with pytest.raises(
        UsageError, match=r"refuses the credentials .*\n  -> check the credentials \(AWS_ACCESS_KEY_ID"
    ) as caught:
        operation(store)
    assert sum(store.traffic.requests.values()) == 1
    assert f"the bucket {s3.removeprefix('s3://').partition('/')[0]} exists" in caught.value.remedy
    told = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told
    assert s3_server.secret_key not in told


def test_listing_of_more_than_a_page_counts_its_requests(s3: str) -> None:
    store = open_store(s3)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: store.write(f"{i:04d}", b"", kind="other"), range(1001)))
    assert store.list() == [f"{i:04d}" for i in range(1001)]
    assert store.traffic.requests["list"] == 2


def test_an_object_too_large_for_one_request_is_written_in_parts(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 5 GiB, which no test can write."""
    monkeypatch.setattr("lipt.adapters.store.s3._LARGEST_PART_BYTES", 5 * 2**20)
    data = bytes(range(256)) * 50_000
    open_store(s3).write("x", data, kind="other")
    assert open_store(s3).read("x", kind="other") == data


def test_counted_bytes_agree_with_the_server(own_minio: MinioProcess) -> None:
    store = open_store("s3://bucket/x")
    data = bytes(range(256)) * 4000
    for i in range(10):
        store.write(f"{i}", data, kind="data")
        store.read(f"{i}", kind="data", start=1000, length=500_000)
    time.sleep(0.5)  # the server counts after it has answered, and shows the same numbers for 10 s
    with urlopen(f"{own_minio.server.url}/minio/v2/metrics/cluster") as answer:
        text = answer.read().decode()
    received, sent = (
        sum(float(value) for value in re.findall(rf"^minio_s3_traffic_{way}_bytes{{.*}} (\S+)$", text, re.M))
        for way in ("received", "sent")
    )
    assert store.traffic.written["data"] == pytest.approx(received, rel=0.02)
    assert store.traffic.read["data"] == pytest.approx(sent, rel=0.02)
