"""What a process shows of its steps, and which process hangs."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from lipt.runtime.processes.standstill import Standstill, pulse_path
from lipt.training import pulse
from lipt.training.pulse import Phase, Pulse, phase, read_pulse, show_pulse, step


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which this process shows its pulse, for the time of a test."""
    monkeypatch.setattr(pulse, "_fields", pulse._fields)
    show_pulse(tmp_path / "pulse")
    return tmp_path / "pulse"


def test_others_see_each_step_and_phase(shown: Path) -> None:
    def seen() -> tuple[int, int, int]:
        found = read_pulse(shown)
        assert found is not None
        return found.phase, found.steps, found.shared

    assert seen() == (Phase.FREE, 0, 0)
    step()
    assert seen() == (Phase.FREE, 1, 0)
    with phase(Phase.TOGETHER):
        assert seen() == (Phase.TOGETHER, 2, 1)
        with phase(Phase.ALONE):
            step()
            assert seen() == (Phase.ALONE, 4, 1)
        assert seen() == (Phase.TOGETHER, 5, 1)
    assert seen() == (Phase.FREE, 6, 2)


def test_without_a_parent_steps_are_noted_nowhere(tmp_path: Path) -> None:
    step()
    assert read_pulse(tmp_path / "pulse") is None


FREE, ALONE, TOGETHER = Phase.FREE, Phase.ALONE, Phase.TOGETHER


@pytest.mark.parametrize(
    ("processes", "goes_on", "last"),
    [
        ([(TOGETHER, 9), (TOGETHER, 8)], [], [1]),
        ([(TOGETHER, 8), (TOGETHER, 9), (TOGETHER, 8)], [], [0, 2]),
        ([(TOGETHER, 9), (TOGETHER, 8)], [0], []),  # it reads, say
        ([(FREE, 9), (TOGETHER, 10)], [], []),  # it selects
        ([(FREE, 0), (FREE, 0)], [], []),  # they score
        ([(ALONE, 1), (TOGETHER, 5)], [], [0]),  # the other has no more parts
        ([(FREE, 1), (ALONE, 5)], [0], [1]),
        ([(ALONE, 1), (ALONE, 5)], [0, 1], []),
        ([(TOGETHER, 1), None], [], []),  # it still starts
    ],
)
def test_who_hangs(
    processes: list[tuple[Phase, int] | None],
    goes_on: list[int],
    last: list[int],
    tmp_path: Path,
) -> None:
    children = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in processes]
    standstill = Standstill(tmp_path, len(processes), after_s=3600)
    steps = 0

    def show() -> None:
        for rank, (child, found) in enumerate(zip(children, processes, strict=True)):
            if found is not None:
                shown = Pulse(child.pid, found[0], steps * (rank in goes_on), found[1])
                pulse_path(tmp_path, rank).write_bytes(struct.pack("qqqq", *shown))

    try:
        for passed_s in (0.5, 1800, 1799.5):
            steps += 1
            show()
            standstill.look(passed_s)
            assert not standstill.last
        steps += 1
        show()
        standstill.look(0.5)
        assert standstill.last == last
        for child in children[last[0] :][:1] if last else []:
            assert child.wait(10) == -signal.SIGKILL
        if last:
            error = standstill.error("train")
            assert error.rank == last[0]
            assert f"of {len(processes)} hung: no step of the training for 60 minutes" in error.message
    finally:
        for child in children:
            child.communicate(b"\n")
