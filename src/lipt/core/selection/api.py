"""`select`: the one entry point of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lipt.core.selection import task as registry
from lipt.core.selection.auto import AUTO, auto_rule
from lipt.core.selection.passes import in_memory
from lipt.core.selection.result import Selection, check_notes
from lipt.core.selection.rows import members_by_class
from lipt.core.selection.task import Group, Task, require
from lipt.core.selection.types import Candidates, Requirements
from lipt.errors import UsageError


def resolve(algorithm: str, fraction: float, *, balanced: bool = True) -> str:
    """The algorithm that runs at this share of the data: another one only for `auto`.

    Raises:
        UsageError: no such algorithm.
    """
    name = auto_rule(fraction, balanced=balanced)[0] if algorithm == AUTO else algorithm
    registry.lookup(name)
    return name


def requirements(algorithm: str, fraction: float) -> Requirements:
    """What `algorithm` needs besides labels at this share of the data; lets a pipeline skip scoring.

    Raises:
        UsageError: no such algorithm.
    """
    return registry.lookup(resolve(algorithm, fraction))[1]


def select(
    algorithm: str, candidates: Candidates, *, fraction: float, seed: int = 0, balanced: bool = True,
    options: Mapping[str, Any] | None = None, validation: Candidates | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Selection:  # fmt: skip
    """Choose a share of the candidates.

    Args:
        fraction: share that is kept, 0 < fraction <= 1.
        balanced: round(fraction * n_c) of every class c, at least 1 of a class that has any; else round(fraction * n)
            of all.
            `random` ignores it (always the latter), so does `stratified` (always the former).
        options: of the algorithm; unknown ones are an error.
        validation: outputs of held-out samples, for algorithms whose requirements name it; else the candidates are
            used.
        notes: go into the selection's provenance, for example {"checkpoint": its digest}.

    Raises:
        UsageError: unknown algorithm or option, missing outputs, arguments out of range, notes that cannot be stored.
        RunError: logits, features or counts that are not finite; names the sample.
    """
    if algorithm == AUTO:
        require(not options, "algorithm auto takes no options; name the algorithm to set them")
        algorithm, options = auto_rule(fraction, balanced=balanced)
    function, needs = registry.lookup(algorithm)
    bound = registry.bind_options(algorithm, function, options or {})
    require(0 < fraction <= 1, f"fraction must be in (0, 1], not {fraction}")
    require(len(candidates) > 0, "there are no candidates to select from")
    check_notes(notes or {})  # before the work, not after it
    if candidates.num_models < needs.models:
        raise UsageError(
            f"algorithm {algorithm} needs the outputs of at least {needs.models} model(s), got {candidates.num_models}",
            "score the candidates first, or choose random or stratified",
        )
    if needs.outputs and not needs.passes:
        candidates = in_memory(candidates, "candidate")
    task = Task(
        candidates=candidates, validation=_judges(candidates, validation) if needs.validation else None,
        fraction=fraction, groups=groups(candidates, fraction, balanced=balanced),
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    picks = function(task, **bound)
    weights_K = (
        torch.ones_like(picks.indices_K, dtype=torch.float32) if picks.weights_K is None else picks.weights_K.float()
    )
    return Selection(
        indices_K=picks.indices_K, weights_K=weights_K, scores_N=None if picks.scores_N is None else
        picks.scores_N.float(), labels_N=candidates.labels_N, positions_N=torch.arange(len(candidates)),
        algorithm=algorithm, options=bound, fraction=fraction, balanced=balanced, seed=seed, notes=notes or {},
    )  # fmt: skip


def groups(candidates: Candidates, fraction: float, *, balanced: bool) -> list[Group]:
    """The groups that share a budget, without empty ones, and their exact budgets."""
    if not balanced:
        everyone_N = torch.arange(len(candidates), device=candidates.labels_N.device)
        return [Group(label=None, members_M=everyone_N, budget=_budget(fraction, len(candidates)))]
    return [
        Group(label=label, members_M=members_M, budget=_budget(fraction, len(members_M)))
        for label, members_M in enumerate(members_by_class(candidates.labels_N, candidates.num_classes))
        if len(members_M)
    ]


def _budget(fraction: float, n: int) -> int:
    return max(1, round(fraction * n))


def _judges(candidates: Candidates, validation: Candidates | None) -> Candidates | None:
    """The validation samples, if any, with all their outputs."""
    if validation is None:
        return None
    require(len(validation) > 0, "the validation set is empty")
    validation = in_memory(validation, "validation")
    shapes = [
        [(o.logits_NC.shape[1], o.features_ND.shape[1]) for o in each.outputs] for each in (candidates, validation)
    ]
    require(shapes[0] == shapes[1], "validation and candidates must be scored by the same models")
    return validation
