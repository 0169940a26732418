"""The pods that train one model together: they find each other, and notice when one of them is lost.

Each pod keeps a connection to the first pod while it trains. The kernel closes the connections of a process that ends,
and probes find within half a minute that a node is gone. The process group itself would wait for days.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

from lipt.errors import Terminated, TransientError, say_why

#: Seconds that a pod waits until all are there; its image may have to be pulled on another node.
_MEET_S = 900.0
#: Seconds until a pod that lost another ends its own processes. A process that failed by itself says so before.
_DELAY_S = 3.0
#: Seconds from the signal until the process ends at once: while torch connects, it does not look at signals.
_DEAF_S = 20.0
#: Seconds in which a pod that has connected says which one it is.
_LINE_S = 5.0
_PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # 30 s
_DONE = b"\n"


@dataclass(kw_only=True)
class Peers:
    """The pods of one training, seen from one of them."""

    index: int
    count: int
    endpoint: str
    """`host:port` for the rendezvous of the processes."""
    run_id: str
    connections: list[socket.socket]
    """The first pod has one to each other pod; the others have one to the first."""
    listener: socket.socket | None = None
    lost: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _guarded: bool = False

    @classmethod
    def meet(cls, index: int, count: int, first: str) -> Peers:
        """Wait until all pods are there.

        Args:
            index: of this pod.
            first: `host:port` of the first pod.

        Raises:
            TransientError: they are not there in time.
        """
        deadline = time.monotonic() + _MEET_S
        host, _, port = first.rpartition(":")
        peers = _join(index, count, (host, int(port)), deadline) if index else _gather(count, int(port), deadline)
        threading.Thread(target=peers._watch, daemon=True).start()
        return peers

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Send SIGTERM to this process if another pod is lost in the meantime. If that does not end it, end it.

        Raises:
            TransientError: another pod is or was lost.
        """
        if self.lost:
            raise self.error()
        self._guarded = True
        try:
            yield
        except Terminated:
            if self.lost:
                raise self.error() from None
            raise
        finally:
            self._guarded = False

    def finish(self) -> None:
        """End together: the first pod tells the others that all is done, and these wait for it.

        Raises:
            TransientError: the first pod was lost before.
        """
        if self.index:
            self._over.wait()
            if self.lost:
                raise self.error()
        else:
            for connection in self.connections:
                with suppress(OSError):  # a pod that has ended needs no word, and the result is stored
                    connection.sendall(_DONE)

    def error(self) -> TransientError:
        """The error of a pod that lost another."""
        return TransientError(
            f"pod {self.index} of {self.count}: another pod of this training was lost",
            "nothing: all start again and continue from the last checkpoint",
        )

    def _watch(self) -> None:
        sources = [*self.connections, *([self.listener] if self.listener else [])]
        ended = False
        while not ended:
            for source in select.select(sources, [], [])[0]:
                if source is self.listener:  # a pod that comes anew was lost before
                    self.lost = self.lost or _comes(source, self.count)
                    ended = ended or self.lost
                else:
                    ended, self.lost = True, self.lost or _read(source) != _DONE
        self._over.set()
        if self.lost:
            time.sleep(_DELAY_S)
            if self._guarded:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(_DEAF_S)
            if self._guarded:
                error = self.error()
                print(f"lipt: {error}", file=sys.stderr, flush=True)
                say_why(error)
                os._exit(error.exit_code)  # its processes end, too: they see that this one is gone


def _gather(count: int, port: int, deadline: float) -> Peers:
    """As the first pod, wait for the others and tell them where to meet."""
    listener = _listen(port)
    found: dict[int, socket.socket] = {}
    while len(found) < count - 1:
        listener.settimeout(max(0.0, deadline - time.monotonic()))
        try:
            accepted = _accept(listener, count)
        except (TimeoutError, BlockingIOError):
            missing = ", ".join(str(index) for index in range(1, count) if index not in found)
            raise TransientError(f"pod 0 of {count}: not there in time: {missing}", "see why they wait") from None
        if accepted:
            found[accepted[0]] = accepted[1]
        for index in [index for index, one in found.items() if select.select([one], [], [], 0)[0]]:
            del found[index]  # it has ended
    with _listen(0) as free:
        port = free.getsockname()[1]
    run_id, host = uuid4().hex, _host(next(iter(found.values())).getsockname())
    for connection in found.values():
        connection.sendall(json.dumps({"port": port, "run_id": run_id}).encode() + b"\n")
    return Peers(
        index=0,
        count=count,
        endpoint=f"{host}:{port}",
        run_id=run_id,
        connections=list(found.values()),
        listener=listener,
    )


def _listen(port: int) -> socket.socket:
    """A server at this port; 0: a free one. Pods may have addresses of IPv4, of IPv6 or of both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _host(address: tuple[str, ...]) -> str:
    """The host of a socket's address, as a part of `host:port`."""
    host = address[0].removeprefix("::ffff:")
    return f"[{host}]" if ":" in host else host


def _accept(listener: socket.socket, count: int) -> tuple[int, socket.socket] | None:
    """The index of the pod that connects, and the connection; None if it is none of these pods."""
    connection, _ = listener.accept()
    try:
        _probe(connection)
        index = int(_line(connection, time.monotonic() + _LINE_S))
    except (OSError, ValueError):
        index = 0
    if 0 < index < count:
        return index, connection
    connection.close()
    return None


def _comes(listener: socket.socket, count: int) -> bool:
    """Whether a pod of this training connects, and not a stranger."""
    listener.settimeout(5)  # who has gone again is not waited for
    with suppress(OSError):
        return _accept(listener, count) is not None
    return False


def _join(index: int, count: int, first: tuple[str, int], deadline: float) -> Peers:
    """As another pod, find the first one."""
    while True:
        try:
            connection = socket.create_connection(first, timeout=5)
            _probe(connection)
            connection.sendall(f"{index}\n".encode())
            told = json.loads(_line(connection, deadline))
            host = _host(connection.getpeername())
            return Peers(
                index=index,
                count=count,
                endpoint=f"{host}:{told['port']}",
                run_id=told["run_id"],
                connections=[connection],
            )
        except (OSError, ValueError) as error:  # its name is not known yet, or it starts again
            if time.monotonic() > deadline:
                raise TransientError(
                    f"pod {index} of {count}: {first[0]} cannot be reached: {error}",
                    "apply the manifests again: they contain the Service of worker pods",
                ) from None
        time.sleep(1)


def _probe(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _line(connection: socket.socket, deadline: float) -> bytes:
    """A short line.

    Raises:
        ConnectionError: the stream ends before the line does, or the line is long.
        TimeoutError: the line is not there at the deadline; each byte alone may be in time.
    """
    text = b""
    while not text.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s)
        part = connection.recv(1)
        if not part or len(text) > 200:
            raise ConnectionError("closed")
        text += part
    connection.settimeout(None)
    return text


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except OSError:
        return b""
