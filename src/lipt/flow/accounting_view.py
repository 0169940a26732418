"""The paper's accounting in epochs, beside the bytes that were really read."""

from lipt.flow.graph import has_swarm
from lipt.flow.outcome import Outcome
from lipt.ledger import Cost, paper_epochs_read
from lipt.pipeline import PRETRAINING
from lipt.report import document as doc
from lipt.runtime import Attempt
from lipt.runtime.dataset import open_dataset


def paper_accounting(attempt: Attempt, outcome: Outcome, costs: dict[str, Cost]) -> doc.PaperAccounting:
    """Reads of the whole data set, as the paper counts them and as they were measured.

    Args:
        costs: of each artifact, by reference.
    """
    config = outcome.config
    splits = open_dataset(attempt, outcome.prepared.dataset).manifest.splits["train"]
    one_epoch = sum(chunk.size for chunk in splits.chunks) * (1 - config.data.validation_fraction)

    def measured(*stages: str) -> float:
        return sum(costs[a.ref].read.get("data", 0) for a in outcome.artifacts() if a.stage in stages) / one_epoch

    method = "lipt" if has_swarm(config) else "none"
    pretraining, main = paper_epochs_read(method, config.select.fraction, epochs=config.train.epochs)
    classic = "gradmatch" if config.select.algorithm == "gradmatch" else "grand"
    classic_total = sum(paper_epochs_read(classic, config.select.fraction, epochs=config.train.epochs))
    return doc.PaperAccounting(
        paper=doc.Accounting(
            pretrain_epochs=pretraining,
            main_epochs=main,
            full_epochs=config.train.epochs,
            classic_epochs=classic_total,
            saved_vs_classic=1 - (pretraining + main) / classic_total,
        ),
        measured=doc.Accounting(
            pretrain_epochs=measured(*PRETRAINING),
            selection_epochs=measured("score", "select"),
            main_epochs=measured("train"),
        ),
        note=f"The paper's classic pre-training is that of {'GradMatch' if classic == 'gradmatch' else 'GraNd'}. The "
        "paper counts one read of the data per epoch. Here, data that fit in memory are read once, and the bytes that "
        "the store client transferred are counted.",
    )
