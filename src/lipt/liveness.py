"""Tells the kubelet that a pod of a training goes on: the pod touches a file at every step, and its probe looks at it.

If a pod makes no step for an hour, it hangs: the kubelet kills it, the others notice, and all start again. A step takes
seconds; a re-selection may take many minutes. Pod and probe read the clock of the same node. If that is set forward by
an hour, the next step touches the file again, before the probe has failed twice.
"""

import os
from pathlib import Path

#: The variable that names the file. Without it there is no probe.
VARIABLE = "LIPT_PROGRESS"
_STALLED_S = 3600


def note_progress() -> None:
    """Touch the file, if there is a probe."""
    if VARIABLE in os.environ:
        Path(os.environ[VARIABLE]).touch()


def stalled_check(path: str, after_s: float = _STALLED_S) -> list[str]:
    """A command that fails if the file was not touched for `after_s` seconds; no file: Python still starts."""
    found = f"os.path.exists({path!r}) and time.time() - os.stat({path!r}).st_mtime > {after_s!r}"
    return ["python3", "-Sc", f"import os, sys, time; sys.exit({found})"]
