"""Which failure of several is the error, without starting a process: the reports are those that children write."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from lipt.adapters.store import StoreError
from lipt.errors import LiptError, UnexpectedError
from lipt.runtime.processes import child
from lipt.runtime.processes.child import REQUEST
from lipt.runtime.processes.failures import KilledError, first_error
from lipt.runtime.processes.parent import name_of
from lipt.training.distributed import Ranks
from tests.pipeline import rank_work
from tests.tiny import tiny_context


class EndedError(BaseException):
    """In place of the end of a process."""


def failed(rank: int, work: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessFailure:
    """What the launcher learns of a process that does this work: here it is this one."""
    told = folder / f"error-{rank}.json"

    @contextmanager
    def group(_device: torch.device, *, local_rank: int) -> Iterator[Ranks]:
        yield Ranks(rank=local_rank, count=2)

    def end(code: int) -> None:
        raise EndedError(code)

    request = {
        "config": tiny_context(folder).config.model_dump(mode="json"),
        "codes": {},
        "work": name_of(work),
        "options": {},
        "threads": torch.get_num_threads(),
        "parent": os.getppid(),
    }
    (folder / REQUEST).write_text(json.dumps(request))
    environment = {"RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "TORCHELASTIC_ERROR_FILE": told}
    with monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, str(value))
        patch.setattr(sys, "argv", ["", str(folder)])
        patch.setattr(child, "process_group", group)
        patch.setattr(child, "show_pulse", lambda _path: None)
        patch.setattr(child, "_end_with", lambda _parent: None)
        patch.setattr(os, "_exit", end)
        with pytest.raises(EndedError) as ended:
            child.run_rank()
    return ProcessFailure(rank, 0, ended.value.args[0], str(told))


@pytest.mark.parametrize(
    ("work", "kind", "message", "traces"),
    [
        (rank_work.full, StoreError, "^s3://bucket: the store is full\n  -> free space$", 0),
        (rank_work.mistaken, UnexpectedError, "^failing: process 1 of 2: ZeroDivisionError: by zero", 1),
    ],
)
def test_the_error_of_one_process_explains_that_the_other_lost_it(
    work: Callable[..., Any],
    kind: type[LiptError],
    message: str,
    traces: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the other one ended first."""
    failures = {rank: failed(rank, work, tmp_path, monkeypatch) for rank in (0, 1)}
    assert [failure.exitcode for failure in failures.values()] == [1, 1]
    error = first_error(failures, 2, "failing", None)
    assert type(error) is kind
    assert re.search(message, str(error))
    assert error.exit_code == 1
    trace = error.trace if isinstance(error, UnexpectedError) else ""
    assert trace.count("ZeroDivisionError: by zero") == traces


@pytest.mark.parametrize(
    ("codes", "rank", "name"),
    [
        ((-signal.SIGTERM, -signal.SIGABRT), 1, "SIGABRT"),  # as when a C++ library calls `terminate`
        ((-signal.SIGABRT, -signal.SIGTERM), 0, "SIGABRT"),
        ((-signal.SIGABRT, -signal.SIGKILL), 1, "SIGKILL"),
    ],
)
def test_the_launcher_and_a_lost_partner_are_not_the_reason(codes: tuple[int, int], rank: int, name: str) -> None:
    """The launcher stops a process with SIGTERM, and one that has lost its partner may abort."""
    failures = {index: ProcessFailure(index, 0, code, "") for index, code in enumerate(codes)}
    error = first_error(failures, 2, "failing", None)
    assert isinstance(error, KilledError)
    assert error.message == f"failing: process {rank} of 2 was killed ({name})"
    assert error.rank == rank
    assert error.exit_code == 1
