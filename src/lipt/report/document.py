"""The results of one run as plain data: everything that the report shows.

The document is written once as JSON (`Document.model_dump_json`), read back with `Document.model_validate_json`,
and rendered any number of times. Units are in the names; accuracies and fractions are shares in 0..1. `None` means
"not measured", which the report shows as a dash and never as a zero.
"""

from typing import Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from lipt.errors import IntegrityError
from lipt.ledger import Cost
from lipt.pipeline import Engine
from lipt.report.accounting import PaperAccounting
from lipt.report.certainty import ScoreCheck
from lipt.report.classes import ClassAccuracy
from lipt.report.fields import STRICT, Amount, Count, Key, Measured, Moment, Share, require

Role = Literal["selected", "random", "longer", "continued", "full", "classic", "other"]


class _Model(BaseModel):
    model_config = STRICT


class Row(_Model):
    """One method of the comparison, over its seeds.

    Two rows are comparable when `kept_fraction` (data budget: share of distinct candidates that is kept) and
    `epoch_fraction` (epoch budget: share of all candidates trained on per epoch) agree, and `epochs` or `steps`.
    """

    name: str
    """Such as `lipt` or `random`; `selected` is the configuration of a plain run."""
    label: str
    """The name in tables."""
    role: Role
    """What the verdict does with the row: it judges the selected one. `random` is a random fixed subset, `longer` one
    that is trained longer, for `choice_flops`, `continued` one that starts from `scorer`."""
    scorer: str = ""
    """The model from which the training could start, or does; empty if there is none. It is the one that scored, or
    theta_p where the jigsaws score."""
    continued: bool = False
    """Whether the training starts from that model, and not from random weights."""
    scorer_accuracy: Share | None = None
    """Share of the validation images for which this model, or the proxy that scored, is right; the first one if there
    are several: mean over seeds."""
    num_validation_images: Count = 0
    """Images of the validation split; 0 if unknown."""
    algorithm: str = ""
    """The selection that ran."""
    reason: str = ""
    """Reason for the algorithm, if the configuration left the choice to `auto`."""
    data: str = ""
    """Names the data set; rows of one run have the same. Only rows with equal data may be ranked."""
    recipe: str = ""
    """Names how the run trains, apart from the budgets. A choice is compared with random subsets of its own recipe."""
    runs: list[str] = []
    """Side by side: the names of the runs that have this row. Empty in the report of one run."""
    kept_fraction: Share
    """Distinct candidates that are kept, as a share of all."""
    epoch_fraction: Share
    """Images that an epoch trains on, as a share of all candidates."""
    draw: str = "uniform"
    """How an epoch draws: `train.draw`."""
    epochs: Count
    """Epochs of the main training that were begun; of the first seed."""
    steps: Amount | None = None
    """Optimiser steps of the main training, mean over seeds."""
    images: Amount | None = None
    """Images that these steps saw, each counted as often as seen; mean over seeds."""
    seeds: list[int] = Field(min_length=1)
    """Of the runs behind this row."""
    accuracy: list[Share]
    """Test accuracy of the LAST epoch, one per seed, in the order of `seeds`."""
    worst_class: Share | None = None
    """The lowest accuracy of a class, whichever it is; mean over seeds."""
    num_test_images: int = Field(gt=0)
    """Images of the test split."""
    chance: Share
    """Accuracy of always predicting the most frequent class of the test images."""
    stage_wall_s: dict[str, Amount] = {}
    """Seconds in which at least one worker worked, by stage in the order run; mean over seeds."""
    machine: str = ""
    """The device and the threads of the main training, those of each seed once; empty if unknown."""
    pretrain_cost: Amount | None = None
    """FLOPs of pre-training, divided by the FLOPs of ONE TRAINING EPOCH ON ALL CANDIDATES. Equal on all machines."""
    data_bytes: Amount | None = None
    """Bytes of training data read and written, mean over seeds."""
    model_bytes: Amount | None = None
    """Bytes of weights read and written, mean over seeds."""
    flops: Amount | None = None
    """FLOPs of all stages, mean over seeds."""
    train_flops: Amount | None = None
    """FLOPs of the main training, without evaluation and re-selection."""
    choice_flops: Amount | None = None
    """FLOPs of all stages before the main training, also of the model from which it starts, and of selecting again."""
    race_flops: Amount | None = None
    """FLOPs of the race and of all that it read; None without a race."""

    @model_validator(mode="after")
    def _one_accuracy_per_seed(self) -> Self:
        require(len(self.seeds) == len(self.accuracy), f"row {self.name!r}: one accuracy per seed")
        require(len(set(self.seeds)) == len(self.seeds), f"row {self.name!r}: seeds must differ")
        return self


class JigsawRow(_Model):
    """A jigsaw in the merge, or the soup of a group. Accuracies are on validation images; None if it did not arrive."""

    index: Count
    """Number of the jigsaw or of the group."""
    accuracy: Share | None = None
    """Its own."""
    alpha: Share | None = None
    """Its best interpolation weight; 1 for the first ingredient, None if it was not tried."""
    kept: bool = False
    """Whether it went into the soup."""
    batchnorm: str | None = None
    """Source of the kept model's statistics, such as "averaged" or "recalibrated"."""
    validation_after: Share | None = None
    """Of the soup after this step."""
    density: Share | None = None
    """Share of the weights that pruning kept."""
    group: Count | None = None
    """The group of a jigsaw, if there are groups."""
    missing: bool = False
    """Whether it did not arrive."""
    note: str = ""
    """Why it is missing or was left out."""


class MergeTable(_Model):
    """The soup: a row per jigsaw in the order of the merge, a row per group if there are any, reference accuracies."""

    method: str
    """How the jigsaws were merged (`merge.method`), and what theta_p is."""
    theta_star_accuracy: Share | None = None
    """Validation accuracy of the start model."""
    best_single_accuracy: Share | None = None
    """Of the best jigsaw, or of the best group if there are groups."""
    uniform_accuracy: Share | None = None
    """Of the average of all of them."""
    soup_accuracy: Share | None = None
    """Of the merged model, theta_p."""
    num_workers: Count
    """Jigsaws that were asked for."""
    num_arrived: Count
    """Jigsaws that arrived."""
    quorum: Count
    """Jigsaws that had to arrive."""
    groups: list[JigsawRow] = []
    """The groups, if there are any."""
    steps: list[JigsawRow] = []
    """The ingredients in the order of the merge."""


class RaceRow(_Model):
    """A contestant of the race."""

    label: str
    """The selection."""
    accuracies: list[Share]
    """Validation accuracy after each round that it finished."""
    diverged: bool = False
    """Whether it left the race because its loss was no longer finite."""
    won: bool = False
    """Whether the main training took its subset."""


class Histogram(_Model):
    """Counts of kept and dropped candidates by score, between len(counts) + 1 ascending edges."""

    edges: list[float] = Field(min_length=2)
    """Scores, ascending."""
    kept: list[Count]
    """Kept candidates between two edges."""
    dropped: list[Count]
    """Dropped candidates between two edges."""

    @model_validator(mode="after")
    def _one_count_per_bin(self) -> Self:
        num_bins = len(self.edges) - 1
        require(len(self.kept) == num_bins and len(self.dropped) == num_bins, "one count per bin")
        require(all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False)), "edges must ascend")
        return self


class Example(_Model):
    """One training image, as it was stored, for the montage."""

    png_base64: str = Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$")
    """The image as PNG."""
    label: str
    """Name of its class."""
    score: Measured = None
    """Its score, if it has one."""
    source: str = ""
    """The image's name in its source; empty if unknown."""


class Subset(_Model):
    """The selected samples: by class, by score, and some examples."""

    count: Count
    """Kept images."""
    class_names: list[str]
    """The classes, in the order of their numbers."""
    kept_per_class: list[Count]
    """In the order of `class_names`."""
    candidates_per_class: list[Count]
    """In the order of `class_names`."""
    score_name: str = ""
    """The score by which the algorithm chose; empty if it has none."""
    score_histogram: Histogram | None = None
    """All candidates by score."""
    kept_examples: list[Example] = []
    """Some kept images."""
    dropped_examples: list[Example] = []
    """Some images that were not kept."""
    weights_used: bool = False
    """Whether kept images have different weights in the loss."""
    digest: str = ""
    """SHA-256 of the selection."""
    ref: str = ""
    """Reference of the complete selection in the workspace."""

    @model_validator(mode="after")
    def _one_count_per_class(self) -> Self:
        num_classes = len(self.class_names)
        require(len(self.kept_per_class) == num_classes, "kept_per_class: one count per class")
        require(len(self.candidates_per_class) == num_classes, "candidates_per_class: one count per class")
        return self


class Curve(_Model):
    """Training of one model, a point per entry of `epoch`. A series that was not recorded is empty."""

    name: str
    """Label of the row whose main training it is."""
    epoch: list[Amount]
    """Number of the epoch, from 1."""
    train_loss: list[Measured] = []
    """Mean loss of the epoch."""
    train_accuracy: list[Measured] = []
    """Accuracy on the images that the epoch trained on."""

    @model_validator(mode="after")
    def _one_value_per_epoch(self) -> Self:
        for series in (self.train_loss, self.train_accuracy):
            require(len(series) in (0, len(self.epoch)), f"curve {self.name!r}: one value per epoch, or none")
        return self


class LedgerRow(_Model):
    """The measured cost of one stage, or of one worker of it. Bytes are counted at the store.

    Rows can be summed: a stage that fans out has one row per worker and no other row for the same work.
    """

    ref: str = ""
    """Reference of the artifact in the workspace."""
    stage: str
    """Name of the stage."""
    worker: Count | None = None
    """Number of the worker; None if the stage has one."""
    seed: int | None = None
    """That of the run, if there are several; None for work of all."""
    earlier: bool = False
    """An earlier run finished it; this one reused it. Only known if one process did the whole run."""
    wall_s: Amount = 0.0
    """Seconds."""
    ended: Amount = 0.0
    """Seconds since 1970; 0 if unknown."""
    flops: Count = 0
    """Computed from the layers that ran."""
    peak_bytes: Count = 0
    """Highest memory of the process, or of the GPU if it used one."""
    data_read: Count = 0
    """Bytes of images read from the store."""
    data_written: Count = 0
    """Bytes of images written to the store."""
    model_read: Count = 0
    """Bytes of weights read from the store."""
    model_written: Count = 0
    """Bytes of weights written to the store."""
    other_read: Count = 0
    """Other bytes read from the store."""
    other_written: Count = 0
    """Other bytes written to the store."""
    requests: Count = 0
    """To the store."""
    steps: Count = 0
    """Optimiser steps; 0 if the stage trains nothing."""
    images: Count = 0
    """Images that it trained on; 0 if it trains nothing."""
    reselection_flops: Count = 0
    """The part of `flops` in which a training selected again."""
    machine: str = ""
    """The device and the threads that did it, with the number of processes that shared it; empty if unknown."""

    @property
    def cost(self) -> Cost:
        """The same as a cost, which can be summed."""
        kinds, same = ("data", "model", "other"), ("wall_s", "ended", "flops", "peak_bytes", "requests", "machine")
        return Cost(
            **{name: getattr(self, name) for name in same},
            read={kind: getattr(self, f"{kind}_read") for kind in kinds},
            written={kind: getattr(self, f"{kind}_written") for kind in kinds},
        )


#: The digest of the code of a network of the user's own.
NETWORK_CODE = "network/code"


class Provenance(_Model):
    """The information that repeats the run and identifies it."""

    config_yaml: str = ""
    """The configuration, with all defaults."""
    versions: dict[str, str] = {}
    """Package -> version."""
    seeds: list[int] = []
    """Of all rows, first that of the subset and of the network."""
    digests: dict[str, str] = {}
    """Name -> SHA-256: of the data set, of the files of each stage, of the code of a network of your own."""
    host: dict[str, str] = {}
    """The machine that wrote the report."""
    notes: list[str] = []
    """Remarks, a sentence each."""


class Link(_Model):
    """An object of the workspace that a reader of the report may want."""

    name: str
    """What the report calls it."""
    meaning: str
    """What it holds."""
    key: Key
    """Its place in the workspace."""


class Differences(_Model):
    """The settings in which runs side by side differ."""

    runs: list[str]
    """Their names."""
    settings: dict[str, list[str]]
    """Setting, such as `train.epochs` -> its value in each run, `–` where it is not set."""


class Document(_Model):
    """Everything the report shows. The page leaves out what is None or empty."""

    format_version: Literal[3] = 3
    """Changes when a field changes its meaning."""
    title: str
    """`name` of the configuration."""
    run_id: str
    """Name of the run."""
    created: Moment
    """ISO 8601; the only time in the report, so that rendering again gives the same bytes."""
    engine: Engine
    """Where it ran: `local` is one machine."""
    profile: str = ""
    """`profile` of the configuration."""
    done: dict[str, str] = {}
    """The task in plain words: topic -> sentences."""
    differences: Differences | None = None
    """Only in a report of several runs side by side."""
    workspace: str = ""
    """Address of the workspace, `file:///abs/path` or `s3://bucket/prefix`."""
    links: list[Link] = []
    """What the report offers to download."""
    rows: list[Row] = Field(min_length=1)
    """The table: what was compared."""
    merge: MergeTable | None = None
    """How the jigsaws became theta_p; null if there were none."""
    race: list[RaceRow] = []
    """The contestants; empty without a race."""
    race_rounds: list[Share] = []
    """Share of the main training's steps in each round of the race."""
    race_images: Count = 0
    """Number of validation images on which the race was judged; 0 if unknown."""
    score_checks: list[ScoreCheck] = []
    """How sure the scores are."""
    classes: ClassAccuracy | None = None
    """Accuracy by class."""
    subset: Subset | None = None
    """What was kept; null if nothing was selected."""
    left_out: str = ""
    """Files of the source that were not ingested, with counts; empty if there were none."""
    curves: list[Curve] = []
    """Loss and accuracy in the course of the main trainings; of the first seed."""
    ledger: list[LedgerRow] = []
    """The cost of each stage."""
    paper_accounting: PaperAccounting | None = None
    """Pre-training as the paper counts it; null without a swarm."""
    provenance: Provenance = Provenance()
    """How to repeat the run."""

    @classmethod
    def from_json(cls, data: bytes, *, origin: str) -> Self:
        """A stored document.

        Raises:
            IntegrityError: damaged, or of another format.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
            raise IntegrityError(
                f"{origin} is damaged, or another version of lipt wrote it: {what}",
                "run again: finished stages are reused, and the report is written again",
            ) from None
