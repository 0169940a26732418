"""The paper's accounting in epochs, beside the bytes that were really read."""

from collections.abc import Iterable

from lipt.flow.outcome import Outcome
from lipt.ledger import Cost
from lipt.pipeline import PRETRAINING
from lipt.report.accounting import Accounting, PaperAccounting
from lipt.runtime import Artifact, Attempt
from lipt.runtime.dataset import open_dataset

#: The classic pipelines of the paper: the reads of both are the paper's, not measured here.
_CLASSIC = {
    "grand": "GraNd with 10 trainings of one epoch",
    "gradmatch": "GradMatch with a warm start of half of the epochs that the main training reads",
}


def paper_accounting(attempt: Attempt, outcome: Outcome, costs: dict[str, Cost]) -> PaperAccounting | None:
    """Reads of the whole data set, as the paper counts them and as they were measured; None without a swarm, which the
    paper's arithmetic is about.

    Args:
        costs: of each artifact, by reference.
    """
    config = outcome.config
    if outcome.merged is None:
        return None
    split = open_dataset(attempt, outcome.prepared.dataset).manifest.splits["train"]
    one_epoch = sum(chunk.size for chunk in split.chunks) * (1 - config.data.validation_fraction)
    candidates = int(outcome.subset.summary["candidates"])

    def measured(*stages: str) -> float:
        return sum(costs[a.ref].read.get("data", 0) for a in outcome.artifacts() if a.stage in stages) / one_epoch

    def trained(models: Iterable[Artifact]) -> float:
        return sum(int(model.summary["images"]) for model in models) / candidates

    drawn, epochs = config.train.epoch_fraction or config.select.fraction, float(config.train.epochs)
    if config.train.steps is not None or config.train.draw == "infobatch":  # its epochs leave out images
        epochs = trained([outcome.trained.model]) / drawn
    classic = "gradmatch" if config.select.algorithm == "gradmatch" else "grand"
    before, main = classic_epochs_read(classic, drawn, epochs=epochs)
    pretraining, race = trained([*outcome.prepared.initial, *outcome.jigsaws]), trained(outcome.race.values())
    return PaperAccounting(
        paper=Accounting(
            pretrain_epochs=pretraining,
            race_epochs=race if outcome.race else None,
            main_epochs=main,
            full_epochs=epochs,
            classic_epochs=before + main,
            saved_vs_classic=1 - (pretraining + race + main) / (before + main),
        ),
        measured=Accounting(
            pretrain_epochs=measured(*PRETRAINING),
            selection_epochs=measured("score", "select"),
            race_epochs=measured("race") if outcome.race else None,
            main_epochs=measured("train"),
        ),
        note="The paper counts one read of the data per epoch: in the pre-training those of theta_* and of the jigsaws "
        f"of this run. Its classic pipeline is {_CLASSIC[classic]}. Here, data that fit in memory are read once, and "
        "the bytes that the store client transferred are counted.",
    )


def classic_epochs_read(method: str, fraction: float, *, epochs: float) -> tuple[float, float]:
    """(pre-training, main training) of a classic pipeline in epochs of data read, as the paper counts: without
    selection passes (Ro et al., ICML 2023, App. B).

    Args:
        method: `grand` (10 runs of one epoch), or `gradmatch` (warm start of kappa T_s k / n epochs, kappa = .5, T_s
            the main training's).
        fraction: subset share f; main training reads f of the data per epoch.
    """
    main = epochs * fraction
    return {"grand": 10.0, "gradmatch": 0.5 * main}[method], main
