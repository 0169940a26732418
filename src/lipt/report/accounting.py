"""The training data that were read, in epochs: by the paper's arithmetic, and as measured."""

from pydantic import BaseModel

from lipt.report.fields import STRICT, Amount


class Accounting(BaseModel):
    """Training data read, in epochs over all candidates."""

    model_config = STRICT

    pretrain_epochs: Amount | None = None
    """By theta_* and the jigsaws."""
    selection_epochs: Amount | None = None
    """By scoring and selection."""
    race_epochs: Amount | None = None
    """By the race; None without one."""
    main_epochs: Amount | None = None
    """By the main training."""
    full_epochs: Amount | None = None
    """By a training on all candidates."""
    classic_epochs: Amount | None = None
    """By a classic pipeline: its pre-training and main training."""
    saved_vs_classic: float | None = None
    """Share of `classic_epochs` that LiPT does not read; negative if it reads more."""


class PaperAccounting(BaseModel):
    """The paper's arithmetic (selection passes not counted), and our measurements; of a run with a swarm."""

    model_config = STRICT

    paper: Accounting
    """By the paper's arithmetic."""
    measured: Accounting = Accounting()
    """As measured."""
    note: str = ""
    """What is counted, in words."""
