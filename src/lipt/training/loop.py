"""The training loop, the same for theta_*, jigsaws and the main training.

All random draws are functions of (seed, epoch, step), so a checkpoint needs no state of a generator. On a CPU with the
same number of threads, a resumed run is bit by bit equal to an uninterrupted one. An epoch has parts of
`STEPS_PER_PART` steps: a training can stop and go on after each of them.

Shape legend: N samples of the set, K samples drawn in an epoch, B batch, P this process's part of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lipt.data.augmentation import normalise
from lipt.data.images import ImageSet, to_device
from lipt.errors import DivergedError, RunError
from lipt.rng import derive, global_seed
from lipt.training.batches import STEPS_PER_PART, Drawn, batch_sizes, epoch_rows, loss_weights
from lipt.training.cuda_graphs import Replayed, Step
from lipt.training.distributed import Ranks
from lipt.training.draws import LossDraws
from lipt.training.dynamics import Dynamics
from lipt.training.epoch_sums import EpochSums
from lipt.training.networks import on_device, same_each_step
from lipt.training.optimizer import SGD
from lipt.training.precision import autocast, float32_where_slow
from lipt.training.pulse import Phase, phase
from lipt.training.pulse import step as note_step
from lipt.training.raptr import Subnetworks
from lipt.training.recipe import Recipe, TrainingProgress
from lipt.training.tensor_files import State, below, state_of

#: The same in every training, as in the published protocols.
_MOMENTUM, _WEIGHT_DECAY = 0.9, 5e-4


@dataclass(frozen=True, kw_only=True)
class _Batches:
    """What one process trains on."""

    own_P: Tensor
    """int64, its rows of all batches."""
    each: Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]
    """Of each batch its rows, images, labels and loss weights."""


class Trainer:
    """Trains `model`, and saves and restores the state of the training.

    Args:
        model: changed in place: its weights, its device and memory format, and with several processes its BatchNorm
            layers. A caller that needs the weights before the training keeps a copy.
        recipe: how long, in which batches, with which optimiser, draws and augmentation.
        seed: of everything that is drawn: batches, augmentation, layers such as Dropout, subnetworks of RaPTr.
        device: where the model trains; images may lie elsewhere.
        ranks: the processes that train the model together; all call the same methods. Apart from rounding, the result
            is the same as with a single process.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, *, seed: int, device: torch.device, ranks: Ranks | None = None
    ) -> None:
        self.ranks = ranks or Ranks()
        self.model = on_device(model, device)
        self.network = self.ranks.replicate(self.model)
        self.subnetworks = Subnetworks(self.model, recipe.raptr, seed=seed)
        self.recipe = recipe
        self.seed = seed
        self.device = device
        self.progress = TrainingProgress()
        self._unfinished: State = {}
        self._sums: EpochSums
        self.advance: Callable[[int, int], None] = lambda _done, _total: None
        """Called after each batch with (images seen, images of the whole training as far as it is known)."""
        self.optimizer = SGD(model.parameters(), momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY)
        alike = self.ranks.count == 1 and recipe.raptr is None and same_each_step(model)
        self.replayed = Replayed() if device.type == "cuda" and alike else None
        """Replays the steps on a GPU; None: Python launches each kernel of each step."""

    @property
    def done(self) -> float:
        """The share of the training that is finished; 1 at its end."""
        recipe, progress = self.recipe, self.progress
        if recipe.steps is not None:
            return progress.steps / recipe.steps
        return progress.epoch / recipe.epochs if recipe.epochs else 1.0

    def run_epoch(
        self,
        images: ImageSet,
        *,
        weights_N: Tensor | None = None,
        dynamics: Dynamics | None = None,
        draws: LossDraws | None = None,
        after_part: Callable[[], None] = lambda: None,
    ) -> None:
        """Train on samples drawn from `images`, to the end of the epoch.

        Args:
            weights_N: float32 (N,) loss weights; they are scaled to mean 1 over the set.
            dynamics: records what all processes see of each sample in this epoch.
            draws: chooses among the samples that were drawn, and records their losses.
            after_part: called after each part of the epoch but the last.

        Raises:
            DivergedError: the loss is not finite.
            RunError: a batch has fewer images than there are processes.
        """
        epoch = self.progress.epoch
        drawn = self._draw(images, draws)
        first = self.progress.part * STEPS_PER_PART
        batches = self._batches(images, drawn, first, loss_weights(weights_N, drawn.factors_N))
        recorders = [recorder for recorder in (dynamics, draws) if recorder is not None]
        self._sums = EpochSums(
            self.ranks,
            batches.own_P,
            samples=len(images),
            observes=bool(recorders),
            before=self._unfinished,
            device=self.device,
        )
        for start in range(first, len(drawn.sizes), STEPS_PER_PART):
            part = start // STEPS_PER_PART
            if start > first:
                self.progress.part = part
                after_part()
            # Layers such as Dropout draw from the global generators.
            with global_seed(self.seed, "network", epoch, self.ranks.rank, *([part] if part else [])):
                self._run_part(batches, drawn, start)
        seen = self._sums.so_far()
        if recorders:
            seen_K3 = seen["observed"][drawn.rows_K]  # a row occurs once in an epoch
            for recorder in recorders:
                recorder.record(epoch, drawn.rows_K, seen_K3)
        count = len(drawn.rows_K)
        loss, accuracy = (total / count for total in seen["totals"].sum(0).tolist())
        if drawn.factors_N is not None:  # what a uniform draw would show
            factors_K = drawn.factors_N[drawn.rows_K].double()
            loss /= float(factors_K.mean())
            accuracy = float(factors_K[seen_K3[:, 2] > 0].sum() / factors_K.sum())
        self._finish_epoch(drawn, loss, accuracy)

    def _batches(self, images: ImageSet, drawn: Drawn, first: int, weights_N: Tensor | None) -> _Batches:
        """This process's part of each batch from step `first` of the epoch on."""
        batches = drawn.rows_K.split(drawn.sizes)[first:]
        parts = [self.ranks.part(rows_B) for rows_B in batches]
        own_P = torch.cat([rows_B[part_P] for rows_B, part_P in zip(batches, parts, strict=True)])
        sizes = [len(part_P) for part_P in parts]
        # Whatever the batches need goes to the device before the first one: from here on nothing waits for it.
        labels = images.labels_N[own_P].to(self.device).split(sizes)
        weights: Sequence[Tensor | None] = [None] * len(sizes)
        if weights_N is not None:
            weights = weights_N[own_P].to(self.device).split(sizes)
        decoded = images.batches(own_P, sizes, derive(self.seed, "crop", self.progress.epoch))
        return _Batches(own_P=own_P, each=zip(own_P.split(sizes), decoded, labels, weights, strict=True))

    def _run_part(self, batches: _Batches, drawn: Drawn, start: int) -> None:
        """Train on the batches of one part, which begins with step `start` of the epoch."""
        epoch, images_before = self.progress.epoch, self.progress.images
        augment_seed = derive(self.seed, "augment", epoch)
        compute: Step = partial(self.replayed, self._compute) if self.replayed else self._compute
        self.network.train()
        done = sum(drawn.sizes[:start])
        sizes = drawn.sizes[start : start + STEPS_PER_PART]
        part = zip(islice(batches.each, STEPS_PER_PART), sizes, strict=True)
        for step, ((rows_P, batch, labels_P, weights_P), size) in enumerate(part, start):
            note_step()
            views = self.recipe.augment(to_device(batch, self.device), rows_P, augment_seed)
            share = (drawn.before + step) / drawn.total
            with self.subnetworks.drawn(epoch, step, share) as skipped:
                sums_2, logits_PC = compute(views, labels_P, weights_P, size, self.recipe.lr_at(share))
            self.progress.skip(skipped, size)
            self._sums.add(sums_2, logits_PC, labels_P)
            done += size
            self.advance(images_before + done, images_before + drawn.expected)

    def _draw(self, images: ImageSet, draws: LossDraws | None) -> Drawn:
        """Draw the images of the next epoch, and cut them into batches."""
        recipe, epoch = self.recipe, self.progress.epoch
        rows_K, factors_N = epoch_rows(len(images), recipe.epoch_size, self.seed, epoch), None
        if draws is not None:
            rows_K, factors_N = draws.of_epoch(rows_K, done=self.done, seed=self.seed, epoch=epoch)
        rows_K = images.epoch_order(rows_K, derive(self.seed, "read", epoch))
        sizes = batch_sizes(len(rows_K), recipe.batch_size)
        before, total = epoch * len(sizes), recipe.epochs * len(sizes)
        if recipe.steps is not None:
            before, total = self.progress.steps, recipe.steps
            sizes = sizes[: total - before]
            rows_K = rows_K[: sum(sizes)]
        if sizes[-1] < self.ranks.count:
            raise RunError(
                f"a batch of {sizes[-1]} images cannot be divided over {self.ranks.count} processes",
                "lower processes or train.nodes, or use larger batches",
            )
        return Drawn(rows_K=rows_K, factors_N=factors_N, sizes=sizes, before=before, total=total)

    def _compute(
        self, images: Tensor, labels_P: Tensor, weights_P: Tensor | None, size: int, lr: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """One optimiser step; a `cuda_graphs.Step`."""
        with autocast(self.device, self.recipe.precision):
            logits_PC = self.network(normalise(images))
        losses_P = F.cross_entropy(logits_PC.float(), labels_P, reduction="none")
        if weights_P is not None:
            losses_P = losses_P * weights_P
        # DistributedDataParallel averages the gradients of the processes. With this factor the average is the
        # gradient of the mean loss over the whole batch.
        loss = losses_P.sum() / size * self.ranks.count
        note_step()
        with float32_where_slow():
            loss.backward()
        self.optimizer.step(lr)
        logits_PC = logits_PC.detach()
        return torch.stack([losses_P.detach().sum(), (logits_PC.argmax(1) == labels_P).sum()]), logits_PC

    def _finish_epoch(self, drawn: Drawn, loss: float, accuracy: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(
                f"the training loss is {loss} in epoch {self.progress.epoch + 1}",
                f"lower {self.recipe.lr_name}",
                images=self.progress.images + len(drawn.rows_K),
                steps=self.progress.steps + len(drawn.sizes),
            )
        self._unfinished = {}
        self.progress.part = 0
        self.progress.epoch += 1
        self.progress.steps += len(drawn.sizes)
        self.progress.images += len(drawn.rows_K)
        self.progress.loss.append(loss)
        self.progress.accuracy.append(accuracy)

    def collect(self) -> None:
        """Gather what all processes have seen in an epoch that has begun, for `tensors`. Each process must call it."""
        self._unfinished = self._sums.so_far() if self.progress.part else {}

    def tensors(self) -> State:
        """Weights and momentum, and what was seen of an epoch that has begun, for a checkpoint.

        Within an epoch `collect` must be called before.
        """
        momentum = {f"momentum/{index}": buffer.cpu() for index, buffer in self.optimizer.momentum_buffers.items()}
        unfinished = {f"unfinished/{name}": tensor for name, tensor in self._unfinished.items()}
        return {f"model/{name}": tensor for name, tensor in state_of(self.model).items()} | momentum | unfinished

    def restore(self, tensors: State, progress: TrainingProgress) -> None:
        """Continue from a checkpoint of the same model and recipe."""
        self.model.load_state_dict(below("model", tensors))
        # In memory like its parameter, channels last: the update that a GPU replays refuses anything else.
        self.optimizer.momentum_buffers = {
            int(index): torch.empty_like(self.optimizer.parameters[int(index)]).copy_(buffer)
            for index, buffer in below("momentum", tensors).items()
        }
        self.progress, self._unfinished = progress, below("unfinished", tensors)


#: Returns the images and loss weights (N,) or None of the next epoch; called with the trainer before each epoch.
EpochData = Callable[["Trainer"], tuple[ImageSet, Tensor | None]]


def train(
    trainer: Trainer,
    epoch_data: EpochData,
    *,
    dynamics: Dynamics | None = None,
    draws: LossDraws | None = None,
    after_epoch: Callable[[Trainer], None] = lambda _trainer: None,
    after_part: Callable[[Trainer], None] = lambda _trainer: None,
) -> None:
    """Run the remaining epochs of `trainer`, with a hook after each epoch and one after each part of an epoch but its
    last."""
    now = Phase.TOGETHER if trainer.ranks.count > 1 else Phase.ALONE
    while trainer.done < 1:
        images, weights_N = epoch_data(trainer)
        with phase(now):
            trainer.run_epoch(
                images, weights_N=weights_N, dynamics=dynamics, draws=draws, after_part=partial(after_part, trainer)
            )
        after_epoch(trainer)
