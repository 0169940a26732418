"""What the end-to-end tests do to a cluster: runs, faults, and a look into the store."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from minio import Minio

from lipt import __version__
from tests.tiny import TINY

ROOT = Path(__file__).parents[2]
DRIVER = os.environ.get("LIPT_E2E_CLUSTER", str(ROOT / "tests/e2e/kind.sh"))
IMAGE = f"lipt:{__version__}"
NAMESPACE, STORE = "lipt", "lipt-store"
BUCKET = "lipt"
LIPT = str(Path(sys.executable).with_name("lipt"))

#: The smallest run with two jigsaws for each GPU node, and blocks that pods can share.
SMALL: dict[str, Any] = TINY | {
    "device": "auto",
    "initialise": {"batch_size": 64},
    "dispatch": {"jigsaws": 4, "batch_size": 32},
    "score": {"block_images": 256},
    "train": {"epochs": 4, "batch_size": 64},
}


def shell(script: str, *, folder: Path = ROOT) -> str:
    """The output of a script, as a reader runs it who has installed `lipt`."""
    environment = os.environ | {"PATH": f"{Path(LIPT).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, capture_output=True, text=True, timeout=420, env=environment
    )
    assert done.returncode == 0, f"{script}: {done.stderr}"
    return done.stdout


def driver(*arguments: str) -> str:
    """A verb of the cluster; its output."""
    return subprocess.run([DRIVER, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def kubectl(*arguments: str, namespace: str = NAMESPACE, check: bool = True, stdin: str | None = None) -> str:
    """kubectl in the namespace of the runs, or in that of the store."""
    command = ["kubectl", "-n", namespace, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def items(kind: str, selector: str, *, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Objects by label."""
    listed = kubectl("get", kind, "-l", selector, "-o", "json", namespace=namespace)
    found: list[dict[str, Any]] = json.loads(listed)["items"]
    return found


def minio_pod() -> dict[str, Any]:
    (pod,) = items("pods", "app.kubernetes.io/name=minio", namespace=STORE)
    return pod


def until(what: Callable[[], Any], *, why: str, seconds: float = 180, every: float = 1) -> Any:
    """Wait for a truthy value; returns it."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {why}"
        time.sleep(every)
    return value


class Run:
    """A run that was started by `lipt submit`."""

    def __init__(self, folder: Path, name: str, changes: dict[str, Any] | None = None, **parameters: Any) -> None:
        self.workspace = name
        document = SMALL | {"workspace": f"s3://{BUCKET}/{name}"}
        for section, values in (changes or {}).items():
            document[section] = {**document.get(section, {}), **values} if isinstance(values, dict) else values
        config = self.config = folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(document), encoding="utf-8")
        pairs = {"cpu": "200m", "memory": "1Gi"} | parameters
        options = [text for key, value in pairs.items() for text in ("-p", f"{key}={value}")]
        command = [LIPT, "submit", str(config), "--engine", "argo", "-n", NAMESPACE, *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.handle, self.told = done.stdout.strip(), done.stderr

    @property
    def workflow(self) -> str:
        """Its name in the cluster."""
        return self.handle.rsplit("/", 1)[1]

    def wait(self, *, seconds: float = 420) -> dict[str, Any]:
        """Its last state, as `lipt status --wait -o json` tells."""
        command = [LIPT, "status", self.handle, "--wait", "-o", "json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
        document: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (document["phase"] == "Failed"), done.stderr
        return document

    def message(self, box: str) -> str:
        """What `lipt status` says about a box now."""
        command = [LIPT, "status", self.handle, "-o", "json"]
        document = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return next(str(each["message"]) for each in document["boxes"] if each["name"] == box)

    def doctor(self, check: str) -> dict[str, Any]:
        """What `lipt doctor` finds for its configuration now."""
        command = [LIPT, "doctor", str(self.config), "--engine", "argo", "-n", NAMESPACE, "-o", "json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout)[check]
        return found

    def succeeds(self, **options: float) -> None:
        """Waits for the end and asserts that it is a good one."""
        state = self.wait(**options)
        assert state["phase"] == "Succeeded", f"{self.handle}: {json.dumps(state['boxes'], indent=1)}\n{self.logs()}"

    def logs(self) -> str:
        return subprocess.run([LIPT, "logs", self.handle], check=False, capture_output=True, text=True).stdout

    def follow(self) -> subprocess.Popen[str]:
        """`lipt logs -f`, until the run ends."""
        return subprocess.Popen([LIPT, "logs", "-f", self.handle], stdout=subprocess.PIPE, text=True)

    def pods(self, box: str) -> list[dict[str, Any]]:
        """Of a box itself; attempts included."""
        found = items("pods", f"workflows.argoproj.io/workflow={self.workflow}")
        return [pod for pod in found if pod["metadata"]["labels"]["app.kubernetes.io/component"] == box]

    def workers(self) -> list[dict[str, Any]]:
        """Worker pods of the run."""
        return items("pods", f"lipt.dev/run={self.workflow}")

    def running(self, pods: Callable[[], list[dict[str, Any]]], *, why: str) -> dict[str, Any]:
        """Waits for one of these pods to run."""

        def one() -> dict[str, Any] | None:
            return next((pod for pod in pods() if is_running(pod)), None)

        found: dict[str, Any] = until(one, why=f"{self.handle}: {why} runs")
        return found


def is_running(pod: dict[str, Any]) -> bool:
    """Its own container runs, and it is not being deleted."""
    states = pod["status"].get("containerStatuses", [])
    own = [state for state in states if state["name"] in ("main", "worker") and "running" in state["state"]]
    return bool(own) and "deletionTimestamp" not in pod["metadata"]


@contextmanager
def store() -> Iterator[Minio]:
    """The cluster's MinIO as the user of the runs, through a tunnel."""
    user, password = credentials(NAMESPACE, "lipt-s3", ("accesskey", "secretkey"))
    with tunnel() as port:
        yield Minio(endpoint=f"127.0.0.1:{port}", access_key=user, secret_key=password, secure=False)


@contextmanager
def tunnel() -> Iterator[int]:
    """A local port that leads to MinIO."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = ["kubectl", "-n", STORE, "port-forward", "service/minio", f"{port}:9000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(port), why="the tunnel to MinIO stands", seconds=60)
        yield port
    finally:
        process.terminate()
        process.wait()


def credentials(namespace: str, secret: str, keys: tuple[str, str]) -> tuple[str, str]:
    data = json.loads(kubectl("get", "secret", secret, "-o", "json", namespace=namespace))["data"]
    first, second = (base64.b64decode(data[key]).decode() for key in keys)
    return first, second


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def outcome(workspace: str) -> dict[str, bytes]:
    """What a run left: the commit record of every artifact, which holds digests, summaries and no times."""
    with store() as client:
        keys = [entry.object_name for entry in client.list_objects(BUCKET, prefix=f"{workspace}/", recursive=True)]
        return {
            key.removeprefix(f"{workspace}/"): read(client, key)
            for key in keys
            if key is not None and key.endswith("/artifact.json")
        }


def read(client: Minio, key: str) -> bytes:
    answer = client.get_object(bucket_name=BUCKET, object_name=key)
    try:
        return bytes(answer.read())
    finally:
        answer.close()
        answer.release_conn()


def signal(name: str, pod: dict[str, Any], program: str = "lipt") -> None:
    """Sends a signal to every process of a pod that runs `program`; there must be one."""
    uid = pod["metadata"]["uid"]
    script = (
        "hit=1; for status in /proc/[0-9]*/cgroup; do pid=${status#/proc/}; pid=${pid%/cgroup}; "
        f'if grep -q -e {uid} -e {uid.replace("-", "_")} "$status" 2>/dev/null && '
        f'grep -q {program} "/proc/$pid/cmdline" 2>/dev/null; then kill -{name} "$pid" && hit=0; fi; done; exit $hit'
    )
    driver("on-node", pod["spec"]["nodeName"], "sh", "-c", script)


def trained(run: Run) -> list[str]:
    """What its training has left in the store."""
    with store() as client:
        prefix = f"{run.workspace}/train/"
        return [str(entry.object_name) for entry in client.list_objects(BUCKET, prefix=prefix, recursive=True)]
