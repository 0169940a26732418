"""Ends a process of this machine that hangs; the others would wait for it for days.

Only an epoch is watched: a step takes seconds. Elsewhere one process may work for hours while the others wait, as in a
selection. If all processes share the epoch, or exchange something, and none makes a step for an hour, then the one that
has made the fewest hangs. A process that trains a model by itself hangs if it makes no step for an hour.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from lipt.runtime.processes.failures import KilledError
from lipt.training.pulse import Phase, Pulse, read_pulse


class Standstill:
    """Looks at the processes of one stage.

    Args:
        folder: where they show their pulses.
        after_s: seconds without a step, after which a process hangs.
    """

    def __init__(self, folder: Path, processes: int, *, after_s: float) -> None:
        self.paths = [pulse_path(folder, rank) for rank in range(processes)]
        self.after_s = after_s
        self.last: list[int] = []
        """The ranks of the processes that hang, the first of which was ended. Several, if none is behind the others."""
        self._seen: list[Pulse | None] = [None] * processes
        self._still_s = [0.0] * processes

    def look(self, passed_s: float) -> None:
        """Look at all processes, and end one that hangs.

        Args:
            passed_s: since the last look, without the time in which this process was suspended with the others.
        """
        for rank, path in enumerate(self.paths):
            pulse = read_pulse(path)
            self._still_s[rank] = self._still_s[rank] + passed_s if pulse == self._seen[rank] else 0.0
            self._seen[rank] = pulse
        if not self.last:
            self.last = self._hanging()
            for rank in self.last[:1]:
                pulse = self._seen[rank]
                assert pulse is not None
                with suppress(ProcessLookupError):
                    os.kill(pulse.pid, signal.SIGKILL)

    def _hanging(self) -> list[int]:
        still = {
            rank: pulse
            for rank, pulse in enumerate(self._seen)
            if pulse is not None and self._still_s[rank] >= self.after_s
        }
        alone = [rank for rank, pulse in still.items() if pulse.phase == Phase.ALONE]
        if alone:
            return alone[:1]
        if len(still) < len(self.paths) or any(pulse.phase != Phase.TOGETHER for pulse in still.values()):
            return []
        fewest = min(pulse.shared for pulse in still.values())
        return [rank for rank, pulse in still.items() if pulse.shared == fewest]

    def error(self, label: str) -> KilledError:
        """The error of the stage, if a process was ended."""
        named = " and ".join(map(str, self.last))
        which = f"process {named}" if len(self.last) == 1 else f"one of the processes {named}"
        return KilledError(
            f"{label}: {which} of {len(self.paths)} hung: no step of the training for {self.after_s / 60:g} minutes",
            "see whether its store, disk and GPU answer (dmesg, nvidia-smi); then run the same command again: finished "
            "stages and checkpoints are kept",
            rank=self.last[0],
        )


def pulse_path(folder: Path, rank: int) -> Path:
    """Where a process shows its pulse."""
    return folder / f"pulse-{rank}"
