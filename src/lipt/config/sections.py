"""The settings of each stage, their defaults and what they mean: one section per stage; that of `train` is in train.py.

Defaults are the `robust` profile; `loading` applies a profile. There are two separate budgets:
`select.fraction` is the share of the candidates that is kept (read, stored), `train.epoch_fraction` is the share of the
candidates that one epoch trains on.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, field_validator, model_validator

from lipt.config.base import Place, Section
from lipt.config.race import Race
from lipt.config.raptr import Raptr

#: A position in an nn.Sequential looks like an integer in YAML, but is a name too.
LayerName = Annotated[
    str, BeforeValidator(lambda name: str(name) if isinstance(name, int) else name, json_schema_input_type=str | int)
]
Network = Literal["resnet18", "wrn28_10", "vit_small", "torchvision.resnet18", "torchvision.wide_resnet50_2"]
Augmentation = Literal["randaugment", "standard", "none"]


class Data(Section):
    """Where the images come from, and how they are resized and augmented."""

    source: Place = Field("digits", min_length=1)
    """`digits`, `cifar10[:FOLDER]`, `cifar100[:FOLDER]`, an ImageFolder, WebDataset tars, or an ingested store."""
    format: str = "auto"
    """`auto`: `source` decides; `store`: an ingested store; or a format of docs/reference/sources.md."""
    chunk_mb: float = Field(64.0, gt=0, le=1_000_000)
    """Size of one chunk (tar) of the ingested data set, in MB."""
    shuffle_seed: int = Field(0, ge=0)
    """Seed of the global order fixed at ingestion (not the seed of the run)."""
    test_fraction: float = Field(0.2, gt=0, lt=1)
    """Share drawn as test data if the source has no test split."""
    validation_fraction: float = Field(0.1, gt=0, lt=1)
    """Share of the training images held out for validation: 5,000 of CIFAR's 50,000; use .02 for ImageNet."""
    image_size: int | None = Field(None, gt=0, le=8192)
    """Side in pixels; images of another size are resized and centre-cropped. Required if sizes differ."""
    crop: Literal["pad", "resized"] = "pad"
    """`pad`: training shifts images by up to `crop_padding` pixels. `resized` (usual for ImageNet): training decodes a
    random crop of the whole image at each use (RandomResizedCrop); scoring and tests see the centre, 224 of 256 pixels.
    """
    crop_padding: int = Field(4, ge=0, le=1024)
    """Pixels by which training images are shifted at most, with `crop: pad`; fewer than an image has; 0: no shift."""
    flip: bool = True
    """Mirror half of the training images."""
    thumbnails: int | None = Field(None, gt=0, le=8192)
    """Also ingest every image with its shorter side at most this many pixels. A `score.proxy` with an `image_size`
    then reads these files instead of the images. null: no thumbnails."""
    resident_mb: float = Field(4096.0, ge=0)
    """Image sets up to this decoded size are held in memory; larger ones are streamed from the store, and about this
    much of them is decoded at once (at most two groups of 4,096 images). With `crop: resized`, training images are held
    as files, if the files have at most this size. Models that score streamed images together take at most this much,
    with their outputs. A merge holds at most this much of jigsaws, and reads the others again. Streamed images come in
    another order, so another value repeats all trainings and scores."""

    @model_validator(mode="after")
    def _crops_have_a_size(self) -> Self:
        if self.crop == "resized" and self.image_size is None:
            raise ValueError("data.crop: resized needs data.image_size, the side of the crops: 224 for ImageNet")
        return self


class Model(Section):
    """The network."""

    name: str = "resnet18"
    """`resnet18`, `wrn28_10`, `vit_small` (small images), `torchvision.resnet18`, `torchvision.wide_resnet50_2`
    (224 px), or your own `package.module:function`, called with `num_classes`. The module can lie in the current
    folder."""
    width: int | None = Field(None, gt=0, le=8192)
    """Channels of the first stage; null: as the network defines them (64 for resnet18, 160 for wrn28_10). For
    vit_small: its dimension, a multiple of 16 (default 64)."""
    classifier: LayerName | None = None
    """Dotted name of the last linear layer; required if your own model has several linear layers."""


class Initialise(Section):
    """theta_*: one barely trained model."""

    epochs: int = Field(1, ge=0)
    """Passes over all candidates; 0: random weights. The paper trains for fewer than 3."""
    lr: float = Field(0.1, gt=0, le=1000)
    """Learning rate, constant."""
    batch_size: PositiveInt = 256
    """Images per step."""
    raptr: Raptr | None = None
    """Train random subnetworks that grow to the full network (RaPTr); null: always the full network."""


class Dispatch(Section):
    """Disjoint tiny shards for the workers."""

    jigsaws: int = Field(10, gt=0, le=100_000)
    """n, the number of workers."""
    batches: PositiveInt = 1
    """M, minibatches in one shard."""
    batch_size: PositiveInt = 256
    """Images per minibatch; a shard has `batches` times as many."""
    stratified: bool = True
    """Each shard contains every class in proportion; false: shards are drawn at random."""


class Pretrain(Section):
    """Local training and pruning of one jigsaw."""

    passes: PositiveInt = 5
    """K, passes over the shard."""
    lr: float = Field(0.01, gt=0, le=1000)
    """Learning rate, constant."""
    augment: Augmentation = "randaugment"
    """`randaugment`: random operations, in place of shift and flip. `standard`: as in the main
    training."""
    num_ops: int = Field(1, gt=0, le=100)
    """RandAugment operations per image."""
    magnitude: int = Field(9, ge=0, le=30)
    """Strength of the RandAugment operations."""
    prune: Literal["magnitude", "random", "snip", "none"] = "magnitude"
    """Which weights pruning sets to 0: the smallest, random ones, or those with the least effect on the loss (SNIP)."""
    density: tuple[float, float] = (0.85, 0.95)
    """Kept share of the weights, drawn per worker from U[low, high]; 0 < low <= high <= 1."""
    prune_scope: Literal["global", "layer"] = "global"
    """Apply the density to all weights together, or to each layer."""

    @field_validator("density")
    @classmethod
    def _density_is_a_range(cls, value: tuple[float, float]) -> tuple[float, float]:
        low, high = value
        if not 0 < low <= high <= 1:
            raise ValueError(f"density must be [low, high] with 0 < low <= high <= 1, not {list(value)}")
        return value


class Merge(Section):
    """How the jigsaws become theta_p."""

    method: Literal["greedy_interpolation", "greedy", "uniform", "best_single", "none"] = "greedy_interpolation"
    """`greedy_interpolation`: average a jigsaw into the soup, with the best of several weights, if that raises the
    validation accuracy. `greedy`: the same with equal weights. `uniform`: average all. `best_single`: the best jigsaw.
    `none`: no swarm; theta_* takes the place of theta_p."""
    search: Literal["coarse_to_fine", "grid"] = "coarse_to_fine"
    """Weights alpha of a jigsaw in the soup that are tried: an equal weight, then half of it and twice it. A model that
    is worse than the soup on the first 256 or 512 images is given up. `grid`: the paper's 0, .1, ..., 1, to the end."""
    batchnorm: Literal["best", "averaged", "recalibrated"] = "best"
    """BatchNorm statistics of a merged model: the average of its parts, or computed anew on training images. `best`
    takes those with which the average of all jigsaws is better on the search images."""
    fallback: bool = True
    """Use theta_*, the best jigsaw or the average of all as theta_p if it is better than the soup. The soup may also
    begin with theta_*."""
    search_images: PositiveInt | None = 1000
    """Number of validation images for the search; null: all."""
    confirmation_images: PositiveInt | None = 2000
    """Number of validation images for the last comparison, of the soup with theta_*, the best jigsaw and the average of
    all; null: all that the search did not use. If the search left fewer than it used: all validation images."""
    recalibration_images: PositiveInt = 512
    """Number of training images from which BatchNorm statistics are computed anew: those of one shard, so at most as
    many as a shard has."""
    groups: PositiveInt = 1
    """Number of groups to merge in parallel; their soups are then merged with equal weight. 1: merge all jigsaws at
    once. With dozens of jigsaws, about the square root of `dispatch.jigsaws` is fastest."""
    quorum: float = Field(0.5, gt=0, le=1)
    """The merge runs if at least this share of the jigsaws arrived. The same share of the models of `score.runs` must
    arrive; with `score.disjoint`, all of them. If the jigsaws score (`score.model: jigsaws`), at least as many must
    arrive as the algorithm needs."""

    def needed(self, count: int) -> int:
        """How many of `count` jigsaws or models must arrive."""
        return math.ceil(round(self.quorum * count, 9)) or 1  # rounded: .28 * 25 is 7.000000000000001

    def or_lower(self, needed: int, count: int, arrived: int) -> str:
        """The end of a remedy if too few of `count` arrived. Empty if none did, or the algorithm needs more than the
        quorum."""
        return "; or lower merge.quorum" if arrived and needed == self.needed(count) else ""


class Proxy(Section):
    """A network for scoring that differs from the main training's: another one, narrower, or on smaller images."""

    name: Network | None = None
    """One of LiPT's networks; null: as `model.name`. So a small ResNet can score for a network of your own."""
    width: int | None = Field(None, gt=0, le=8192)
    """Channels of its first stage; null: as `model.width`. With another `name` null means: as that network defines
    them (64 for resnet18)."""
    image_size: int | None = Field(None, gt=0, le=8192)
    """Side in pixels of the images that it sees; null: as `data.image_size`."""

    @model_validator(mode="after")
    def _differs(self) -> Self:
        if self.name is None and self.width is None and self.image_size is None:
            raise ValueError("score.proxy needs a name, a width or an image_size")
        return self


class Score(Section):
    """The model whose outputs the selection uses."""

    model: Literal["merged", "jigsaws", "classic", "trajectory"] = "merged"
    """`merged`: theta_p. `jigsaws`: all jigsaws; scores are averaged over them, and `dual` also uses their spread.
    `classic`: `runs` independent models, each trained for `epochs` epochs on all candidates. `trajectory`: the same
    models; every epoch gives each sample a score, and the scores are averaged (`el2n`, `aum`, `dual`)."""
    proxy: Proxy | None = None
    """Another network in place of `model` for theta_*, the jigsaws, theta_p and the models of `runs`; null: none."""
    runs: int = Field(10, gt=0, le=1000)
    """Number of models with `model: classic` or `trajectory`. For `trajectory` the default is 1: three gained nothing
    over one."""
    disjoint: bool = False
    """With `model: trajectory`: divide the candidates among the `runs` models. Each trains on its own part alone, from
    the same initial weights, and records that part. All models together then cost as much as one, and worker pods
    train them at the same time."""
    epochs: int = Field(1, ge=0)
    """Epochs per model with `model: classic` or `trajectory`. For `trajectory` the default is 10: fewer gained less,
    and along one epoch `auto` chooses as without a trajectory."""
    block_images: PositiveInt = 65536
    """Images per block. A pod scores one block at a time and writes one artifact for it."""
    top_classes: PositiveInt | None = None
    """Store only the probabilities of the label and of this many other classes, and spread the rest evenly; null: store
    all. With 1,000 classes, 32 take a fourteenth of the space in bf16. The summary of the artifact gives the error."""
    stored_precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of stored features, and of logits if all classes are kept."""

    @model_validator(mode="after")
    def _one_trajectory(self) -> Self:
        if self.model == "trajectory":
            defaults = {"runs": 1, "epochs": 10}
            # They stay unset: another `model` has its own defaults.
            self.__dict__.update({key: defaults[key] for key in defaults.keys() - self.model_fields_set})
        return self

    @property
    def has_own_models(self) -> bool:
        """Whether `runs` models are trained for the scores alone, in place of theta_* and the jigsaws."""
        return self.model in ("classic", "trajectory")

    @property
    def trajectories(self) -> int:
        """The number of trajectories that are recorded of each candidate."""
        if self.model != "trajectory" or not self.epochs:
            return 0
        return 1 if self.disjoint else self.runs


class Select(Section):
    """The kept budget, and the algorithm that selects."""

    algorithm: str = "auto"
    """Name of the selection algorithm; docs/reference/algorithms.md lists them."""
    fraction: float = Field(0.05, gt=0, le=1)
    """Share of the candidates that is kept: the kept budget."""
    balanced: bool = True
    """Split the budget over the classes in proportion to their size."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the algorithm, for example `{beta: 0.3}` for ccs."""
    race: Race | None = None
    """Let several selections race, and train on the subset of the winner; null: no race."""
