"""GLISTER: greedy on the reduction of the validation loss, with a Taylor step after every pick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lipt.core.selection.gradients import LastLayer, last_layers, precision, with_bias
from lipt.core.selection.task import Group, Picks, Task, highest, per_group, register, require, stochastic_size
from lipt.core.selection.types import Candidates


@register("glister", models=1, validation=True)
def glister(
    task: Task,
    *,
    eta: float | None = None,
    greedy: Literal["exact", "r_greedy", "stochastic"] = "exact",
    rounds: int = 20,
    epsilon: float = 0.01,
) -> Picks:
    """Greedy on the first-order validation gain <g_i, grad L_val> (Killamsetty et al. AAAI 2021, eq. 5, Algorithm 2).

    After each pick the classifier takes the step theta -= eta g_s, which in factored form moves the validation logits
    by -eta delta_s (h~_s . h~_v), and the validation gradient is computed anew. Without validation outputs the
    candidates of the group stand in; with them, a class is judged by the validation samples of its own class where
    there are any.

    Args:
        eta: step size; None = 1 / (10 mean |h~|^2) of the group, which makes the result independent of the features'
            scale.
        greedy: `exact` takes the best candidate of all in every step; `stochastic` the best of (n / k) ln(1 / epsilon)
            random ones; `r_greedy` the best k / rounds at once, so that there are only `rounds` steps.
        rounds: of `r_greedy`.
        epsilon: of `stochastic`.
    """
    require(eta is None or eta >= 0, f"glister: eta must not be negative, not {eta}")
    require(rounds >= 1, f"glister: rounds must be at least 1, not {rounds}")
    judges = task.candidates if task.validation is None else task.validation

    def pick(group: Group) -> tuple[Tensor, None]:
        layers = last_layers(task.candidates, group.members_M)
        square_norm = sum(float(layer.features_NE.square().sum(1).mean()) for layer in layers) / len(layers)
        state = _Greedy(
            layers=layers,
            deltas=[layer.delta_NC.T.contiguous() for layer in layers],
            judges=_Judge.of(judges, group.label),
            eta=0.1 / square_norm if eta is None else eta,
            barred_M=torch.zeros_like(layers[0].delta_NC[:, 0]),
        )
        if greedy == "stochastic":
            return state.stochastic(group.budget, epsilon, task.generator), None
        return state.in_rounds(group.budget, group.budget if greedy == "exact" else min(rounds, group.budget)), None

    return per_group(task, pick)


@dataclass(kw_only=True)
class _Greedy:
    """The candidates of one group, those that judge them, and the picks so far."""

    layers: list[LastLayer]
    deltas: list[Tensor]
    """delta (C, M) of each model: classes lead, which a CPU multiplies and sums faster."""
    judges: list[_Judge]
    eta: float
    barred_M: Tensor
    """0, and -inf for picks."""

    def in_rounds(self, k: int, rounds: int) -> Tensor:
        """Positions (k,) in order of pick, as equal a number per round as possible; O(M C E + V C E) per round."""
        picked = []
        for part in torch.arange(k).tensor_split(rounds):
            gains_M = self.gains(self.gradients()) + self.barred_M
            picked.append(self.take(gains_M.argmax(keepdim=True) if len(part) == 1 else highest(gains_M, len(part))))
        return torch.cat(picked)

    def stochastic(self, k: int, epsilon: float, generator: torch.Generator) -> Tensor:
        """Positions (k,) in order of pick; O(s C E + V C E) per pick for s sampled candidates."""
        picked, size = [], stochastic_size(len(self.barred_M), k, epsilon)
        for _ in range(k):
            free_F = (self.barred_M == 0).nonzero().flatten().cpu()
            sample_S = free_F[torch.randperm(len(free_F), generator=generator)[:size]].sort().values
            sample_S = sample_S.to(self.barred_M.device)
            best = self.gains(self.gradients(), sample_S).argmax()
            picked.append(self.take(sample_S[best][None]))
        return torch.cat(picked)

    def gradients(self) -> list[Tensor]:
        """The validation gradient (C, E) of each model, at the classifier that the picks have moved."""
        return [judge.gradient_CE() for judge in self.judges]

    def gains(self, gradients: list[Tensor], rows_S: Tensor | None = None) -> Tensor:
        """<g_i, B> of all candidates (M,), or of some (S,)."""
        total: Tensor | None = None
        for layer, delta_CM, gradient_CE in zip(self.layers, self.deltas, gradients, strict=True):
            features_SE = layer.features_NE if rows_S is None else layer.features_NE[rows_S]
            delta_CS = delta_CM if rows_S is None else delta_CM[:, rows_S]
            gains_S = (gradient_CE @ features_SE.T).mul_(delta_CS).sum(0)
            total = gains_S if total is None else total + gains_S
        assert total is not None
        return total

    def take(self, best_B: Tensor) -> Tensor:
        """Pick them: theta -= eta * the sum of their gradients."""
        self.barred_M[best_B] = -torch.inf
        for layer, judge in zip(self.layers, self.judges, strict=True):
            judge.step(layer, best_B, self.eta)
        return best_B


class _Judge:
    """The validation samples of one model: their gradient at the current classifier."""

    def __init__(self, logits_VC: Tensor, features_VE: Tensor, labels_V: Tensor, scale: float) -> None:
        self.logits_CV, self.features_VE, self.labels_1V = logits_VC.T.contiguous(), features_VE, labels_V[None]
        self.scale = scale

    @classmethod
    def of(cls, samples: Candidates, label: int | None) -> list[_Judge]:
        """One per model, for the samples of class `label`; for all samples if it is None or has none."""
        own_V = (samples.labels_N == label).nonzero().flatten() if label is not None else samples.labels_N[:0]
        rows_V = own_V if len(own_V) else torch.arange(len(samples), device=own_V.device)
        scale = len(samples.outputs) ** -0.5
        return [
            cls(
                each.logits(rows_V).to(precision(each)),
                with_bias(each.features_ND[rows_V].to(precision(each))),
                samples.labels_N[rows_V],
                scale,
            )
            for each in samples.outputs
        ]

    def gradient_CE(self) -> Tensor:
        """Gradient of the mean validation loss."""
        # `error_vectors` with classes first
        error_CV = self.logits_CV.softmax(0).scatter_(0, self.labels_1V, 0.0)
        error_CV.scatter_(0, self.labels_1V, -error_CV.sum(0, keepdim=True))
        return error_CV @ self.features_VE * (self.scale / self.labels_1V.shape[1])

    def step(self, layer: LastLayer, picks_B: Tensor, eta: float) -> None:
        """theta -= eta * sum of the gradients of `picks_B`, seen from the validation logits."""
        # layer.delta_NC carries the 1/sqrt(R) of the joint gradient; the step of each model is its own.
        moves_BC = layer.delta_NC[picks_B] * (-eta / self.scale)
        self.logits_CV.addmm_(moves_BC.T, (self.features_VE @ layer.features_NE[picks_B].T).T)
