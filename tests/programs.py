"""Python programs that tests run as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_python(*arguments: str, timeout_s: float = 300) -> str:
    """Run the interpreter in the root of the repository; returns stdout, fails with the end of stderr."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=Path(__file__).parents[1],
        check=False,
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
