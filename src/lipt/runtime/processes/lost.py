"""Which exceptions mean that one part of a stage is lost, that another process ended, or a bug."""

import errno

import torch
import torch.distributed as dist

#: Only from torch 2.8 on; before, such errors are of type RuntimeError.
_DEVICE_FAILED = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)
#: Texts of the CPU's allocator, of CUDA and of its libraries.
_LOST = ("can't allocate memory", "out of memory", "CUDA error", "cuDNN error", "CUDNN_STATUS")
#: Errors of a disk that is full or fails.
_DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.ESTALE)
#: Texts of CUDA errors that come from a wrong request: bugs.
_BUGS = ("device-side assert", "INVALID_VALUE", "NOT_SUPPORTED")


def is_lost_part(error: BaseException) -> bool:
    """Whether memory ran out, or a device or disk failed, so that another part or attempt may succeed.

    Any other exception is a bug in LiPT or in the user's model, and would stop every part.
    """
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno in _DISK
    is_device = isinstance(error, _DEVICE_FAILED) or type(error) is RuntimeError
    text = str(error)
    return is_device and any(part in text for part in _LOST) and not any(part in text for part in _BUGS)


def is_disconnect(error: BaseException) -> bool:
    """Whether the process group failed: another process ended, and the reason is there."""
    return isinstance(error, (dist.DistNetworkError, dist.DistBackendError, dist.DistStoreError)) or (
        type(error) is RuntimeError and "gloo/" in str(error)
    )
