"""The results of one run as plain data: everything that the report shows.

The document is written once as JSON (`Document.model_dump_json`), read back with `Document.model_validate_json`,
and rendered any number of times. Units are in the names; accuracies and fractions are shares in 0..1. `None` means
"not measured", which the report shows as a dash and never as a zero.
"""

from typing import Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from lipt.errors import IntegrityError, first_problem
from lipt.pipeline import Engine
from lipt.report.accounting import PaperAccounting
from lipt.report.certainty import ScoreCheck
from lipt.report.classes import ClassAccuracy
from lipt.report.fields import STRICT, Amount, Count, Key, Measured, Moment, Share, require
from lipt.report.ledger import LedgerRow
from lipt.report.merging import MergeTable
from lipt.report.subset import Subset

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
            raise IntegrityError(
                f"{origin} is damaged, or another version of lipt wrote it: {first_problem(error.errors())}",
                "run again: finished stages are reused, and the report is written again",
            ) from None
