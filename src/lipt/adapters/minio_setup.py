"""Prepare a fresh MinIO in a cluster: `python -m lipt.adapters.minio_setup`, run by the Job of manifests/store.

Creates random root credentials (a Secret that MinIO starts with), the bucket, a user who may use only that bucket, and
the user's credentials (a Secret in the namespace of the runs, which every pod of a run reads). Existing objects are
kept, so it may run at any time.
"""

import argparse
import json
import os
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_urlsafe
from typing import Any, TypeVar
from urllib.parse import urlsplit

from minio import MinioAdmin
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException, MinioException, S3Error
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from lipt.adapters.cluster.api import Cluster, MissingError
from lipt.adapters.cluster.patience import Patience
from lipt.adapters.store.s3 import client_of
from lipt.adapters.store.s3_errors import REFUSED, is_busy, status_of
from lipt.errors import LiptError, RunError, TransientError, UsageError

T = TypeVar("T")

_LABELS = {
    "app.kubernetes.io/name": "lipt",
    "app.kubernetes.io/part-of": "lipt",
    "app.kubernetes.io/component": "object-store",
    "app.kubernetes.io/managed-by": "lipt-setup",
}


@dataclass(frozen=True)
class Login:
    """A user of a store."""

    user: str
    password: str


def login_of(api: Cluster, namespace: str, name: str, *, user: str, keys: tuple[str, str]) -> Login:
    """The user name and the password in a Secret, under these keys. Creates a missing Secret for `user`.

    Raises:
        UsageError: the Secret lacks a key, or this ServiceAccount may not use it.
    """
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    try:
        found = api.get(f"{secrets}/{name}")
    except MissingError:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": _LABELS},
            "stringData": dict(zip(keys, (user, token_urlsafe(30)), strict=True)),
        }
        found = api.create(secrets, secret)
    values: Mapping[str, str] = found.get("data") or {}
    if missing := [key for key in keys if not values.get(key)]:
        raise UsageError(
            f"Secret {name} has no {' and no '.join(missing)}", "delete it; this Job then creates a new one"
        )
    return Login(*(b64decode(values[key]).decode() for key in keys))


def rights(bucket: str) -> dict[str, Any]:
    """The policy: the permissions that `lipt.adapters.store.s3` needs, only on this bucket."""
    of_bucket = ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"]
    of_objects = [
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
        "s3:AbortMultipartUpload",
        "s3:ListMultipartUploadParts",
    ]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": of_bucket, "Resource": [f"arn:aws:s3:::{bucket}"]},
            {"Effect": "Allow", "Action": of_objects, "Resource": [f"arn:aws:s3:::{bucket}/*"]},
        ],
    }


def prepare(endpoint: str, *, root: Login, user: Login, bucket: str, wait_s: float = 300.0) -> None:
    """Create bucket, policy and user, and connect them. Run again, it sets the user's password and the policy again.

    Raises:
        UsageError: a malformed endpoint, or the server was started with other root credentials.
        TransientError: the server did not start within `wait_s` seconds.
    """
    pool = PoolManager(timeout=Timeout(connect=5.0, read=30.0), retries=False)
    provider = StaticProvider(root.user, root.password)
    client = client_of(endpoint, provider, region="us-east-1", pool=pool)
    url = urlsplit(endpoint)
    admin = MinioAdmin(endpoint=url.netloc, credentials=provider, secure=url.scheme == "https", http_client=pool)
    policy = f"{bucket}-only"

    def make_bucket() -> None:
        if not client.bucket_exists(bucket_name=bucket):
            client.make_bucket(bucket_name=bucket)

    def attach_policy() -> None:
        if policy not in json.loads(admin.user_info(access_key=user.user)).get("policyName", "").split(","):
            admin.attach_policy(policies=[policy], user=user.user)

    steps: list[Callable[[], object]] = [
        make_bucket,
        lambda: admin.policy_add(policy_name=policy, policy=rights(bucket)),
        lambda: admin.user_add(access_key=user.user, secret_key=user.password),
        attach_policy,
    ]
    patience = Patience(wait_s, wait_s)
    for step in steps:
        patience(partial(_explained, endpoint, step))


def _explained(endpoint: str, step: Callable[[], T]) -> T:
    try:
        return step()
    except HTTPError as error:
        raise _not_up(endpoint, type(error).__name__) from error
    except (MinioException, MinioAdminException) as error:
        code = _code(error)
        if is_busy(status_of(error)):
            raise _not_up(endpoint, code) from error
        if code in REFUSED:
            remedy = "it was started with other credentials: kubectl -n lipt-store rollout restart deployment/minio"
            raise UsageError(f"{endpoint} refuses its root credentials ({code})", remedy) from error
        raise RunError(f"{endpoint} answers {code}", "check that this is a MinIO, and read its log") from error


def _code(error: Exception) -> str:
    """The server's error code; never its whole answer."""
    if isinstance(error, S3Error):
        return error.code or "unknown error"
    try:
        return str(json.loads(getattr(error, "_body", "") or "")["Code"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status_of(error)}"


def _not_up(endpoint: str, reason: str) -> TransientError:
    return TransientError(f"{endpoint} did not start ({reason})", "look at its pod; the Job tries again")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code; errors are one line."""
    parser = argparse.ArgumentParser(prog="python -m lipt.adapters.minio_setup")
    parser.add_argument("--bucket", default="lipt")
    parser.add_argument("--root-secret", default="minio-root", help="keys: user, password")
    parser.add_argument("--user-secret", default="lipt-s3", help="keys: accesskey, secretkey")
    asked = parser.parse_args(arguments)
    try:
        names = ("LIPT_S3_ENDPOINT", "LIPT_NAMESPACE", "LIPT_RUNS_NAMESPACE")
        endpoint, namespace, runs = (_required(name) for name in names)
        api = Cluster()
        root = login_of(api, namespace, asked.root_secret, user="lipt-root", keys=("user", "password"))
        user = login_of(api, runs, asked.user_secret, user="lipt", keys=("accesskey", "secretkey"))
        prepare(endpoint, root=root, user=user, bucket=asked.bucket)
    except LiptError as error:
        print("setup: " + "; ".join(filter(None, (error.message, error.remedy))), file=sys.stderr)
        return error.exit_code
    print(f"bucket {asked.bucket} at {endpoint} is ready; its user is in Secret {asked.user_secret} in {runs}")
    return 0


def _required(name: str) -> str:
    if value := os.environ.get(name):
        return value
    raise UsageError(f"{name} is not set", "run it like the Job in manifests/store/setup.yaml")


if __name__ == "__main__":
    sys.exit(main())
