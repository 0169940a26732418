"""The report's section about the cost of each stage and of each worker."""

from collections.abc import Collection, Sequence

from lipt.flow.outcome import Outcome
from lipt.ledger import Cost
from lipt.report.ledger import LedgerRow
from lipt.runtime.artifact import Artifact, canonical_json


def ledger_section(
    outcomes: Sequence[Outcome], artifacts: Sequence[Artifact], costs: dict[str, Cost], reused: Collection[str]
) -> list[LedgerRow]:
    """A row per artifact.

    Args:
        outcomes: of all rows and seeds.
        artifacts: theirs, in the order in which they were made.
        costs: of each artifact, by reference.
        reused: references of those that an earlier run made.
    """
    workers, seeds = _workers(artifacts), _seed_of_each(outcomes)
    return [
        _ledger_row(each, costs[each.ref], workers.get(each.ref), seeds.get(each.ref), earlier=each.ref in reused)
        for each in artifacts
    ]


def _workers(artifacts: Sequence[Artifact]) -> dict[str, int]:
    """Reference -> number of each jigsaw, group, and model of `score.runs` if there are several."""
    found = {each.ref: int(each.settings["index"]) for each in artifacts if "index" in each.settings}
    runs: dict[bytes, dict[str, int]] = {}
    for each in artifacts:
        if "run" in each.settings:
            others = canonical_json([each.inputs, each.settings | {"run": None}])
            runs.setdefault(others, {})[each.ref] = int(each.settings["run"])
    for same in runs.values():
        found |= same if len(same) > 1 else {}
    return found


def _seed_of_each(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Reference -> seed of each artifact that belongs to one of several seeds."""
    if len({outcome.config.seed for outcome in outcomes}) == 1:
        return {}
    return {artifact.ref: outcome.config.seed for outcome in outcomes for artifact in outcome.artifacts()}


def _ledger_row(artifact: Artifact, cost: Cost, worker: int | None, seed: int | None, *, earlier: bool) -> LedgerRow:
    summary = artifact.summary  # of a merge, `steps` is its history
    names = ("steps", "images", "reselection_flops") if isinstance(summary.get("steps"), int) else ()
    trained = {name: summary[name] for name in names if name in summary}
    return LedgerRow.of(
        cost, ref=artifact.ref, stage=artifact.stage, worker=worker, seed=seed, earlier=earlier, **trained
    )
