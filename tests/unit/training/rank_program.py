"""What the processes of `test_distributed` do; `python -m tests.unit.training.rank_program FOLDER` leaves tensors.

One import of torch, then a fork per process: the tests take seconds instead of minutes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lipt.data.augmentation import StandardAugment, no_augmentation
from lipt.data.images import ResidentImages
from lipt.rng import global_seed
from lipt.training import loop
from lipt.training.distributed import Ranks, process_group
from lipt.training.loop import Trainer, train
from lipt.training.raptr import RaptrSchedule
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import state_of
from tests.conftest import free_port
from tests.unit.training.helpers import Smooth, blocks

CPU = torch.device("cpu")
Tensors = dict[str, Tensor]


def without_bias() -> nn.Module:
    """As `nn.BatchNorm2d(4, bias=False)` of newer versions of PyTorch."""
    layer = nn.BatchNorm2d(4)
    layer.register_parameter("bias", None)
    return layer


#: name -> (layer, input per process)
NORMS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]]]] = {
    "even": (lambda: nn.BatchNorm2d(4), [(4, 4, 3, 3), (4, 4, 3, 3)]),
    "uneven": (lambda: nn.BatchNorm2d(4), [(5, 4, 3, 3), (2, 4, 3, 3)]),
    "single": (lambda: nn.BatchNorm2d(4), [(1, 4, 1, 1), (6, 4, 1, 1)]),
    "empty": (lambda: nn.BatchNorm2d(4), [(3, 4, 3, 3), (0, 4, 3, 3)]),
    "cumulative": (lambda: nn.BatchNorm2d(4, momentum=None), [(3, 4, 3, 3), (2, 4, 3, 3)]),
    "no-statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), [(3, 4, 3, 3), (2, 4, 3, 3)]),
    "without-bias": (without_bias, [(4, 4, 3, 3), (4, 4, 3, 3)]),
    "vectors": (lambda: nn.BatchNorm1d(4), [(3, 4), (4, 4)]),
}


def norm_inputs(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Layer, x and dL/dy of the whole batch; channels far from zero, where a careless variance cancels."""
    make, shapes = NORMS[name]
    rng = torch.Generator().manual_seed(7)
    count = sum(shape[0] for shape in shapes)
    layer = make()
    for parameter in layer.parameters():
        parameter.data = torch.rand(4, generator=rng) + 0.5
    x, dy = (torch.randn(count, *shapes[0][1:], generator=rng) for _ in range(2))
    return layer, x * 3 + 1000, dy


def run_norm(network: nn.Module, layer: nn.Module, x: Tensor, dy: Tensor) -> Tensors:
    """Two training steps (gradients of the second), then evaluation."""
    network.train()
    for _ in range(2):
        layer.zero_grad()
        x = x.detach().clone().requires_grad_()
        y = network(x)
        (y * dy).sum().backward()
    assert x.grad is not None
    network.eval()
    found = {"y": y, "dx": x.grad, **dict(layer.named_buffers())}
    if layer.running_mean is not None:
        found["eval"] = network(x)
    found |= {f"d {name}": parameter.grad for name, parameter in layer.named_parameters() if parameter.grad is not None}
    return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}


def _norms(ranks: Ranks) -> Tensors:
    found: Tensors = {}
    for name, (_, shapes) in NORMS.items():
        layer, x, dy = norm_inputs(name)
        sizes = [shape[0] for shape in shapes]
        # Times the number of processes, since their gradients are averaged and here the loss is a sum.
        part = run_norm(ranks.replicate(layer), layer, x.split(sizes)[ranks.rank], dy.split(sizes)[ranks.rank] * 2)
        found |= {f"{name}/{key}": tensor for key, tensor in part.items()}
    return found


#: n, batch size: batches of unequal size, and (3 processes) a last one that leaves a process without images
SETS = {2: (90, 32), 3: (50, 16)}
EPOCHS = 5


#: What is trained by several processes: all blocks in each step, or random subnetworks.
RAPTRS = {"full": None, "raptr": RaptrSchedule(keep=(0.5, 0.8, 1.0))}


def make_trainer(count: int, ranks: Ranks, kind: str) -> tuple[Trainer, ResidentImages, Tensor]:
    n, batch_size = SETS[count]
    with global_seed(0, "weights"):
        model = Smooth(num_classes=4, residual=2 * (kind == "raptr"))
        model.unused = nn.Parameter(torch.ones(3))  # as a model of the user's own may have
    augment = StandardAugment(padding=1, flip=True)
    recipe = Recipe(
        epochs=EPOCHS, batch_size=batch_size, lr=0.02, schedule="cosine", augment=augment, raptr=RAPTRS[kind]
    )
    return Trainer(model, recipe, seed=3, device=CPU, ranks=ranks), blocks(n=n), torch.linspace(0.2, 3, n)


def outcome(trainer: Trainer) -> Tensors:
    curves = {"loss": torch.tensor(trainer.progress.loss), "accuracy": torch.tensor(trainer.progress.accuracy)}
    tensors = trainer.tensors()
    momentum = {name: tensors[name].contiguous() for name in tensors if name.startswith("momentum/")}
    return state_of(trainer.model) | momentum | curves


def _training(ranks: Ranks, kind: str) -> Tensors:
    loop.STEPS_PER_PART = 2  # an epoch has three or four steps; this process is a fork
    trainer, images, weights_N = make_trainer(ranks.count, ranks, kind)
    train(trainer, lambda _trainer: (images, weights_N))
    found = {f"{kind}/straight/{name}": tensor for name, tensor in outcome(trainer).items()}
    for stop, after in (("resumed", (2, 0)), ("resumed within an epoch", (2, 1))):
        saved: list[tuple[Tensors, TrainingProgress]] = []

        def save(stopped: Trainer, after: tuple[int, int] = after, saved: list[Any] = saved) -> None:
            if (stopped.progress.epoch, stopped.progress.part) == after:
                stopped.collect()
                tensors = {name: tensor.clone() for name, tensor in stopped.tensors().items()}
                saved.append((tensors, deepcopy(stopped.progress)))

        first, _, _ = make_trainer(ranks.count, ranks, kind)
        train(first, lambda _trainer: (images, weights_N), after_epoch=save, after_part=save)
        resumed, _, _ = make_trainer(ranks.count, ranks, kind)
        resumed.restore(*saved[0])
        train(resumed, lambda _trainer: (images, weights_N))
        found |= {f"{kind}/{stop}/{name}": tensor for name, tensor in outcome(resumed).items()}
    return found


def _messages(ranks: Ranks) -> Tensors:
    assert ranks.gather(f"process {ranks.rank}".encode()) == [f"process {rank}".encode() for rank in range(ranks.count)]
    assert ranks.broadcast(b"last" if ranks.rank == ranks.count - 1 else b"", source=ranks.count - 1) == b"last"
    assert ranks.broadcast(b"" if ranks.rank == 0 else b"ignored") == b""
    return {"sum": ranks.sum(torch.tensor([1.0, ranks.rank]))}


class Masked(Smooth):
    """Draws as Dropout does, and remembers what it drew."""

    def __init__(self) -> None:
        super().__init__(num_classes=4)
        self.drawn: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.drawn.append(torch.rand(8))
        return super().forward(x)


def _draws(ranks: Ranks) -> Tensors:
    recipe = Recipe(epochs=2, batch_size=16, lr=0.05, schedule="constant", augment=no_augmentation)
    model = Masked()
    train(Trainer(model, recipe, seed=5, device=CPU, ranks=ranks), lambda _trainer: (blocks(), None))
    return {"draws": torch.stack(model.drawn)}


def _fork(count: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    children = []
    for rank in range(count):
        if child := os.fork():
            children.append(child)
            continue
        os.environ["RANK"] = str(rank)
        with process_group(CPU, local_rank=rank) as ranks:
            found = (
                _training(ranks, "full")
                | _training(ranks, "raptr")
                | _messages(ranks)
                | _draws(ranks)
                | (_norms(ranks) if count == 2 else {})
            )
        save_file(found, folder / f"{rank}-of-{count}.safetensors")
        os._exit(0)
    for child in children:
        if status := os.waitpid(child, 0)[1]:
            sys.exit(f"a process of {count} ended with status {status}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
    for number in SETS:
        _fork(number, Path(sys.argv[1]))
