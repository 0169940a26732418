"""Algorithms that draw samples: uniformly, evenly over a score, or with a score-dependent probability."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lipt.selection.algorithms.ranking import Difficulty, difficulty, difficulty_and_errors, trajectories_of
from lipt.selection.auto import default_beta
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.gradients import probabilities
from lipt.selection.inputs.passes import per_sample
from lipt.selection.inputs.trajectory import by_windows, row_means, variability
from lipt.selection.needs import Requirements
from lipt.selection.numerics.blocks import by_class, members_by_class, per_row
from lipt.selection.numerics.maxima import highest
from lipt.selection.numerics.norms import sum_of
from lipt.selection.registry import Group, Picks, Task, per_group, register, require, shares, top


@register("random")
def random(task: Task) -> Picks:
    """Uniform draw, whatever the class.

    Time: O(n). Use: the baseline that every method must beat. With the same seed smaller fractions nest in larger ones.
    """
    order_N = torch.randperm(len(task.candidates), generator=task.generator)
    return Picks(indices_K=order_N[: task.budget].to(task.candidates.labels_N.device))


@register("stratified")
def stratified(task: Task) -> Picks:
    """Uniform draw within each class (class-balanced random).

    Time: O(n). Use: the fairer baseline; little to beat at 5 % and more. It ignores the grouping of the task.
    """
    order_N = torch.randperm(len(task.candidates), generator=task.generator).to(task.candidates.labels_N.device)
    sizes = task.candidates.class_sizes
    members, budgets = members_by_class(task.candidates.labels_N[order_N], sizes), shares(task.budget, sizes)
    picked = [positions_M[:budget] for positions_M, budget in zip(members, budgets, strict=True)]
    return Picks(indices_K=order_N[torch.cat(picked)])


@register(
    "ccs",
    models=1,
    passes=1,
    features=False,
    trajectory=True,
    option="score",
    by_value={
        "grand": Requirements(models=1, logits=True, features=True, passes=1),
        "entropy": Requirements(models=1, logits=True, passes=1),
        "margin": Requirements(models=1, logits=True, passes=1),
        "least_confidence": Requirements(models=1, logits=True, passes=1),
        "aum": Requirements(trajectory=True),
        "loss": Requirements(trajectory=True),
        "forgetting": Requirements(trajectory=True),
        "scores": Requirements(scores=True),
    },
)
def ccs(task: Task, *, score: Difficulty = "el2n", beta: float | None = None, strata: int = 50) -> Picks:
    """Drops the hardest share `beta`, then covers the range of the other scores evenly.

    Source: Zheng et al. ICLR 2023, Algorithm 1. Time: O(n log n). Use: small budgets.

    Args:
        score: difficulty, higher = harder. `aum`, `loss` and `forgetting` need a trajectory, `scores` your own scores.
            `aum` is that of Pleiss et al., of logits; the authors of CCS take margins of probabilities.
        beta: share of each group that is dropped first, as far as the budget allows; None = by the fraction and
            the errors: the smaller of two shares. One is .3 log10(.5 / fraction), within 0 and .5. The other is the
            share that the models, or the first epoch of the trajectory, get wrong, but at least .1. It presumes barely
            trained models. Own scores and counts have no such limit.
        strata: number of equally wide score ranges that share the budget; at most one per sample of the budget.
    """
    require(
        beta is None or 0 <= beta < 1,
        f"ccs: beta must be in [0, 1), not {beta}",
        "pass the share to drop, such as beta=0.1, or None",
    )
    require(strata >= 1, f"ccs: strata must be at least 1, not {strata}", "pass 1 or more")
    if beta is None:
        scores_N, wrong = difficulty_and_errors(task.candidates, score)
        dropped = default_beta(task.fraction, wrong)
    else:
        scores_N, dropped = difficulty(task.candidates, score), beta

    def pick(group: Group) -> tuple[Tensor, None]:
        n, k = len(group.members_M), group.budget
        scores_M = scores_N[group.rows].cpu()
        easy_M = highest(scores_M, n)[min(round(dropped * n), n - k) :]
        local_K = _cover(scores_M[easy_M], k, min(strata, k), task.generator)
        return easy_M[local_K].to(scores_N.device), None

    return replace(per_group(task, pick, scores_N), chosen={"beta": dropped})


@register("dual", models=2, passes=1, features=False, trajectory=True)
def dual(
    task: Task,
    *,
    window: int | None = None,
    sampling: Literal["beta", "top"] = "beta",
    c_d: float = 4.0,
    concentration: float = 15.0,
) -> Picks:
    """Random draw by (1 - mean p_y) sd p_y over the epochs of a training, or over several models, with a Beta density.

    Source: Cho et al. ICML 2025, eq. 3-6. Time: O(nRC). Use: you have a trajectory, or several models.

    Args:
        window: consecutive epochs of a trajectory, or consecutive models, per score; None = all. The paper uses 10.
        sampling: `beta` draws with probability score * Beta density of the mean prediction, easier as the fraction
            shrinks; `top` keeps the highest scores.
        c_d: larger for simpler data; the paper uses 5.5 (CIFAR-10), 4 (CIFAR-100), 11 (ImageNet).
        concentration: C of the paper.
    """
    require(c_d > 0 and concentration > 0, "dual: c_d and concentration must be positive", "pass numbers above 0")
    mean_N, scores_N = _dual_scores(task.candidates, window).unbind(1)
    if sampling == "beta":
        anchor = mean_N[highest(scores_N, 10)].mean()
        b = concentration * (1 - anchor) * (1 - (1 - task.fraction) ** c_d)
        a = concentration + 1 - b
        p_N = mean_N.double().clamp(1e-6, 1 - 1e-6)
        log_weights_N = (a - 1) * p_N.log() + (b - 1) * (1 - p_N).log() + scores_N.double().clamp_min(1e-12).log()
        # The k highest of log w + Gumbel noise are a draw without replacement with probabilities proportional to w.
        uniform_N = torch.rand(len(p_N), generator=task.generator, dtype=torch.float64).clamp_min(1e-300)
        keys_N = log_weights_N - (-uniform_N.log()).log().to(p_N.device)
    else:
        keys_N = scores_N
    return per_group(task, lambda group: (highest(keys_N[group.rows], group.budget), None), scores_N)


@register("dyn_unc", trajectory=True)
def dyn_unc(task: Task, *, window: int = 10) -> Picks:
    """Samples whose prediction varies most over the epochs of a training.

    Source: He et al. 2024, eq. 3-4. Time: O(nTJ). Use: 5 % from 100 passes on, 10 % from 25,
    20 % from 50; 30 % for 2 to 20 passes.
    The score is the standard deviation of p_y within a window of consecutive epochs, the mean over windows and models.

    Args:
        window: J, epochs per window; at most the epochs of the trajectory, 2 or more.
    """
    trajectories = trajectories_of(task.candidates, "dyn_unc")
    require(window >= 2, f"dyn_unc: window must be at least 2, not {window}", "pass 2 or more")
    width = min(window, *(each.epochs for each in trajectories))
    require(width >= 2, "dyn_unc needs a trajectory of at least two epochs", "record two epochs or more")
    scores = (by_windows(each.p_NT, width, lambda p_BT: variability(p_BT, width)[1].mean(1)) for each in trajectories)
    return top(task, sum_of(scores) / len(trajectories))


def _dual_scores(candidates: Candidates, window: int | None) -> Tensor:
    """The columns of `dual_scores` (N, 2), over the epochs of each trajectory and averaged, or over the models."""
    count = min((each.epochs for each in candidates.trajectories), default=candidates.num_models)
    what = "epochs" if candidates.trajectories else "models"
    require(count > 1, f"dual needs at least 2 {what}, there is {count}", f"score with more {what}")
    width = count if window is None else window
    require(
        2 <= width <= count,
        f"dual: window must be between 2 and the number of {what}, {count}; not {window}",
        "pass a number in that range, or None for all",
    )
    if candidates.trajectories:
        scores = [
            by_windows(each.p_NT, width, lambda p_BT: dual_scores(p_BT, width)) for each in candidates.trajectories
        ]
        return sum_of(scores) / len(scores)

    def scores_B2(block: Candidates, rows: slice) -> Tensor:
        labels_B1 = block.labels_N[rows, None]
        own = [probabilities(each.logits(rows)).gather(1, labels_B1) for each in block.outputs]
        return dual_scores(torch.cat(own, 1), width)

    def of_block(block: Candidates) -> Tensor:
        columns = sum(each.num_classes for each in block.outputs)
        return per_row(len(block), columns, lambda rows: scores_B2(block, rows))

    return per_sample(candidates, of_block)


def dual_scores(p_NR: Tensor, window: int) -> Tensor:
    """(N, 2): mean p_y over epochs or models, and the mean over windows of (1 - mean p_y) * sd p_y."""
    mean_NW, sd_NW = variability(p_NR, window)
    return torch.stack([row_means(p_NR), ((1 - mean_NW) * sd_NW).mean(1)], 1)


def _cover(scores_M: Tensor, k: int, strata: int, generator: torch.Generator) -> Tensor:
    """Positions (k,) drawn from equally wide score ranges: the same number from each, or all if it has fewer."""
    low, high = scores_M.aminmax()
    if not bool((high - low).isfinite()):
        finite_F = scores_M[scores_M.isfinite()]
        low, high = finite_F.aminmax() if len(finite_F) else (scores_M.new_zeros(()), scores_M.new_zeros(()))
    width = (high - low) / strata
    scaled_M = (scores_M - low) / width if width > 0 else torch.zeros_like(scores_M)
    # Never-learned samples (+inf) form the hardest stratum together with the highest finite scores.
    stratum_M = scaled_M.nan_to_num(posinf=strata).floor().clamp_(0, strata - 1).long()
    order_M = torch.randperm(len(scores_M), generator=generator)
    strata_M = stratum_M[order_M].numpy()
    by_stratum_M, sizes_S = by_class(strata_M, strata), np.bincount(strata_M, minlength=strata)
    starts_S, picked, rest = sizes_S.cumsum() - sizes_S, [], k
    for index, s in enumerate(sizes_S.argsort(kind="stable")):  # larger strata make up for what small ones lack
        picked.append(by_stratum_M[starts_S[s] :][: min(sizes_S[s], rest // (strata - index))])
        rest -= len(picked[-1])
    return order_M[np.concatenate(picked)]
