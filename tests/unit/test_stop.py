"""A signal that arrives between taking a lock and the block that gives it back."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

#: The signal arrives when Python returns from taking the lock of a queue. `at_once` is called as if by that code.
_PROGRAM = """
import queue, signal, sys
from lipt.errors import Stop
Stop(KeyboardInterrupt).on(signal.SIGINT)
places = queue.Queue()
places.put(1)
names = {"__name__": "threading", "signal": signal}
exec("def at_once(): signal.raise_signal(signal.SIGINT)", names)
def trace(frame, event, _value):
    if event == "return" and frame.f_code.co_name == "__enter__":
        sys.settrace(None)
        names["at_once"]()
    return trace
try:
    sys.settrace(trace)
    try:
        places.get()
    finally:
        places.put(1)  # as urllib3 gives a connection back; waits for ever if the lock is still taken
    while True:
        pass
except KeyboardInterrupt:
    print("stopped", places.qsize())
"""


def test_a_lock_is_given_back_before_the_process_stops() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "stopped 1\n"


@pytest.mark.parametrize("wait", ["threading.Event().wait()", "queue.Queue().get()"])
def test_a_wait_for_another_thread_is_stopped(wait: str) -> None:
    program = f"""
import queue, signal, threading
from lipt.errors import Stop
Stop(KeyboardInterrupt).on(signal.SIGINT)
print("waits", flush=True)
try:
    {wait}
except KeyboardInterrupt:
    print("stopped")
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "stopped\n"


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_while_the_process_ends_leaves_no_traceback(second: signal.Signals) -> None:
    program = """
import atexit, signal, time
from lipt.errors import Stop, end_interrupted
def slow():
    print("ends", flush=True)
    time.sleep(60)
atexit.register(slow)
Stop(KeyboardInterrupt).on(signal.SIGINT)
try:
    print("waits", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    end_interrupted()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "ends\n"
    process.send_signal(second)
    _, said = process.communicate(timeout=30)
    assert process.returncode == -second
    assert said == "lipt: interrupted\n  -> the same command continues: finished stages are kept\n"
