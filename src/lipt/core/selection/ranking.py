"""Algorithms that give every candidate a score and keep the highest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from lipt.core.selection.gradients import as_float, error_vectors, probabilities
from lipt.core.selection.task import Picks, Task, register, top
from lipt.core.selection.types import Candidates, Outputs, check_forgetting

Uncertainty = Literal["entropy", "margin", "least_confidence"]
Difficulty = Literal["el2n", "grand", "forgetting", "entropy", "margin", "least_confidence"]


@register("grand", models=1)
def grand(task: Task) -> Picks:
    """Largest expected norm of the last-layer gradient (Paul et al. 2021, Definition 2.1), the mean over the models."""
    return top(task, difficulty(task.candidates, "grand"))


@register("el2n", models=1)
def el2n(task: Task) -> Picks:
    """Largest expected |softmax(z) - onehot(y)| (Paul et al. 2021, Definition 2.2), the mean over the models."""
    return top(task, difficulty(task.candidates, "el2n"))


@register("forgetting", forgetting=True)
def forgetting(task: Task) -> Picks:
    """Most often forgotten (correct, then wrong) in training (Toneva et al. 2018); never learned = +inf, so first."""
    return top(task, difficulty(task.candidates, "forgetting"))


@register("uncertainty", models=1)
def uncertainty(task: Task, *, measure: Uncertainty = "entropy") -> Picks:
    """Most uncertain predictions; probabilities are averaged over the models."""
    return top(task, difficulty(task.candidates, measure))


def difficulty(candidates: Candidates, score: Difficulty) -> Tensor:
    """The score called `score` (N,), higher = harder."""
    if score == "forgetting":
        return as_float(check_forgetting(candidates))
    if score in get_args(Uncertainty):
        return uncertainty_scores(candidates.outputs, score)
    norms = []
    for each in candidates.outputs:
        norms_N = error_vectors(each.logits_NC, candidates.labels_N).norm(dim=1)
        if score == "grand":  # |delta (x) h~| = |delta| |h~|, and h~ = [h, 1]
            norms_N = norms_N * (as_float(each.features_ND).square().sum(1) + 1).sqrt()
        norms.append(norms_N)
    return torch.stack(norms).mean(0)


def uncertainty_scores(outputs: Sequence[Outputs], measure: str) -> Tensor:
    """Uncertainty (N,) of the mean predicted probabilities, higher = less certain.

    `entropy`: -sum p log p in nats; `margin`: second minus first probability; `least_confidence`: 1 - max p.
    """
    probabilities_NC = torch.stack([probabilities(each.logits_NC) for each in outputs]).mean(0)
    if measure == "entropy":
        entropies_NC: Tensor = torch.special.entr(probabilities_NC)
        return entropies_NC.sum(1)
    ordered_NC = probabilities_NC.sort(dim=1, descending=True).values
    if measure == "least_confidence":
        return ordered_NC[:, 1:].sum(1)  # 1 - max p, without losing the digits where max p rounds to 1
    return ordered_NC[:, 1] - ordered_NC[:, 0] if ordered_NC.shape[1] > 1 else torch.zeros_like(ordered_NC[:, 0])
