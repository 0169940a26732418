"""The paper's accounting in epochs, beside the bytes that were really read."""

from lipt.config import Config
from lipt.flow.graph import has_swarm, trains_models
from lipt.flow.outcome import Outcome
from lipt.ledger import Cost, paper_epochs_read
from lipt.pipeline import PRETRAINING
from lipt.report.accounting import Accounting, PaperAccounting
from lipt.runtime import Attempt
from lipt.runtime.dataset import open_dataset


def _pretraining_epochs(config: Config) -> float:
    """The epochs of all models that were trained before the scores, without a swarm."""
    if not trains_models(config):
        return 0
    scoring = config.score
    if not scoring.has_own_models:
        return config.initialise.epochs
    return scoring.epochs * (1 if scoring.disjoint else scoring.runs)


def paper_accounting(attempt: Attempt, outcome: Outcome, costs: dict[str, Cost]) -> PaperAccounting:
    """Reads of the whole data set, as the paper counts them and as they were measured.

    Args:
        costs: of each artifact, by reference.
    """
    config = outcome.config
    splits = open_dataset(attempt, outcome.prepared.dataset).manifest.splits["train"]
    one_epoch = sum(chunk.size for chunk in splits.chunks) * (1 - config.data.validation_fraction)

    def measured(*stages: str) -> float:
        return sum(costs[a.ref].read.get("data", 0) for a in outcome.artifacts() if a.stage in stages) / one_epoch

    drawn, epochs = config.train.epoch_fraction or config.select.fraction, float(config.train.epochs)
    if config.train.steps is not None:
        epochs = outcome.trained.model.summary["images"] / (drawn * outcome.subset.summary["candidates"])
    pretraining, main = paper_epochs_read("lipt" if has_swarm(config) else "none", drawn, epochs=epochs)
    if not has_swarm(config):
        pretraining = _pretraining_epochs(config)
    classic = "gradmatch" if config.select.algorithm == "gradmatch" else "grand"
    classic_total = sum(paper_epochs_read(classic, drawn, epochs=epochs))
    return PaperAccounting(
        paper=Accounting(
            pretrain_epochs=pretraining,
            main_epochs=main,
            full_epochs=epochs,
            classic_epochs=classic_total,
            saved_vs_classic=1 - (pretraining + main) / classic_total,
        ),
        measured=Accounting(
            pretrain_epochs=measured(*PRETRAINING),
            selection_epochs=measured("score", "select"),
            main_epochs=measured("train"),
        ),
        note=f"The paper's classic pre-training is that of {'GradMatch' if classic == 'gradmatch' else 'GraNd'}. The "
        "paper counts one read of the data per epoch. Here, data that fit in memory are read once, and the bytes that "
        "the store client transferred are counted.",
    )
