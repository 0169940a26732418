"""A device that fails, and what else means that one part of a stage is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from lipt.errors import RunError, TransientError
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.lost import lost_part
from lipt.runtime.processes import parts
from lipt.runtime.stage import Stage
from tests.pipeline import rank_work
from tests.tiny import tiny_context


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (torch.AcceleratorError("CUDA error: an uncorrectable ECC error was encountered"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (NotImplementedError("CUDA error"), False),
        (ValueError("out of memory"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), False),
    ],
)
def test_what_means_that_a_part_is_lost(error: Exception, lost: bool) -> None:
    assert (lost_part(error) is not None) == lost


def test_a_stage_that_runs_out_of_memory_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"can't allocate memory") as caught:
        rank_work.immense(tiny_context(tmp_path), index=1).make()
    assert caught.value.remedy == "lower the batch size, or use a machine or GPU with more memory"


def test_what_to_do_depends_on_what_ran_out() -> None:
    for number, told in ((errno.ENOSPC, "free space on its disk"), (errno.ENOMEM, "lower the batch size, or")):
        lost = lost_part(OSError(number, os.strerror(number)))
        assert lost is not None
        assert lost.remedy.startswith(told)


def test_a_gpu_that_fails_ends_the_share_and_another_attempt_makes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further call on such a GPU fails. A pod ends with the code that its Job repeats."""
    ctx, tried = tiny_context(tmp_path), list[int]()

    def maker(ctx: Context, *, index: int) -> Stage:
        def body(attempt: Attempt) -> dict[str, Any]:
            tried.append(index)
            if tried == [0, 1]:
                raise torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")
            attempt.put("number", b"1", kind="other")
            return {}

        return Stage(ctx=ctx, name="demo", settings={"index": index}, inputs=[], body=body, label=f"demo[{index}]")

    with pytest.raises(TransientError, match="the GPU failed: AcceleratorError: CUDA error: uncorrectable ECC"):
        parts.make_in_turn(ctx, maker, dict.fromkeys(range(3), ()))
    assert tried == [0, 1]
    made, lost = parts.make_in_turn(ctx, maker, dict.fromkeys(range(3), ()))
    assert (list(made), lost, tried) == ([0, 1, 2], {}, [0, 1, 1, 2])


def test_a_gpu_that_fails_in_another_process_is_told_as_such(tmp_path: Path) -> None:
    ctx = tiny_context(tmp_path, {"processes": 2})
    with pytest.raises(TransientError, match=r"the GPU failed: .*an illegal memory access"):
        parts.make_parts(ctx, rank_work.broken_gpu, dict.fromkeys(range(3), ()))
