"""The report's section about the race."""

from collections.abc import Mapping

from lipt.config import Config
from lipt.report import document as doc
from lipt.runtime import Artifact
from lipt.runtime.algorithm import contestants, label_with_options
from lipt.stages.race import DIVERGED


def race_rows(config: Config, trainings: Mapping[int, Artifact], subset: Artifact) -> list[doc.RaceRow]:
    """A row per contestant, in their order; empty without a race.

    Args:
        trainings: by index of `stages.race`.
        subset: the winner's.
    """
    if not trainings:
        return []
    field, rows = contestants(config), []
    for number, contestant in enumerate(field):
        ran = [artifact for index, artifact in sorted(trainings.items()) if index % len(field) == number]
        won = any(subset.ref in artifact.inputs for artifact in ran)
        accuracies = [float(artifact.summary["accuracy"]) for artifact in ran if DIVERGED not in artifact.summary]
        diverged = len(accuracies) < len(ran)
        label = label_with_options(contestant)
        rows.append(doc.RaceRow(label=label, accuracies=accuracies, diverged=diverged, won=won))
    return rows


def reason_of_race(winners: Mapping[int, str]) -> str:
    """Why these algorithms chose the subsets, by seed."""
    if len(set(winners.values())) == 1:
        return "it won the race of selections, on the validation images"
    each = ", ".join(f"{name} with seed {seed}" for seed, name in winners.items())
    return f"each seed had a race of selections, on the validation images; it was won by {each}"
