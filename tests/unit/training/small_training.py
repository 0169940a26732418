"""A small training of short parts, and all that its checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from lipt.data.augmentation import StandardAugment
from lipt.rng import global_seed
from lipt.training.draws import InfoBatch, LossDraws, Ordered
from lipt.training.dynamics import Dynamics
from lipt.training.loop import Trainer, train
from lipt.training.raptr import RaptrSchedule
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import State, below, pack, state_of, unpack
from tests.unit.training.helpers import blocks, smooth_residual, with_dropout

N, EPOCHS = 90, 3
RECIPE = Recipe(epochs=EPOCHS, batch_size=16, lr=0.02, schedule="cosine", augment=StandardAugment(padding=1, flip=True))


class Training:
    """A training and all that its checkpoint holds."""

    def __init__(self, kind: str) -> None:
        with global_seed(0, "weights"):
            model: nn.Module = with_dropout(4) if kind == "dropout" else smooth_residual(4)
        recipe = replace(RECIPE, raptr=RaptrSchedule(keep=(0.5, 1.0)) if kind == "raptr" else None)
        recipe = replace(recipe, steps=13 if kind == "steps" else None)
        self.draws: LossDraws | None = None
        if kind == "infobatch":
            self.draws = InfoBatch(torch.full((N,), torch.nan), probability=0.5)
        elif kind == "ordered":
            recipe, self.draws = replace(recipe, epoch_size=80), Ordered(torch.full((N,), torch.nan), count=70)
        self.trainer = Trainer(model, recipe, seed=5, device=torch.device("cpu"))
        self.dynamics = Dynamics.empty(N, EPOCHS)
        self.images, self.weights_N = blocks(n=N), torch.linspace(0.2, 3, N) if kind == "weights" else None

    def run(self, after_part: Callable[[Trainer], None], after_epoch: Callable[[Trainer], None]) -> None:
        torch.manual_seed(torch.randint(1000, ()).item())  # what others draw changes nothing
        train(
            self.trainer,
            lambda _trainer: (self.images, self.weights_N),
            dynamics=self.dynamics,
            draws=self.draws,
            after_epoch=after_epoch,
            after_part=after_part,
        )

    def saved(self) -> tuple[bytes, TrainingProgress]:
        tensors = self.trainer.tensors() | {f"dynamics/{name}": tensor for name, tensor in vars(self.dynamics).items()}
        if self.draws:
            tensors |= {f"draws/{name}": tensor for name, tensor in self.draws.tensors().items()}
        return pack(tensors), deepcopy(self.trainer.progress)

    def restore(self, data: bytes, progress: TrainingProgress) -> None:
        tensors = unpack(data, origin="the checkpoint")
        self.trainer.restore(tensors, deepcopy(progress))
        for name, tensor in below("dynamics", tensors).items():
            getattr(self.dynamics, name).copy_(tensor)
        if self.draws:
            self.draws.restore(below("draws", tensors))

    def outcome(self) -> State:
        curves = {
            "loss": torch.tensor(self.trainer.progress.loss),
            "hits": torch.tensor(self.trainer.progress.accuracy),
        }
        return (
            state_of(self.trainer.model) | vars(self.dynamics) | curves | (self.draws.tensors() if self.draws else {})
        )
