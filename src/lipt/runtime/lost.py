"""Which exceptions mean that one part of a stage is lost, that another process ended, or a bug."""

import errno

import torch
import torch.distributed as dist

from lipt.errors import RunError, TransientError, in_one_line

#: Only from torch 2.8 on; before, such errors are of type RuntimeError.
_DEVICE_FAILED = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)
#: Texts of the CPU's allocator, of CUDA and of its libraries.
_LOST = ("can't allocate memory", "out of memory", "CUDA error", "cuDNN error", "CUDNN_STATUS")
#: Errors of a disk that is full or fails.
_DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE)
#: Texts of CUDA errors that come from a wrong request: bugs.
_BUGS = ("device-side assert", "INVALID_VALUE", "NOT_SUPPORTED")


def lost_part(error: BaseException) -> RunError | None:
    """The error to raise if memory ran out, or a disk or a library of the device failed: another part may succeed.

    None: any other exception is a bug in LiPT or in the user's model, and would stop every part.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in _DISK:
        return RunError(in_one_line(error), "free space on its disk")
    is_memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or number == errno.ENOMEM
    if is_memory or (failed_device(error) is None and any(part in _from_device(error) for part in _LOST)):
        return RunError(in_one_line(error), "lower the batch size, or use a machine or GPU with more memory")
    return None


def failed_device(error: BaseException) -> TransientError | None:
    """The error to raise if a GPU failed: each further call of this process fails, too, but another GPU may do it."""
    text = _from_device(error)
    if "CUDA error" not in text or "out of memory" in text:
        return None
    return TransientError(
        f"the GPU failed: {in_one_line(error)}",
        "run again: what is finished is kept. If it fails again, look at the GPU (nvidia-smi, dmesg)",
    )


def _from_device(error: BaseException) -> str:
    """What a device or its allocator says; empty if the error is of another kind, or a bug."""
    text, is_device = str(error), isinstance(error, _DEVICE_FAILED) or type(error) is RuntimeError
    return text if is_device and not any(part in text for part in _BUGS) else ""


def is_disconnect(error: BaseException) -> bool:
    """Whether the process group failed: another process ended, and the reason is there."""
    return isinstance(error, (dist.DistNetworkError, dist.DistBackendError, dist.DistStoreError)) or (
        type(error) is RuntimeError and "gloo/" in str(error)
    )
