"""The report's section about the swarm and its soup."""

from typing import Any

from lipt.flow.outcome import Outcome
from lipt.report.merging import JigsawRow, MergeTable
from lipt.stages.pretrain import quorum_of


def merge_section(outcome: Outcome) -> MergeTable | None:
    """The section about an outcome's merge; None without a swarm."""
    if outcome.merged is None:
        return None
    summary, dispatched = outcome.merged.summary, outcome.config.dispatch.jigsaws
    soups = {int(soup.settings["index"]): soup.summary for soup in outcome.groups}
    groups = [_ingredient(step, note=_result(soups[step["index"]])) for step in summary["steps"] if soups]
    histories: dict[int | None, Any] = {row.index: soups[row.index]["steps"] for row in groups}
    steps = [
        _ingredient(step, group=group, density=summary["densities"][str(step["index"])])
        for group, history in (histories or {None: summary["steps"]}).items()
        for step in history
    ]
    steps += [
        JigsawRow(index=index, missing=True, note=outcome.failures.get(index, "did not arrive"))
        for index in summary["missing"]
    ]
    return MergeTable(
        method=_method(outcome.config.merge.method, summary["chosen"], groups=bool(groups)),
        theta_star_accuracy=summary["theta_star_accuracy"],
        best_single_accuracy=summary["best_single_accuracy"],
        uniform_accuracy=summary["uniform_accuracy"],
        soup_accuracy=summary["accuracy"],
        num_workers=dispatched,
        num_arrived=dispatched - len(summary["missing"]),
        quorum=quorum_of(outcome.config),
        groups=groups,
        steps=steps,
    )


_METHODS = {
    "greedy_interpolation": "were tried one by one, the best first. Each was averaged into the soup, with the best of "
    "several weights, if that raised the validation accuracy",
    "greedy": "were tried one by one, the best first. Each was averaged into the soup, with equal weight, if that "
    "raised the validation accuracy",
    "uniform": "were all averaged",
    "best_single": "were compared, and the best one was taken",
}
_RESULTS = {
    "soup": "the soup",
    "theta_star": "theta_* itself, because nothing was better",
    "uniform": "the average of all, because it was the best",
}


def _method(method: str, chosen: str, *, groups: bool) -> str:
    """How the jigsaws were merged, and what theta_p is.

    Args:
        method: `merge.method`.
        chosen: of the merge's summary.
    """
    what = "The jigsaws of each group, and then the soups of the groups," if groups else "The jigsaws"
    result = _RESULTS.get(chosen) or f"{chosen.replace('-', ' ')} alone"
    return f"{what} {_METHODS[method]} (setting `merge.method: {method}`). The result, theta_p, is {result}."


def _ingredient(step: dict[str, Any], **more: Any) -> JigsawRow:
    """The row of one jigsaw, or of one group's soup, from a step of the merge's summary."""
    return JigsawRow(
        validation_after=step["accuracy_after"],
        **more,
        **{name: step[name] for name in ("index", "accuracy", "alpha", "kept", "batchnorm")},
    )


def _result(group: dict[str, Any]) -> str:
    """The result of a group, as a note."""
    kept = sum(step["kept"] for step in group["steps"])
    return f"{kept} of {len(group['steps'])} jigsaws kept, result: {group['chosen']}"
