"""All settings of a run, and the rules about several sections."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from lipt.config.base import Place, Section
from lipt.config.comparison import Compare
from lipt.config.sections import Data, Dispatch, Initialise, Merge, Model, Pretrain, Score, Select
from lipt.config.train import Train


class Config(Section):
    """Everything that determines a run."""

    name: str = Field("run", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)
    """Lower-case letters, digits and hyphens, with a letter or a digit first and last. The names of runs and reports
    begin with it."""
    profile: Literal["robust", "paper", "ccs", "dual"] = "robust"
    """Which defaults the other settings have: ours, or those of a published protocol (docs/reference/settings.md)."""
    seed: int = Field(0, ge=0)
    """Fixes initialisation, split, shards and order."""
    workspace: Place = Field("runs", min_length=1)
    """Folder or s3://bucket/prefix that holds data sets and artifacts."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: a GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of convolutions and matrix products in training and scoring. `auto`: bf16 where the device computes it
    natively, else fp32. Test accuracy is always measured in fp32; weights, BatchNorm statistics and the last layer are
    always fp32. So are attention, group normalisation and depthwise convolutions on a CPU: bf16 is mostly slower. On
    NVIDIA GPUs the convolutions of fp32 round their inputs to TF32, which is PyTorch's default."""
    processes: PositiveInt | Literal["auto"] = "auto"
    """Number of processes on one machine, or in one pod. They share the batches of a training, or the jigsaws, groups
    and score blocks. `auto`: one per GPU. Changes results only by rounding. Exceptions: networks that draw
    random numbers (Dropout), and layers other than BatchNorm that mix the images of a batch."""
    data: Data = Field(default_factory=Data)
    model: Model = Field(default_factory=Model)
    initialise: Initialise = Field(default_factory=Initialise)
    dispatch: Dispatch = Field(default_factory=Dispatch)
    pretrain: Pretrain = Field(default_factory=Pretrain)
    merge: Merge = Field(default_factory=Merge)
    score: Score = Field(default_factory=Score)
    select: Select = Field(default_factory=Select)
    train: Train = Field(default_factory=Train)
    compare: Compare = Field(default_factory=Compare)

    def of_scorer(self) -> Self:
        """The configuration that the stages up to the scores use: `score.proxy` in place of the trained network."""
        proxy = self.score.proxy
        if proxy is None:
            return self
        model = self.model.model_copy(update={"width": proxy.width or self.model.width})
        if proxy.name not in (None, self.model.name):
            model = Model(name=proxy.name, width=proxy.width)
        changes = {
            "model": model,
            "data": self.data.model_copy(update={"image_size": proxy.image_size or self.data.image_size}),
            "score": self.score.model_copy(update={"proxy": None}),
        }
        return self.model_copy(update=changes)

    @property
    def thumbnails_to_score(self) -> int | None:
        """The `data.thumbnails` that the stages up to the scores read; None: they read the images themselves."""
        proxy = self.score.proxy
        return self.data.thumbnails if proxy and proxy.image_size else None

    @model_validator(mode="after")
    def _thumbnails_serve_the_proxy(self) -> Self:
        proxy, side = self.score.proxy, self.thumbnails_to_score
        if proxy and proxy.image_size and side:
            resized = self.data.crop == "resized"  # the centre is 224 of 256 pixels
            needed = round(proxy.image_size * 256 / 224) if resized else proxy.image_size
            if side < needed:
                with_crops = " with data.crop: resized" if resized else ""
                raise ValueError(
                    f"data.thumbnails ({side}) is too small for score.proxy.image_size ({proxy.image_size})"
                    f"{with_crops}: it should be {needed} or more, or null"
                )
        return self

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        drawn = self.train.epoch_fraction
        if drawn is not None and drawn > self.select.fraction:
            raise ValueError(
                f"train.epoch_fraction ({drawn:g}) exceeds select.fraction ({self.select.fraction:g}): "
                "an epoch cannot draw more than is kept"
            )
        among = (drawn or 0) / self.train.top_share
        if self.train.draw == "ordered" and round(among, 9) > self.select.fraction:
            raise ValueError(
                f"train.draw: ordered draws train.epoch_fraction / train.top_share = {among:.3g} of the candidates, "
                f"more than select.fraction ({self.select.fraction:g}) keeps"
            )
        if self.score.disjoint and (self.score.model != "trajectory" or self.score.runs < 2):
            raise ValueError("score.disjoint needs score.model: trajectory and score.runs: 2 or more")
        if self.train.first_losses == "trajectory" and not (self.score.model == "trajectory" and self.score.epochs):
            raise ValueError("train.first_losses: trajectory needs score.model: trajectory and score.epochs above 0")
        if self.train.steps is None and self.train.reselect_every >= self.train.epochs:
            raise ValueError(
                f"train.reselect_every ({self.train.reselect_every}) is not below train.epochs ({self.train.epochs}): "
                "it would never select again"
            )
        if self.train.reselect_every and self.score.model != "merged":
            raise ValueError(
                f"train.reselect_every uses the model in training; it excludes score.model: {self.score.model}"
            )
        if self.score.proxy and self.train.start == "continue":
            raise ValueError("train.start: continue trains the network that scores; it excludes score.proxy")
        if self.score.model == "jigsaws" and self.merge.method == "none":
            raise ValueError("score.model: jigsaws needs a swarm; it excludes merge.method: none")
        if self.merge.groups > self.dispatch.jigsaws:
            raise ValueError(
                f"merge.groups ({self.merge.groups}) exceeds dispatch.jigsaws ({self.dispatch.jigsaws}): "
                "each group needs at least one jigsaw"
            )
        return self
