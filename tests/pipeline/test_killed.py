"""A run that is killed at every write ends with the same artifacts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lipt.runtime.workspace import Workspace
from tests.programs import run_python
from tests.tiny import digests

_KILLED = """
import json, os, signal, sys
import torch
torch.set_num_threads(1)
from lipt.adapters.store.file import FileStore
from lipt.flow.compare import run_with_baseline
from tests.tiny import tiny_context
write = FileStore._write
folder, changes, part, least = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def attempt(survives):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    count = 0
    def counted(self, key, data):
        nonlocal count
        count += part in key
        if part in key and count == survives:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, key, data)
    FileStore._write = counted
    run_with_baseline(tiny_context(folder, changes))
    os._exit(0)

deaths = 0
while (status := attempt(2 + deaths)) == signal.SIGKILL:
    deaths += 1
    assert deaths < 40
sys.exit(0 if status == 0 and deaths >= least else f"status {status} after {deaths} kills")
"""


_STRAIGHT = """
import json, sys, torch
torch.set_num_threads(1)
from lipt.flow.compare import run_with_baseline
from tests.tiny import tiny_context
run_with_baseline(tiny_context(sys.argv[1], json.loads(sys.argv[2])))
"""


_CHECKPOINTS = {"train": {"checkpoint_s": 0}}
_CROPS = {"data": {"crop": "resized", "image_size": 8}}


@pytest.mark.parametrize(
    ("changes", "part", "least"),
    [(_CHECKPOINTS, "", 8), (_CHECKPOINTS | _CROPS, "/checkpoint", 2)],
    ids=["every write", "random crops, every checkpoint"],
)
def test_kill_9_at_any_write_and_the_same_command_ends_bit_identical(
    tmp_path: Path, changes: dict[str, Any], part: str, least: int
) -> None:
    """The process dies at its 2nd write of a key that contains `part`, the next process at its 3rd, and so on, until a
    run reaches its end. At least `least` processes die before."""
    run_python("-c", _KILLED, str(tmp_path / "killed"), json.dumps(changes), part, str(least))
    run_python("-c", _STRAIGHT, str(tmp_path / "straight"), json.dumps(changes))
    straight = digests(Workspace(str(tmp_path / "straight")))
    assert len(straight) == 15
    assert digests(Workspace(str(tmp_path / "killed"))) == straight
    assert not list((tmp_path / "killed").rglob("*checkpoint*"))
