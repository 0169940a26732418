"""Several processes train one model together: each takes a part of every batch.

Apart from rounding, the result is the same as on one device. For this, the loss is averaged over the whole batch
(DistributedDataParallel averages gradients) and BatchNorm's statistics cover the whole batch (`SyncedBatchNorm`).

Shape legend: B batch, P a process's part of it, C channels, R processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from lipt.errors import UsageError
from lipt.training.pulse import Phase, phase, step

# Long, because the others wait while the first process selects or writes. If a process fails, the launcher ends all. If
# one hangs in an epoch, the parent ends it (`lipt.runtime.processes.standstill`).
_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The rank of this process and the number of processes that train together; by default one.

    All processes must call every method except `part`, in the same order.
    """

    rank: int = 0
    count: int = 1

    def part(self, rows_B: Tensor) -> Tensor:
        """Positions in a batch, int64 (P,), of the images for this process. Parts differ by at most one image.

        Neighbours in the data set stay together, so that each process reads contiguous runs of a streamed set.
        """
        if self.count == 1:
            return torch.arange(len(rows_B))
        return rows_B.argsort(stable=True).tensor_split(self.count)[self.rank]

    def replicate(self, model: nn.Module) -> nn.Module:
        """The network to train: its backward pass leaves the averaged gradients in the parameters of `model`.

        BatchNorm layers of `model` become synchronised ones, in place.

        Raises:
            UsageError: a BatchNorm layer computes something of its own.
        """
        if self.count == 1:
            return model
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                _check_forward(type(module))
                module.__class__ = SyncedBatchNorm  # keeps parameters, buffers, name and place
        # find_unused_parameters: a user's model may have some. It also keeps the layout of the gradient buckets, which
        # otherwise changes after the first step, so that a resumed run would round differently.
        # Its import of torch's compiler costs 5 s of CPU time, but it sends gradients during the backward pass.
        # torch 2.15 renamed an argument, and warns of its old name.
        new, old = "forward_sync_buffers", "broadcast_buffers"
        name = new if new in signature(DistributedDataParallel).parameters else old
        buffers: dict[str, Any] = {name: _has_other_buffers(model)}
        network: nn.Module = DistributedDataParallel(
            model, find_unused_parameters=True, gradient_as_bucket_view=True, **buffers
        )
        return network

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, on the tensor's device."""
        if self.count > 1:
            tensor = tensor.clone()
            with phase(Phase.TOGETHER):
                dist.all_reduce(tensor)
        return tensor

    def broadcast(self, data: bytes, *, source: int = 0) -> bytes:
        """The bytes that process `source` passes; those of the other processes are ignored."""
        if self.count == 1:
            return data
        length = torch.tensor(len(data))
        with phase(Phase.TOGETHER):
            dist.broadcast(length, source)
            content = torch.empty(int(length), dtype=torch.uint8)
            if self.rank == source and data:
                content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            if len(content):
                dist.broadcast(content, source)
        return content.numpy().tobytes()

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes that each process passes, by rank."""
        return [self.broadcast(data, source=rank) for rank in range(self.count)]


@contextmanager
def process_group(device: torch.device, *, local_rank: int) -> Iterator[Ranks]:
    """Connect to the processes that torchrun's environment variables name; on CUDA, process i of a pod uses GPU i."""
    if device.type == "cuda":
        torch.cuda.set_device(local_rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
    yield Ranks(rank=dist.get_rank(), count=dist.get_world_size())
    dist.destroy_process_group()


def _has_other_buffers(model: nn.Module) -> bool:
    """Whether there are buffers besides those of BatchNorm, which are the same in all processes anyway."""
    others = (module for module in model.modules() if not isinstance(module, _BatchNorm))
    return any(True for module in others for _ in module.buffers(recurse=False))


def _check_forward(kind: type[_BatchNorm]) -> None:
    if kind.forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
        raise UsageError(
            f"{kind.__name__} is a BatchNorm with a forward of its own: several processes cannot share its statistics",
            "use torch's BatchNorm and a layer for the rest, or set processes: 1",
        )


class _AnyBatchNorm(_BatchNorm):
    """BatchNorm for any number of dimensions."""

    def _check_input_dim(self, x: Tensor) -> None:
        """Accept any shape (P, C, ...)."""


class SyncedBatchNorm(_AnyBatchNorm):
    """BatchNorm over the whole batch, with parts of any size; unlike torch's SyncBatchNorm it also works on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            mean_C, var_C, count = _moments(x)
            if self.running_mean is not None and self.running_var is not None:
                assert self.num_batches_tracked is not None
                self.num_batches_tracked.add_(1)
                momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean_C, momentum)
                self.running_var.lerp_(var_C * (count / (count - 1)), momentum)
        normalised: Tensor = _Normalise.apply(x, self.weight, self.bias, mean_C, var_C, count, self.eps)
        return normalised


@contextmanager
def alone(model: nn.Module) -> Iterator[None]:
    """Inside the block, BatchNorm layers of `model` take the batch of this process as the whole batch."""
    synced: list[nn.Module] = [module for module in model.modules() if isinstance(module, SyncedBatchNorm)]
    for module in synced:
        module.__class__ = _AnyBatchNorm
    try:
        yield
    finally:
        for module in synced:
            module.__class__ = SyncedBatchNorm


def _moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (C,), biased variance (C,) and number of values per channel () over all processes, float32."""
    own = x.new_zeros(3, x.shape[1], dtype=torch.float32)
    if len(x):
        dims = _all_but_channels(x)
        own[0] = x.mean(dims, dtype=torch.float32)
        own[1] = (x - own[0].view(_per_channel(x))).square_().mean(dims)  # torch.var_mean is four times slower
        own[2] = x.numel() / x.shape[1]
    step()
    stats = own.new_empty(dist.get_world_size() * len(own), x.shape[1])
    dist.all_gather_into_tensor(stats, own)
    means, variances, counts = stats.view(-1, *own.shape).unbind(1)
    count = counts[:, 0].sum()
    shares = counts / count
    mean = (shares * means).sum(0)
    # From differences of means: E[x^2] - E[x]^2 would lose precision by cancellation.
    return mean, (shares * (variances + (means - mean).square())).sum(0), count


class _Normalise(torch.autograd.Function):
    """(x - mean) / sqrt(var + eps) * weight + bias, with mean and var over the x of all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean_C: Tensor,
        var_C: Tensor,
        count: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean_C, (var_C + eps).rsqrt(), count)
        ctx.has_bias = bias is not None
        return F.batch_norm(x, mean_C, var_C, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean_C, inverse_C, count = ctx.saved_tensors
        per_channel, dims = _per_channel(x), _all_but_channels(x)
        dy = gradients[0].float()
        x_hat = (x - mean_C.view(per_channel)).mul_(inverse_C.view(per_channel))
        own = torch.stack([dy.sum(dims), (dy * x_hat).sum(dims)])
        sums = own.clone()
        step()
        dist.all_reduce(sums)
        mean_dy, mean_dy_x_hat = (sums / count).unbind(0)
        scale = inverse_C if weight is None else inverse_C * weight
        # scale * (dy - mean_dy - x_hat * mean_dy_x_hat), in place: a fresh tensor per operation costs more than the sum
        dx = x_hat.mul_(-mean_dy_x_hat.view(per_channel)).add_(dy).sub_(mean_dy.view(per_channel))
        dx = dx.mul_(scale.view(per_channel))
        # Weight and bias get this process's share: DistributedDataParallel averages it, like every gradient.
        affine = None if weight is None else own[1], own[0] if ctx.has_bias else None
        return dx.to(x.dtype), *affine, None, None, None, None


def _per_channel(x: Tensor) -> list[int]:
    return [1, -1, *[1] * (x.dim() - 2)]


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]
