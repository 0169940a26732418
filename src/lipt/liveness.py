"""When a training hangs. The parent of several processes on one machine looks at them itself (`Standstill`).

A pod tells the kubelet that it goes on: it touches a file at every step, and its probe looks at this file. If it makes
no step for an hour, it hangs: the kubelet kills it, the others notice, and all start again. A step takes seconds; a
re-selection may take many minutes. Pod and probe read the clock of the same node. If that is set forward by an hour,
the next step touches the file again, before the probe has failed twice.
"""

import os
from pathlib import Path

#: The variable that names the file. Without it there is no probe.
VARIABLE = "LIPT_PROGRESS"
#: Seconds without a step, after which a training hangs.
STALLED_S = 3600


def is_probed() -> bool:
    """Whether the kubelet looks at this pod."""
    return VARIABLE in os.environ


def note_progress() -> None:
    """Touch the file, if there is a probe."""
    if is_probed():
        Path(os.environ[VARIABLE]).touch()


def stalled_check(path: str) -> list[str]:
    """A command that fails if the file was not touched for `STALLED_S` seconds; no file: Python still starts."""
    found = f"os.path.exists({path!r}) and time.time() - os.stat({path!r}).st_mtime > {STALLED_S!r}"
    return ["python3", "-Sc", f"import os, sys, time; sys.exit({found})"]
