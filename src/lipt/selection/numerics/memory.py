"""The total memory, so that a problem that cannot fit is refused before memory is allocated."""

from __future__ import annotations

import os
from pathlib import Path

#: Memory limits of the container in cgroups v2 and v1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """The total memory of the machine, or the container's limit if lower."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in _LIMITS:
        try:
            found.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return min(found)
