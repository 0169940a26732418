"""Python programs that tests run as processes of their own."""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import redirect_stderr, redirect_stdout
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lipt.cli import main

ROOT = Path(__file__).parents[1]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run_python(*arguments: str, timeout_s: float = 300, **environment: str) -> str:
    """Run the interpreter in the root of the repository, with these environment variables.

    Returns stdout, fails with the end of stderr.
    """
    ended = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        check=False,
        env=os.environ | environment,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def lipt(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own, with these environment variables."""
    return subprocess.run(
        [sys.executable, "-m", "lipt", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )


def lipt_here(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As `lipt`, but in this process: for commands that need none of their own. It takes a fraction of the time."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    code: Any = 0
    out, err = StringIO(), StringIO()
    try:
        with patch.dict(os.environ, environment), redirect_stdout(out), redirect_stderr(err):
            main(list(arguments))
    except SystemExit as ended:
        code = ended.code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def on_terminal(columns: int, *arguments: str, code: int = 0) -> str:
    """What the interpreter shows on a terminal so wide until it exits with `code`, escape sequences taken out."""
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=child, stdout=child, stderr=child, env=environment | {"TERM": "xterm"}
    )
    os.close(child)
    shown = b""
    try:
        while data := os.read(parent, 65536):
            shown += data
    except OSError:  # the other side is closed
        pass
    assert process.wait() == code, shown
    return _ESCAPES.sub("", shown.decode()).replace("\r\n", "\n")
