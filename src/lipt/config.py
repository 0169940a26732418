"""The configuration of a run: frozen, validated, one section per stage.

Defaults are the `robust` profile; `profile: paper` replaces the defaults in which the paper differs. What a user writes
always wins over the profile. Two budgets are kept apart: `select.fraction` is the share of the candidates that is kept
(read, stored, labelled), `train.epoch_fraction` the share of the candidates that is trained on in one epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from lipt.errors import UsageError, did_you_mean

Fraction = float
Augmentation = Literal["randaugment", "standard", "none"]

#: Where the paper's recipe differs from the robust defaults (method.md section 2).
PROFILES: dict[str, dict[str, Any]] = {
    "robust": {},
    "paper": {
        "dispatch": {"stratified": False},
        "pretrain": {"lr": 0.1},
        "merge": {"search": "grid", "batchnorm": "averaged", "fallback": False, "search_images": None},
        "select": {"algorithm": "grand"},
    },
}


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Data(Section):
    """Where the images come from and how they are viewed."""

    source: str = "digits"
    """`digits`, `cifar10[:FOLDER]`, `cifar100[:FOLDER]`, an ImageFolder, WebDataset tars, or an ingested store."""
    format: Literal["auto", "digits", "cifar10", "cifar100", "imagefolder", "webdataset", "store"] = "auto"
    chunk_mb: float = Field(64.0, gt=0)
    """Size of one chunk (tar) of the ingested data set, in MB."""
    shuffle_seed: int = 0
    """Seed of the global order fixed at ingestion (not the seed of the run)."""
    test_fraction: Fraction = Field(0.2, gt=0, lt=1)
    """Share carved out as test data when the source has no test split."""
    validation_fraction: Fraction = Field(0.1, gt=0, lt=1)
    """Share of the training split set aside before anything else: 5,000 of CIFAR's 50,000; .02 for ImageNet."""
    image_size: PositiveInt | None = None
    """Side in pixels; images of another size are resized and centre-cropped. Needed when sizes differ."""
    crop: Literal["pad", "resized"] = "pad"
    """Standard augmentation: `pad` = shift by up to `crop_padding` pixels, `resized` = RandomResizedCrop (ImageNet)."""
    crop_padding: int = Field(4, ge=0)
    flip: bool = True
    resident_mb: float = Field(4096.0, ge=0)
    """Decoded images up to this size are held in memory; larger sets are streamed from the store."""


class Model(Section):
    """Which network is trained."""

    name: str = "resnet18"
    """`resnet18`, `wrn28_10` (small images), `torchvision.resnet18`, `torchvision.wide_resnet50_2` (224 px), or
    `package.module:function` called with `num_classes`."""
    width: PositiveInt | None = None
    """Channels of the first stage (64 for resnet18, 160 for wrn28_10)."""
    classifier: str | None = None
    """Dotted name of the last linear layer; needed for a model of your own."""


class Initialise(Section):
    """theta_*: one barely trained model."""

    epochs: int = Field(1, ge=0)
    lr: float = Field(0.1, gt=0)
    batch_size: PositiveInt = 256


class Dispatch(Section):
    """Disjoint tiny shards for the workers."""

    jigsaws: PositiveInt = 10
    """n, the number of workers."""
    batches: PositiveInt = 1
    """M, minibatches in one shard."""
    batch_size: PositiveInt = 256
    stratified: bool = True
    """Shards hold every class in proportion; otherwise plain random."""


class Pretrain(Section):
    """Local training and pruning of one jigsaw."""

    passes: PositiveInt = 5
    """K, passes over the shard."""
    lr: float = Field(0.01, gt=0)
    augment: Augmentation = "randaugment"
    num_ops: PositiveInt = 1
    magnitude: int = Field(9, ge=0, le=30)
    prune: Literal["magnitude", "random", "snip", "none"] = "magnitude"
    density: tuple[float, float] = (0.85, 0.95)
    """Kept share of the weights, drawn per worker from U[low, high]."""
    prune_scope: Literal["global", "layer"] = "global"

    @model_validator(mode="after")
    def _density_is_a_range(self) -> Self:
        low, high = self.density
        if not 0 < low <= high <= 1:
            raise ValueError(f"density must be [low, high] with 0 < low <= high <= 1, not {list(self.density)}")
        return self


class Merge(Section):
    """How the jigsaws become theta_p."""

    method: Literal["greedy_interpolation", "greedy", "uniform", "best_single", "none"] = "greedy_interpolation"
    """`none`: no swarm at all, theta_* goes on."""
    search: Literal["coarse_to_fine", "grid"] = "coarse_to_fine"
    """alpha: 2 points then up to 2 around the better one, or the paper's 0, .1, ..., 1."""
    batchnorm: Literal["best", "averaged", "recalibrated"] = "best"
    """Running statistics of a merged model; `best` chooses per candidate on validation."""
    fallback: bool = True
    """theta_* competes with the ingredients."""
    search_images: PositiveInt | None = 1000
    """Validation images used while searching; the outcome is confirmed on all of them. null: all, always."""
    recalibration_images: PositiveInt = 512
    groups: PositiveInt = 1
    """Deal the jigsaws into so many groups, merge each, side by side on a cluster, then merge their soups, which count
    alike; 1: merge all at once. About the square root of `dispatch.jigsaws` is fastest, from some dozens on."""
    quorum: Fraction = Field(0.5, gt=0, le=1)
    """The merge runs when at least this share of the jigsaws arrived."""


class Score(Section):
    """Which model's outputs the selection sees."""

    model: Literal["merged", "jigsaws", "classic"] = "merged"
    """`merged`: theta_p. `jigsaws`: the swarm as an ensemble, mean and spread over all workers (for `dual`).
    `classic`: `runs` independent models of `epochs` epochs on all data (the pre-training tax)."""
    runs: PositiveInt = 10
    epochs: int = Field(1, ge=0)
    block_images: PositiveInt = 65536
    """Images scored into one artifact, and by one pod at a time."""
    top_classes: PositiveInt | None = None
    """Keep the probabilities of the label and of so many other classes, the rest spread evenly; null: of all.
    With 1,000 classes, 32 take a fourteenth of the space in bf16. The error is in the summary of the scores."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of stored features and of logits that are kept whole."""


class Select(Section):
    """The data budget, and who spends it."""

    algorithm: str = "auto"
    fraction: Fraction = Field(0.05, gt=0, le=1)
    """Share of the candidates that is kept: the data budget."""
    balanced: bool = True
    """The budget is split over the classes in proportion."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the algorithm, for example `{beta: 0.3}` for ccs."""


class Train(Section):
    """Main training on the subset, and the epoch budget."""

    epochs: PositiveInt = 200
    epoch_fraction: Fraction | None = Field(None, gt=0, le=1)
    """Share of the candidates trained on per epoch, drawn afresh from the kept ones; null = all that is kept."""
    lr: float = Field(0.1, gt=0)
    batch_size: PositiveInt = 256
    start: Literal["fresh", "continue"] = "fresh"
    """`fresh` re-initialises the model, `continue` starts from theta_p."""
    reselect_every: int = Field(0, ge=0)
    """Select again with the current model's gradients every so many epochs; 0 = never."""
    use_weights: bool = True
    """Weight the loss with the selection's weights (normalised to mean 1)."""
    precision: Literal["fp32", "bf16"] = "fp32"
    random_baseline: bool = True
    """Also train on a random subset of the same two budgets, for comparison."""
    checkpoint_s: float = Field(30.0, ge=0)
    """Seconds between checkpoints; never changes the result."""
    processes: PositiveInt | Literal["auto"] = "auto"
    """Processes that share each batch, here and when theta_* is trained; `auto` = one per GPU. Changes the result by no
    more than rounding."""


class Compare(Section):
    """What `lipt compare` runs."""

    seeds: list[int] = Field(default_factory=lambda: [0, 1, 2], min_length=1)
    variants: list[str] = Field(default_factory=list)
    """Names of baselines; empty = all."""


class Config(Section):
    """Everything that determines a run."""

    name: str = Field("run", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    profile: Literal["robust", "paper"] = "robust"
    seed: int = Field(0, ge=0)
    """Changes initialisation, split, shards and order at once."""
    workspace: str = "runs"
    """Folder or s3://bucket/prefix that holds data sets and artifacts."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
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

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        drawn = self.train.epoch_fraction
        if drawn is not None and drawn > self.select.fraction:
            raise ValueError(
                f"train.epoch_fraction ({drawn:g}) exceeds select.fraction ({self.select.fraction:g}): "
                "an epoch cannot draw more than is kept"
            )
        if self.train.reselect_every and self.score.model != "merged":
            raise ValueError(
                f"train.reselect_every uses the model in training; it does not go with score.model: {self.score.model}"
            )
        if self.score.model == "jigsaws" and self.merge.method == "none":
            raise ValueError("score.model: jigsaws needs a swarm; it does not go with merge.method: none")
        if self.merge.groups > self.dispatch.jigsaws:
            raise ValueError(
                f"merge.groups ({self.merge.groups}) exceeds dispatch.jigsaws ({self.dispatch.jigsaws}): "
                "a group has at least one"
            )
        return self


def parse_config(document: dict[str, Any], *, origin: str = "configuration") -> Config:
    """Validate a nested mapping; the profile's values lie under the user's.

    Raises:
        UsageError: unknown key (with the closest known one), wrong type or value; names `origin` and the key.
    """
    profile = document.get("profile", "robust")
    base = PROFILES.get(profile if isinstance(profile, str) else "", {})
    try:
        return Config.model_validate(_overlay(base, document))
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors()]
        raise UsageError(
            f"{origin}: " + "; ".join(problems), "see `lipt config schema`, or `lipt config show`"
        ) from None


def load_config(path: str | None, overrides: list[str] | None = None) -> Config:
    """Read a YAML file (None: all defaults) and apply `a.b=value` overrides, whose values are YAML.

    Raises:
        UsageError: no such file, not YAML, not a mapping, or an invalid setting.
    """
    document: Any = {}
    if path is not None:
        try:
            document = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}", "name an existing YAML file") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}", "correct that line") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} holds a {type(document).__name__}, not settings", "write `key: value` lines")
    for text in overrides or []:
        document = _overlay(document, _override(text))
    return parse_config(document, origin=path or "settings")


def override(config: Config, changes: dict[str, Any]) -> Config:
    """A copy with nested `changes` applied and validated again."""
    return parse_config(_overlay(config.model_dump(mode="json"), changes))


def _override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: not of the form a.b=value", "for example --set select.fraction=0.05")
    try:
        nested: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        raise UsageError(f"--set {text}: the value is not YAML", "quote it") from None
    for part in reversed(key.split(".")):
        nested = {part: nested}
    return dict(nested)


def _overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """`top` over `base`, section by section; `select.options` is replaced as a whole, its keys belong together."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict) and key != "options"
        merged[key] = _overlay(dict(below or {}), value) if both else value
    return merged


def _problem(detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "extra_forbidden":
        return (
            f"{where}: {detail['msg'].removeprefix('Value error, ')}"
            if where
            else detail["msg"].removeprefix("Value error, ")
        )
    section: Any = Config
    for part in detail["loc"][:-1]:
        section = section.model_fields[part].annotation
    return f"unknown key {where!r}; {did_you_mean(str(detail['loc'][-1]), section.model_fields)}"
