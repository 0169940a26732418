"""How much memory there is, so that what cannot fit is refused before it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import torch

#: Limits of the container, of the second and the first version of cgroups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes(device: torch.device) -> int:
    """What the device has in all: of a CPU the machine's, or what the container may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in _LIMITS:
        try:
            found.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return min(found)
