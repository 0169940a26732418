"""Train: the main training on the subset."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lipt.data.images import ImageSet, image_shape
from lipt.data.shards import Positions
from lipt.rng import derive
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.algorithm import reselection_needs
from lipt.runtime.budgets import epoch_budget, epochs_of, smallest_batch
from lipt.runtime.checkpoint import resume
from lipt.runtime.dataset import count_candidates, images_of, open_dataset, split_positions, training_images
from lipt.runtime.network import WEIGHTS, new_model, raptr_schedule, read_weights, recalibrate_full, standard_augment
from lipt.runtime.processes.child import Inputs, ProcessGroup, Summary
from lipt.runtime.processes.parent import run_together
from lipt.selection import Candidates
from lipt.stages.initialise import trajectories_of
from lipt.stages.select import apply, read_subset, taken
from lipt.training.distributed import Ranks
from lipt.training.draws import InfoBatch, LossDraws, Ordered, losses
from lipt.training.flops import flops_per_image
from lipt.training.forward import outputs_of
from lipt.training.loop import Trainer
from lipt.training.loop import train as run_training
from lipt.training.raptr import saved_flops
from lipt.training.recipe import Recipe
from lipt.training.tensor_files import pack, state_of, unpack


def train(
    ctx: Context,
    dataset: Artifact,
    subset: Artifact,
    start: Artifact | None = None,
    recorded: Sequence[Artifact] = (),
) -> Stage:
    """Train on the subset. With `train.epoch_fraction`, each epoch draws new samples from it.

    `processes` processes share each batch (default: one per GPU). The result is the same up to rounding, so the
    artifact's key does not depend on their number.

    Args:
        start: the model whose weights the training starts from (`train.start: continue`); None: random weights.
        recorded: the models whose trajectories give the first losses (`train.first_losses`).
    """
    settings = ctx.config.train
    inputs = inputs_of(dataset, subset, start, recorded)

    def body(attempt: Attempt) -> Summary:
        smallest = smallest_batch(settings, count_candidates(ctx, dataset), int(subset.summary["count"]))
        return run_together(ctx, attempt, fit, inputs, batch_size=smallest)

    chosen = train_settings(ctx, subset) | {
        "select": ctx.config.select.model_dump(mode="json") if settings.reselect_every else None
    }
    label = f"train {taken(ctx.config, subset.settings)}"
    return Stage(ctx=ctx, name="train", settings=chosen, inputs=present(inputs), body=body, label=label)


def train_settings(ctx: Context, subset: Artifact, **more: Any) -> dict[str, Any]:
    """The settings that determine a training on a subset; `more` joins them."""
    settings = ctx.config.train
    idle = {
        "prune_probability": settings.draw != "infobatch",
        "top_share": settings.draw != "ordered",
        # A later selection may give other weights than the first. On a dry run a planned subset does not say.
        "use_weights": not settings.reselect_every and not subset.summary.get("weighted", True),
    }
    effective = settings.with_defaults(*(name for name, is_idle in idle.items() if is_idle))
    # These three decide what else is trained, what a lost machine costs, and where the training runs.
    train = effective.model_dump(mode="json", exclude={"random_baseline", "checkpoint_s", "nodes"})
    return ctx.settings("model", view=ctx.view(), precision=ctx.config.precision, train=train, **more)


def inputs_of(dataset: Artifact, subset: Artifact, start: Artifact | None, recorded: Sequence[Artifact]) -> Inputs:
    """The inputs of `fit`: those of `train`."""
    inputs: Inputs = {"dataset": dataset, "subset": subset, "start": start}
    return inputs | {f"{_RECORDED}{number:05d}": model for number, model in enumerate(recorded)}


def present(inputs: Inputs) -> list[Artifact]:
    """The inputs that were given."""
    return [found for found in inputs.values() if found is not None]


def fit(ctx: Context, attempt: Attempt, inputs: Inputs, processes: ProcessGroup) -> Summary:
    """Train in one process of `processes`; returns the summary."""
    settings = ctx.config.train
    dataset, subset, start = inputs["dataset"], inputs["subset"], inputs["start"]
    assert dataset is not None
    assert subset is not None
    data = open_dataset(attempt, dataset)
    validation, candidates = split_positions(ctx, data)
    seed = ctx.seed("train")
    model = new_model(ctx, len(data.manifest.classes), seed, read_weights(attempt, start) if start else None)
    kept_positions, weights_K = read_subset(attempt, subset).ascending()
    positions_K = kept_positions.numpy()
    kept = len(positions_K)
    drawn = epoch_budget(settings, len(candidates))
    draws = _draws(ctx, attempt, inputs, rows_of(candidates, positions_K), drawn)
    recipe = Recipe(
        epochs=epochs_of(settings, len(candidates), kept),
        steps=settings.steps,
        batch_size=settings.batch_size,
        lr=settings.lr,
        lr_name="train.lr",
        schedule="cosine",
        augment=standard_augment(ctx),
        epoch_size=round(drawn / settings.top_share) if drawn and settings.draw == "ordered" else drawn,
        precision=ctx.precision,
        raptr=raptr_schedule(settings.raptr),
    )
    trainer = Trainer(model, recipe, seed=seed, device=ctx.device, ranks=processes.ranks)

    def images(positions: Positions) -> ImageSet:
        return training_images(ctx, data, positions, processes)

    if settings.reselect_every:
        needs = reselection_needs(ctx.config)
        judged = images_of(ctx, data, "train", validation, load=processes.load) if needs.validation else None
        scored = _Scored(images=images(candidates), classes=len(data.manifest.classes), validation=judged)
        feed: _Fixed = _Reselecting(attempt, processes.ranks, scored, candidates, reads=needs.outputs)
    else:
        feed = _Fixed(ctx)
    feed.start(positions_K, weights_K, lambda: images(positions_K))
    changing = draws or feed
    with resume(
        attempt, trainer, every_s=settings.checkpoint_s, extra=changing.tensors, restore_extra=changing.restore
    ) as saves:
        run_training(trainer, feed, draws=draws, after_epoch=saves.after_epoch, after_part=saves.after_part)
    progress, summary = trainer.progress, Summary()
    if processes.ranks.rank == 0:
        forward, both = flops_per_image(model, image_shape(feed.images))
        flops = whole = progress.images * both + feed.scored * forward
        if settings.reselect_every:
            summary["reselection_flops"] = feed.scored * forward
        if settings.raptr:
            recalibrated = recalibrate_full(ctx, model, feed.images, seed=derive(seed, "recalibrate"))
            flops += recalibrated * forward - saved_flops(model, progress.skipped, image_shape(feed.images))
            summary["raptr_saved"] = 1 - flops / whole
        attempt.flops += flops
        attempt.put(WEIGHTS, pack(state_of(model)), kind="model")
    return summary | {
        "images": progress.images,
        "steps": progress.steps,
        "kept": kept,
        "losses": progress.loss,
        "accuracies": progress.accuracy,
    }


#: How the inputs that record trajectories are called, with a number behind it: pods get them in alphabetical order.
_RECORDED = "recorded "


def _draws(ctx: Context, attempt: Attempt, inputs: Inputs, rows_K: Tensor, count: int | None) -> LossDraws | None:
    """The draws that `train.draw` names, with the first losses of the kept candidates; None: uniform draws.

    Args:
        rows_K: the rows of the subset among the candidates.
        count: images to train on per epoch; None: all that are kept.
    """
    settings = ctx.config.train
    if settings.draw == "uniform":
        return None
    first_K = torch.full((len(rows_K),), torch.nan)
    recorded = [model for name, model in inputs.items() if model is not None and name.startswith(_RECORDED)]
    if recorded:
        seen = [each["p"][:, -1] for each in trajectories_of(attempt, recorded)]
        first_K = torch.stack([losses(p_N[rows_K]) for p_N in seen]).mean(0)
    if settings.draw == "infobatch":
        return InfoBatch(first_K, probability=settings.prune_probability)
    return Ordered(first_K, count=count or len(rows_K))


def rows_of(positions_N: Positions, positions_K: Positions) -> Tensor:
    """The rows at which these positions stand among the candidates, int64 (K,)."""
    order = np.argsort(positions_N)
    return torch.from_numpy(order[np.searchsorted(positions_N, positions_K, sorter=order)])


class _Fixed:
    """Gives every epoch the stored subset."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.scored = 0
        """Images that were forwarded besides training."""
        self.images: ImageSet
        self.weights_N: Tensor | None = None

    def start(self, positions_K: Positions, weights_K: Tensor, load: Callable[[], ImageSet]) -> None:
        self.images = load()
        self.weights_N = weights_K if self.ctx.config.train.use_weights else None

    def __call__(self, trainer: Trainer) -> tuple[ImageSet, Tensor | None]:
        return self.images, self.weights_N

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Nothing to restore: the subset is an input."""


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """What the model in training scores, to select again."""

    images: ImageSet
    classes: int
    validation: ImageSet | None
    """None: the algorithm does not look at it."""


class _Reselecting(_Fixed):
    """Selects again every `train.reselect_every` epochs, with the model in training (the paper's Table 1).

    Optimizer and schedule continue, and no epoch is skipped.
    """

    def __init__(
        self, attempt: Attempt, ranks: Ranks, candidates: _Scored, positions: Positions, *, reads: bool
    ) -> None:
        super().__init__(attempt.ctx)
        self.shows = attempt.shows("images, scored to select again")
        self.ranks, self.candidates, self.positions, self.reads = ranks, candidates, positions, reads
        self.rows_K = torch.empty(0, dtype=torch.int64)
        self.all_weights_K = torch.empty(0)

    def start(self, positions_K: Positions, weights_K: Tensor, load: Callable[[], ImageSet]) -> None:
        self._use(rows_of(self.positions, positions_K), weights_K)

    def __call__(self, trainer: Trainer) -> tuple[ImageSet, Tensor | None]:
        epoch, has_begun = trainer.progress.epoch, trainer.progress.part > 0
        if epoch and not has_begun and epoch % self.ctx.config.train.reselect_every == 0:
            self._select(trainer.model, epoch)
        return super().__call__(trainer)

    def tensors(self) -> dict[str, Tensor]:
        return {"rows": self.rows_K, "weights": self.all_weights_K, "scored": torch.tensor(self.scored)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.scored = int(tensors["scored"])
        self._use(tensors["rows"], tensors["weights"])

    def _select(self, model: nn.Module, epoch: int) -> None:
        """Select in the first process and send the subset to the others: by rounding, they could select differently."""
        selected = self._selected(model, epoch) if self.ranks.rank == 0 else b""
        tensors = unpack(self.ranks.broadcast(selected), origin="the selection")
        self.scored += int(tensors["scored"])
        self._use(tensors["rows"], tensors["weights"])

    def _selected(self, model: nn.Module, epoch: int) -> bytes:
        ctx, (images, validation), count = self.ctx, (self.candidates.images, self.candidates.validation), 0
        if self.reads and ctx.config.train.raptr:
            count += recalibrate_full(ctx, model, images, seed=ctx.seed("recalibrate", epoch))
        if self.reads:
            count += len(images) + (len(validation) if validation else 0)
            candidates = self._score(model, images)
        else:
            candidates = Candidates(labels_N=images.labels_N, num_classes=self.candidates.classes)
        selection = apply(
            ctx.config.select,
            candidates,
            self._score(model, validation) if validation else None,
            seed=ctx.seed("reselect", epoch),
        )
        rows_K, order = selection.indices_K.sort()
        return pack({"rows": rows_K, "weights": selection.weights_K[order], "scored": torch.tensor(count)})

    def _score(self, model: nn.Module, images: ImageSet) -> Candidates:
        outputs = outputs_of(model, images, device=self.ctx.device, precision=self.ctx.precision, advance=self.shows)
        return Candidates(labels_N=images.labels_N, num_classes=self.candidates.classes, outputs=[outputs])

    def _use(self, rows_K: Tensor, weights_K: Tensor) -> None:
        self.rows_K, self.all_weights_K = rows_K, weights_K
        self.images = self.candidates.images.subset(rows_K)
        self.weights_N = self.all_weights_K if self.ctx.config.train.use_weights else None
