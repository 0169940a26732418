"""The store of a cluster's runs, as a person's machine reaches it."""

from __future__ import annotations

import base64
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from lipt.adapters.cluster.api import Cluster, MissingError, RefusedError
from lipt.adapters.store import Store, open_store
from lipt.errors import TransientError, UsageError

#: Seconds within which `kubectl port-forward` must stand.
_TUNNEL_S = 30.0
_BY_HAND = "or set LIPT_S3_ENDPOINT and the credentials yourself (docs/howto/cluster-rights.md, Secrets)"


@contextmanager
def open_store_of_runs(cluster: Cluster, namespace: str, s3: str, uri: str) -> Iterator[Store]:
    """The store at `uri`, with the address and the credentials that the pods of runs have.

    If LIPT_S3_ENDPOINT is set here, the variables of this machine count instead. If the address is a Service of the
    cluster, `kubectl port-forward` leads to it until the end of the block.

    Args:
        s3: name of the Secret and of the ConfigMap.

    Raises:
        UsageError: there is no such pair, its keys are missing, it may not be read, or there is no kubectl.
        TransientError: the tunnel does not stand.
    """
    if os.environ.get("LIPT_S3_ENDPOINT") or not uri.startswith("s3://"):
        yield open_store(uri)
        return
    with ExitStack() as stack:
        endpoint, region, *keys = _settings(cluster, namespace, s3)
        if service := _service(cluster, endpoint, namespace):
            endpoint = stack.enter_context(_tunnel(*service))
        names = ("LIPT_S3_ENDPOINT", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        theirs = os.environ | dict(zip(names, (endpoint, region, *keys), strict=True))
        theirs.pop("AWS_SESSION_TOKEN", None)  # it belongs to other credentials, of this machine
        theirs["LIPT_POD"] = s3  # so the remedies name ConfigMap and Secret, as in a pod
        yield open_store(uri, environment=theirs)


def _settings(cluster: Cluster, namespace: str, s3: str) -> tuple[str, str, str, str]:
    """Address, region, access key and secret key."""
    path = f"/api/v1/namespaces/{namespace}"
    try:
        address = cluster.get(f"{path}/configmaps/{s3}").get("data", {})
        encoded = cluster.get(f"{path}/secrets/{s3}").get("data", {})
        access, secret = (base64.b64decode(encoded[key]).decode() for key in ("accesskey", "secretkey"))
        return address["endpoint"], address.get("region", "us-east-1"), access, secret
    except MissingError as error:
        raise UsageError(error.message, f"`lipt doctor` says what is missing, {_BY_HAND}") from None
    except RefusedError as error:
        raise UsageError(error.message, f"ask for the right to read it, {_BY_HAND}") from None
    except UnicodeDecodeError:
        raise UsageError(f"Secret {s3} in {namespace} has a key that is no text", f"replace it, {_BY_HAND}") from None
    except KeyError as error:
        raise UsageError(f"{s3} in {namespace} has no key {error}", f"`lipt doctor` says more, {_BY_HAND}") from None


def _service(cluster: Cluster, endpoint: str, namespace: str) -> tuple[str, str, int] | None:
    """Name, namespace and port of the Service at this address, or None. (A certificate would not fit a tunnel.)"""
    url = urlsplit(endpoint)
    name, _, rest = (url.hostname or "").partition(".")
    of, _, rest = rest.partition(".")
    if url.scheme != "http" or rest not in ("", "svc", "svc.cluster.local"):
        return None
    of = of or namespace
    try:
        cluster.get(f"/api/v1/namespaces/{of}/services/{name}")
    except (MissingError, RefusedError):
        return None
    return name, of, url.port or 80


@contextmanager
def _tunnel(name: str, namespace: str, port: int) -> Iterator[str]:
    """The local address of a Service."""
    command = ["kubectl", "-n", namespace, "port-forward", "--address", "127.0.0.1", f"service/{name}", f":{port}"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        message = f"kubectl, which leads to {name}.{namespace}, is not installed"
        raise UsageError(message, f"install it, {_BY_HAND}") from None
    try:
        assert process.stdout
        assert process.stderr
        first = process.stdout.readline() if select.select([process.stdout], [], [], _TUNNEL_S)[0] else ""
        local = first.partition(" -> ")[0].rpartition(":")[2]  # Forwarding from 127.0.0.1:40123 -> 9000
        if not local.isdigit():
            process.terminate()
            reason = " ".join(process.stderr.read().split()) or f"nothing within {_TUNNEL_S:g} s"
            raise TransientError(f"{' '.join(command[:4])} service/{name}: {reason}", f"try again, {_BY_HAND}")
        yield f"http://127.0.0.1:{local}"
    finally:
        process.terminate()
        process.communicate()
