"""The pods of one training find each other, and notice when one is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch.distributed as dist

from lipt.errors import TransientError
from lipt.runtime.processes import parent
from lipt.runtime.processes.peers import Peers
from tests.conftest import free_port


@pytest.fixture(autouse=True)
def _meet_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipt.runtime.processes.peers._MEET_S", 60.0)


def test_pods_that_do_not_meet_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipt.runtime.processes.peers._MEET_S", 0.2)
    with pytest.raises(TransientError, match="pod 0 of 3: not there in time: 1, 2"):
        Peers.meet(0, 3, f"127.0.0.1:{free_port()}")
    with pytest.raises(TransientError, match=r"pod 1 of 3: 127\.0\.0\.1 cannot be reached"):
        Peers.meet(1, 3, f"127.0.0.1:{free_port()}")


STRANGERS = ["7\n", "0\n", "-1\n", "GET / HTTP/1.1\n", ""]


@pytest.mark.parametrize("said", STRANGERS)
def test_a_stranger_is_no_pod(said: str) -> None:
    """A scan of ports, or a pod of another Job at an address that was given out again."""
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Peers.meet, 0, 2, f"127.0.0.1:{port}")
        while not first.done():
            with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(said.encode())
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(100) == b""
                break
        second = Peers.meet(1, 2, f"127.0.0.1:{port}")
        assert first.result().endpoint == second.endpoint
        first.result().finish()
    second.finish()


@pytest.mark.parametrize("said", STRANGERS)
def test_a_stranger_ends_no_training_and_a_pod_that_comes_anew_does(said: str) -> None:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        met = pool.submit(Peers.meet, 0, 2, f"127.0.0.1:{port}")
        second = Peers.meet(1, 2, f"127.0.0.1:{port}")
        first = met.result()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
        stranger.sendall(said.encode())
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(100) == b""  # it was looked at
    assert not first.lost
    with socket.create_connection(("127.0.0.1", port)) as again:
        again.sendall(b"1\n")
        deadline = time.monotonic() + 60
        while not first.lost:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    first.finish()
    second.finish()


def test_a_stranger_that_sends_byte_after_byte_does_not_keep_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the line never."""
    monkeypatch.setattr("lipt.runtime.processes.peers._LINE_S", 0.5)
    port, sent = free_port(), 0
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Peers.meet, 0, 2, f"127.0.0.1:{port}")
        while not first.done() and not sent:
            with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as stranger:
                while sent < 150:
                    stranger.sendall(b"1")
                    sent += 1
                    time.sleep(0.05)
        second = Peers.meet(1, 2, f"127.0.0.1:{port}")
        first.result().finish()
    second.finish()
    assert sent < 150  # the connection was closed


def test_a_pod_that_has_ended_does_not_keep_the_end_from_the_others() -> None:
    gone, there = socket.socketpair(), socket.socketpair()
    gone[1].close()
    Peers(index=0, count=3, endpoint="", run_id="", connections=[gone[0], there[0]]).finish()
    assert there[1].recv(10) == b"\n"
    for each in (gone[0], *there):
        each.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_pods_meet_by_either_protocol(host: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        port = free_port()
        met = pool.submit(Peers.meet, 0, 2, f"{host}:{port}")
        second = Peers.meet(1, 2, f"{host}:{port}")
        first = met.result()
    assert first.endpoint == second.endpoint
    assert first.endpoint.startswith("[::1]:" if ":" in host else "127.0.0.1:")
    first.finish()
    second.finish()


def test_a_pod_that_was_lost_before_the_processes_start_is_noticed() -> None:
    peers = Peers(index=1, count=2, endpoint="", run_id="", connections=[], lost=True)
    with pytest.raises(TransientError, match="another pod of this training was lost"), peers.guard():
        pytest.fail("it must not start processes that wait for ever")


DEAF = """
import signal, socket, sys, threading, time
from lipt.runtime.processes import peers
peers._DELAY_S, peers._DEAF_S = 0.1, 0.5
signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
own, other = socket.socketpair()
pod = peers.Peers(index=1, count=2, endpoint="", run_id="", connections=[own])
threading.Thread(target=pod._watch, daemon=True).start()
with pod.guard():
    other.close()
    while True:  # as torch, which goes on connecting after a signal
        time.sleep(0.1)
"""


def test_a_process_that_does_not_hear_the_signal_ends_all_the_same() -> None:
    ended = subprocess.run([sys.executable, "-c", DEAF], capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (TransientError.exit_code, "heard\n")
    assert "lipt: pod 1 of 2: another pod of this training was lost" in ended.stderr


def test_a_connection_that_breaks_while_the_processes_start_is_a_lost_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_config: object) -> object:
        raise dist.DistNetworkError("failed to recv, got 0 bytes")

    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", broken)
    peers = Peers(index=1, count=2, endpoint="127.0.0.1:1", run_id="a", connections=[])
    with pytest.raises(TransientError, match="another pod of this training was lost"):
        parent._torchrun(tmp_path, "", 1, peers)
    with pytest.raises(dist.DistNetworkError):
        parent._torchrun(tmp_path, "", 1, None)
