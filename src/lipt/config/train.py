"""The settings of the main training, their defaults and what they mean."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from lipt.config.base import Section
from lipt.config.raptr import Raptr


class Train(Section):
    """Main training on the subset, and the trained budget."""

    epochs: PositiveInt = 200
    """Epochs on the subset, or on what `epoch_fraction` draws from it. Set either this or `steps`."""
    steps: PositiveInt | None = None
    """Optimiser steps in place of `epochs`: runs with equal steps and `batch_size` see about equally many images,
    whatever they keep. (The batches of an epoch are equal up to one image, so they can be a little smaller.) The last
    epoch may end early."""
    epoch_fraction: float | None = Field(None, gt=0, le=1)
    """Share of the candidates trained on per epoch, drawn afresh from the subset; null: the whole subset."""
    draw: Literal["uniform", "infobatch", "ordered"] = "uniform"
    """How an epoch draws. `uniform`: at random. `infobatch`: likewise, but a sample with a loss below the mean is left
    out with `prune_probability`, and counts for more if it stays. Nothing is left out in epochs that begin in the last
    eighth of the training. `ordered`: draws more samples at random, and keeps those with the highest losses (OrderDP).
    The loss of a sample is from the last step that trained on it."""
    prune_probability: float = Field(0.5, gt=0, lt=1)
    """Probability with which `draw: infobatch` leaves out a sample with a loss below the mean."""
    top_share: float = Field(0.85, gt=0, lt=1)
    """`draw: ordered` draws `epoch_fraction` / `top_share` of the candidates at random, and trains on this share of
    them."""
    first_losses: Literal["none", "trajectory"] = "none"
    """Losses before the training has seen a sample. `none`: such samples are drawn first. `trajectory`: from the last
    epoch of the models of `score.model: trajectory`."""
    lr: float = Field(0.1, gt=0, le=1000)
    """Learning rate at the start; it falls to 0 along a cosine. Every training is SGD with Nesterov momentum .9 and
    weight decay 5e-4."""
    batch_size: PositiveInt = 256
    """Images per step."""
    nodes: PositiveInt = 1
    """Number of pods on a cluster that share each batch of theta_* and of the main training; each starts `processes`
    processes. It changes results as `processes` does. `lipt run` ignores it."""
    start: Literal["fresh", "continue"] = "fresh"
    """`fresh`: random weights. `continue`: theta_p, or the first model of `score.runs`. It is trained even if the
    selection needs no model. Weights that pruning set to 0 train like all others."""
    reselect_every: int = Field(0, ge=0)
    """Number of epochs after which to select again, with the current model's gradients; 0: never."""
    raptr: Raptr | None = None
    """Train random subnetworks that grow to the full network (RaPTr); null: always the full network."""
    use_weights: bool = True
    """Multiply the loss of each sample by its weight from the selection (normalised to mean 1)."""
    random_baseline: bool = True
    """Also train on a random subset with the same start, the same two budgets and uniform draws. If the subset itself
    is random, and so are the draws, train on fresh draws from all data (RS2) instead, from random weights."""
    checkpoint_s: float = Field(60.0, ge=0)
    """Least seconds between two checkpoints. One is possible after each epoch, and within an epoch after every 100
    steps. Writing takes at most a twentieth of the time, so slow ones are fewer. The training goes on meanwhile, unless
    this is 0: then it waits, and one is written wherever it is possible. Does not change the result."""

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if self.steps is not None and self.epochs != type(self).model_fields["epochs"].default:
            raise ValueError(
                f"train.epochs ({self.epochs}) and train.steps ({self.steps}) both set the length of the training: "
                "remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _draw_fits(self) -> Self:
        if self.draw == "ordered" and self.epoch_fraction is None:
            raise ValueError("train.draw: ordered needs train.epoch_fraction, the share to train on per epoch")
        if self.draw != "uniform" and self.reselect_every:
            raise ValueError(f"train.draw: {self.draw} draws from one subset; it excludes train.reselect_every")
        if self.draw == "uniform" and self.first_losses != "none":
            raise ValueError("train.first_losses needs train.draw: infobatch or ordered; uniform draws use no losses")
        return self
