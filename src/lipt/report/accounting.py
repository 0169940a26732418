"""The training data that were read, in epochs: by the paper's arithmetic, and as measured."""

from pydantic import BaseModel

from lipt.report.fields import STRICT, Amount


class Accounting(BaseModel):
    """Training data read, in epochs over all candidates; `saved_vs_classic` is a share, negative if more is read."""

    model_config = STRICT

    pretrain_epochs: Amount | None = None
    selection_epochs: Amount | None = None
    race_epochs: Amount | None = None
    main_epochs: Amount | None = None
    full_epochs: Amount | None = None
    classic_epochs: Amount | None = None
    saved_vs_classic: float | None = None


class PaperAccounting(BaseModel):
    """The paper's arithmetic (selection passes not counted), and our measurements; of a run with a swarm."""

    model_config = STRICT

    paper: Accounting
    measured: Accounting = Accounting()
    note: str = ""
