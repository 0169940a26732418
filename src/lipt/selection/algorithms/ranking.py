"""Algorithms that score every candidate and keep the highest scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from lipt.errors import RunError, UsageError
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.gradients import error_norms, probabilities
from lipt.selection.inputs.outputs import Outputs
from lipt.selection.inputs.passes import per_sample
from lipt.selection.inputs.trajectory import DIFFICULTIES, Trajectory, mean_difficulty
from lipt.selection.numerics.blocks import per_row
from lipt.selection.numerics.norms import as_float, row_sums, sum_of
from lipt.selection.registry import Picks, Task, register, top

Uncertainty = Literal["entropy", "margin", "least_confidence"]
MEASURES = get_args(Uncertainty)
Difficulty = Literal["el2n", "grand", "aum", "loss", "forgetting", "entropy", "margin", "least_confidence", "scores"]


@register("grand", models=1, passes=1)
def grand(task: Task) -> Picks:
    """Largest gradients.

    Source: Paul et al. 2021, Definition 2.1. Time: O(n(C + d)). Use: mild pruning; comparison with the paper.
    The score is the norm of the last-layer gradient, the mean over the models.
    """
    return top(task, difficulty(task.candidates, "grand"))


@register("el2n", models=1, passes=1, features=False, trajectory=True)
def el2n(task: Task) -> Picks:
    """Largest error vectors.

    Source: Paul et al. 2021, Definition 2.2. Time: O(nC). Use: mild pruning (half or more is kept).
    The score is |softmax(z) - onehot(y)|, the mean over the models, or over the epochs of a trajectory.
    """
    return top(task, difficulty(task.candidates, "el2n"))


@register("aum", trajectory=True)
def aum(task: Task) -> Picks:
    """Smallest margins, on average over the epochs of a training: the likely wrong labels and the hardest samples.

    Source: Pleiss et al. 2020, eq. 1-2. Time: O(nT). Use: `ccs` with `score: aum`; alone only to find wrong labels.
    The margin is the logit of the own class minus the largest other one.
    """
    return top(task, difficulty(task.candidates, "aum"))


@register("forgetting", trajectory=True)
def forgetting(task: Task) -> Picks:
    """Samples forgotten most often (correct, then wrong) in training; never-learned ones (+inf) first.

    Source: Toneva et al. 2019. Time: O(n log n). Use: mild pruning; counts of your own
    (`Candidates.of(labels, forgetting=...)`) can replace the trajectory.
    """
    return top(task, difficulty(task.candidates, "forgetting"))


@register("uncertainty", models=1, passes=1, features=False)
def uncertainty(task: Task, *, measure: Uncertainty = "entropy") -> Picks:
    """Least certain predictions.

    Time: O(nC). Use: active learning baseline. Probabilities are averaged over the models.

    Args:
        measure: entropy of the probabilities; `margin`: 1 - the largest probability + the second one;
            `least_confidence`: 1 - the largest one.
    """
    return top(task, difficulty(task.candidates, measure))


@register("scores", scores=True)
def scores(task: Task) -> Picks:
    """Your own highest scores.

    Time: O(n log n). Use: you have your own scores. They are `Candidates.scores_N`; negate them to keep the lowest.
    """
    return top(task, difficulty(task.candidates, "scores"))


def difficulty(candidates: Candidates, score: Difficulty) -> Tensor:
    """The difficulty (N,) called `score`, higher = harder.

    Raises:
        UsageError: the candidates lack the trajectories, forgetting counts or scores that it needs.
    """
    if score in DIFFICULTIES and (candidates.trajectories or score not in ("el2n", "forgetting")):
        return mean_difficulty(trajectories_of(candidates, score), score)
    if score == "forgetting":
        return _forgetting_counts(candidates)
    if score == "scores":
        return _own_scores(candidates)
    return per_sample(candidates, lambda block: _of_outputs(block, score))


def difficulty_and_errors(candidates: Candidates, score: Difficulty) -> tuple[Tensor, float]:
    """The difficulty (N,), and the share of the candidates that the models get wrong, found in the same pass.

    With trajectories it is the share that their first epochs get wrong. Own scores and counts do not tell it: then 1.

    Raises:
        UsageError: as `difficulty`.
    """
    if score == "scores" or (score == "forgetting" and not candidates.trajectories):
        return difficulty(candidates, score), 1.0
    if score in DIFFICULTIES and (candidates.trajectories or score != "el2n"):
        wrong = [float((each.margin_NT[:, 0] <= 0).double().mean()) for each in trajectories_of(candidates, score)]
        return difficulty(candidates, score), sum(wrong) / len(wrong)

    def both_N2(block: Candidates) -> Tensor:
        scores_N = _of_outputs(block, score)
        return torch.stack([scores_N, _errors(block).to(scores_N.dtype)], 1)

    columns_N2 = per_sample(candidates, both_N2)
    return columns_N2[:, 0].clone(), float(columns_N2[:, 1].mean(dtype=torch.float64))  # a view would keep both


def _of_outputs(block: Candidates, score: Difficulty) -> Tensor:
    if score in MEASURES:
        return uncertainty_scores(block.outputs, score)
    return _mean_norms(block, of_gradients=score == "grand")


def _errors(block: Candidates) -> Tensor:
    """The share of the models (N,) for which another class has a logit as large as the own one, or larger."""

    def wrong_B(outputs: Outputs, rows: slice) -> Tensor:
        logits_BC, own_B1 = outputs.logits(rows), block.labels_N[rows, None]
        others_BC = logits_BC.scatter(1, own_B1, -torch.inf)
        return (logits_BC.gather(1, own_B1)[:, 0] <= others_BC.amax(1)).float()

    wrong = (per_row(len(block), each.num_classes, partial(wrong_B, each)) for each in block.outputs)
    return sum_of(wrong) / len(block.outputs)


def trajectories_of(candidates: Candidates, needed_by: str) -> Sequence[Trajectory]:
    """The trajectories of the candidates.

    Raises:
        UsageError: there are none.
    """
    if not candidates.trajectories:
        raise UsageError(f"{needed_by} needs a trajectory", "record one while the scoring model trains")
    return candidates.trajectories


def _forgetting_counts(candidates: Candidates) -> Tensor:
    counts_N = candidates.forgetting_N
    if counts_N is None:
        raise UsageError("forgetting counts are missing", "record a trajectory while the scoring model trains")
    if counts_N.dtype.is_complex:
        raise UsageError(f"forgetting counts must be real numbers, not {counts_N.dtype}", "hand over their real part")
    counts_N = as_float(counts_N)
    wrong_K = (~(counts_N >= 0)).nonzero().flatten()  # NaN compares false
    if len(wrong_K):
        raise RunError(
            f"forgetting count of sample {int(wrong_K[0])} is {float(counts_N[wrong_K[0]])}",
            "counts are 0 or more; for a sample that was never learned pass inf",
        )
    return counts_N


def _own_scores(candidates: Candidates) -> Tensor:
    """The user's scores (N,) in float64."""
    scores_N = candidates.scores_N
    if scores_N is None:
        raise UsageError(
            "own scores are missing", "hand them over: Candidates.of(labels, scores=...), or lipt select --scores"
        )
    if scores_N.dtype.is_complex:
        raise UsageError(f"scores must be real numbers, not {scores_N.dtype}", "hand over their real part")
    exact_N = scores_N.double()
    if scores_N.dtype.is_floating_point:
        lost_N = exact_N.isfinite() & exact_N.float().isinf()  # a selection stores float32
    else:
        lost_N = exact_N.abs() >= 2**53  # equal to its neighbours in float64
    wrong_K = (exact_N.isnan() | lost_N).nonzero().flatten()
    if len(wrong_K):
        sample, value = int(wrong_K[0]), scores_N[wrong_K[0]].item()
        if value != value:
            raise RunError(f"the score of sample {sample} is NaN", "give every sample a number, or leave it out")
        raise RunError(
            f"the score of sample {sample}, {value}, is too large",
            "integers must be below 2^53 and other numbers below 3e38: subtract or divide, or hand over ranks",
        )
    return exact_N


def _mean_norms(block: Candidates, *, of_gradients: bool) -> Tensor:
    norms = (_norms(each, block.labels_N, of_gradients=of_gradients) for each in block.outputs)
    return sum_of(norms).div_(len(block.outputs)) if len(block.outputs) > 1 else next(norms)


def _norms(outputs: Outputs, labels_N: Tensor, *, of_gradients: bool) -> Tensor:
    """|g_i| (N,) or, without the features, |delta_i|."""

    def norms_B(block: slice) -> Tensor:
        error_B = error_norms(outputs.logits(block), labels_N[block])
        if of_gradients:  # |delta (x) h~| = |delta| |h~|, and h~ = [h, 1]
            error_B *= outputs.lengths_N[block].square().add_(1).sqrt_()
        return error_B

    width = max(512, outputs.num_classes + outputs.num_features)  # few rows per block, which stay in the cache
    return per_row(len(labels_N), width, norms_B)


def uncertainty_scores(outputs: Sequence[Outputs], measure: str) -> Tensor:
    """Uncertainty (N,) of the mean predicted probabilities, higher = less certain.

    `entropy`: -sum p log p in nats; `least_confidence`: 1 - max p; `margin`: the same plus the second largest p.
    """

    def uncertainty_B(block: slice) -> Tensor:
        p_BC = sum_of(probabilities(each.logits(block)) for each in outputs) / len(outputs)
        if measure == "entropy":
            return row_sums(torch.special.entr(p_BC))
        others_BC = p_BC.scatter_(1, p_BC.argmax(1, keepdim=True), 0.0)
        doubt_B = row_sums(others_BC)  # 1 - max p, with all digits even if max p rounds to 1
        return doubt_B if measure == "least_confidence" else doubt_B + others_BC.amax(1)

    return per_row(len(outputs[0].features_ND), sum(each.num_classes for each in outputs), uncertainty_B)
