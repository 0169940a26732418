"""GLISTER: greedy reduction of the validation loss, with a Taylor step after every pick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.gradients import LastLayer, last_layers, precision, squarable_layers, with_bias
from lipt.selection.needs import Size
from lipt.selection.numerics.maxima import best, highest
from lipt.selection.numerics.norms import lift, sum_of
from lipt.selection.registry import Group, Picks, Task, per_group, register, require, stochastic_size


def glister_bytes(size: Size, **_: Any) -> int:
    """Bytes that GLISTER takes besides the outputs and a float32 copy of them.

    The validation samples are counted as if they were as many as the candidates.
    """
    # The validation samples, while they are copied; the directions of the screen and the gains along them, while one
    # is added.
    directions = min(_Screen.DIRECTIONS, size.k)
    basis = 8 * directions * size.models * size.classes * (size.features + 1)
    return basis + 4 * size.n * (2 * size.numbers + 2 * directions)


@register("glister", models=1, validation=True, memory=glister_bytes)
def glister(
    task: Task,
    *,
    eta: float | None = None,
    greedy: Literal["exact", "r_greedy", "stochastic"] = "exact",
    rounds: int = 20,
    epsilon: float = 0.01,
) -> Picks:
    """Largest first-order gain on validation data; the classifier is updated after each pick.

    Source: Killamsetty et al. AAAI 2021, eq. 5, Algorithm 2. Time: O(kn_val Cd), on a GPU O(k(n + n_val)Cd).
    Use: you trust a validation set that differs from the candidates.

    The gain is <g_i, grad L_val>. After each pick the classifier takes the step theta -= eta g_s. In factored form this
    moves the validation logits by -eta delta_s (h~_s . h~_v). Then the validation gradient is computed again. The
    validation samples of a group are those of its class if there are any, else all; without validation outputs they
    are its candidates.

    Args:
        eta: step size; None = scale-free: 1 / (10 mean |h~|^2) of the group, so the scale of the features does not
            matter.
        greedy: `exact` takes the best candidate in every step; `stochastic` the best of (n / k) ln(1 / epsilon) random
            ones; `r_greedy` the best k / rounds at once, in `rounds` steps.
        rounds: of `r_greedy`.
        epsilon: of `stochastic`.
    """
    require(eta is None or eta >= 0, f"glister: eta must not be negative, not {eta}", "pass 0 or more")
    require(rounds >= 1, f"glister: rounds must be at least 1, not {rounds}", "pass 1 or more")
    judges = task.candidates if task.validation is None else task.validation
    members = judges.members
    everyone_V = torch.arange(len(judges), device=judges.labels_N.device)
    dtype = precision([*task.candidates.outputs, *judges.outputs])

    def pick(group: Group) -> tuple[Tensor, None]:
        own_V = everyone_V if group.label is None else members[group.label]
        layers, factor = squarable_layers(last_layers(task.candidates, group.members_M, dtype))
        square_norm = sum(float(layer.features_NE.square().sum(1).mean()) for layer in layers) / len(layers)
        own_judges = _Judge.of(judges, own_V if len(own_V) else everyone_V, dtype)
        state = _Greedy(
            layers=layers,
            judges=own_judges,
            factor=lift([judge.gradient_CE() for judge in own_judges]),
            eta=(0.1 / square_norm if eta is None else eta) / factor,
            barred_M=torch.zeros_like(layers[0].delta_NC[:, 0]),
        )
        if greedy == "stochastic":
            return state.stochastic(group.budget, epsilon, task.generator), None
        if greedy == "r_greedy":
            return state.in_rounds(group.budget, min(rounds, group.budget)), None
        return state.exact(group.budget), None

    return per_group(task, pick, compares="gradients")


@dataclass(kw_only=True)
class _Greedy:
    """The candidates of one group, its validation samples, and the picks so far."""

    layers: list[LastLayer]
    judges: list[_Judge]
    eta: float
    factor: float
    """A power of two that keeps products with the validation gradient from underflowing; it changes no comparison."""
    barred_M: Tensor
    """-inf for picks, else 0."""

    def exact(self, k: int) -> Tensor:
        """Positions (k,) in order of pick; O(V C E) per pick, plus O(M C E) if `_Screen` cannot help."""
        screen = _Screen(self.layers)
        return torch.cat([self.take(screen(self.gradients(), self.barred_M)) for _ in range(k)])

    def in_rounds(self, k: int, rounds: int) -> Tensor:
        """Positions (k,) in order of pick, split evenly over the rounds; O(M C E + V C E) per round."""
        picked = []
        for part in torch.arange(k).tensor_split(rounds):
            picked.append(self.take(highest(_gains(self.layers, self.gradients()) + self.barred_M, len(part))))
        return torch.cat(picked)

    def stochastic(self, k: int, epsilon: float, generator: torch.Generator) -> Tensor:
        """Positions (k,) in order of pick; O(s C E + V C E) per pick for s sampled candidates."""
        picked, size = [], stochastic_size(len(self.barred_M), k, epsilon)
        for _ in range(k):
            free_F = (self.barred_M == 0).nonzero().flatten().cpu()
            sample_S = free_F[torch.randperm(len(free_F), generator=generator)[:size]].sort().values
            sample_S = sample_S.to(self.barred_M.device)
            gains_S = _gains([layer.rows(sample_S) for layer in self.layers], self.gradients())
            picked.append(self.take(sample_S[best(gains_S)]))
        return torch.cat(picked)

    def gradients(self) -> list[Tensor]:
        """The validation gradient (C, E) of each model at the current classifier, times `factor`."""
        found = [judge.gradient_CE() for judge in self.judges]
        return found if self.factor == 1 else [gradient_CE * self.factor for gradient_CE in found]

    def take(self, picks_B: Tensor) -> Tensor:
        """Add these picks: theta -= eta * the sum of their gradients."""
        self.barred_M[picks_B] = -torch.inf
        for layer, judge in zip(self.layers, self.judges, strict=True):
            judge.step(layer, picks_B, self.eta)
        return picks_B


def _gains(layers: Sequence[LastLayer], gradients: Sequence[Tensor]) -> Tensor:
    """<g_i, B> of all candidates (M,)."""
    return sum_of([layer.dot_N(gradient_CE) for layer, gradient_CE in zip(layers, gradients, strict=True)])


class _Screen:
    """Finds the candidate of highest gain and evaluates only a few.

    The validation gradient B changes little per pick: nearly all of it lies in the span of a few earlier ones, for
    which all gains are known. With Q an orthonormal basis of that span, <g_i, B> = <g_i, Q Q^T B> + <g_i, rest>, and
    |<g_i, rest>| <= |g_i| |rest|. Only candidates that could be the best within these bounds are evaluated. If there
    are too many of them, the rest becomes a new direction of the basis.
    """

    #: Largest size of the basis; then it is emptied.
    DIRECTIONS = 32
    #: The largest share of the candidates that are evaluated one by one.
    FEW = 1 / 8
    #: Rounding errors of a gain in float32, in units of |g_i| |B|.
    ROUNDING = 1e-5

    def __init__(self, layers: Sequence[LastLayer]) -> None:
        self._layers = layers
        self._norm_M = sum_of([layer.square_norms_N() for layer in layers]).sqrt()
        self._basis_RX = self._norm_M.new_zeros(0, sum(x.delta_NC.shape[1] * x.features_NE.shape[1] for x in layers))
        self._gains_RM = self._norm_M.new_zeros(0, len(self._norm_M))

    def __call__(self, gradients: Sequence[Tensor], barred_M: Tensor) -> Tensor:
        """argmax_i <g_i, B> + barred_i (1,), the lowest of equal ones."""
        if barred_M.device.type != "cpu":  # computing all gains on a GPU is faster than telling the host which matter
            return best(_gains(self._layers, gradients) + barred_M)
        gradient_X = torch.cat([each.flatten() for each in gradients])
        norm = float(gradient_X.norm())
        while True:
            known_R = self._basis_RX @ gradient_X
            rest_X = gradient_X - known_R @ self._basis_RX
            radius_M = self._norm_M * (float(rest_X.norm()) + self.ROUNDING * norm)
            gains_M = known_R @ self._gains_RM + barred_M
            could_S = (gains_M + radius_M >= (gains_M - radius_M).max()).nonzero().flatten()
            if len(could_S) <= max(1, self.FEW * len(gains_M)):
                own = [layer.rows(could_S) for layer in self._layers]
                return could_S[best(_gains(own, gradients))]
            if float(rest_X.norm()) <= self.ROUNDING * norm:  # nearly equal gains
                return best(_gains(self._layers, gradients) + barred_M)
            self._extend(rest_X, gradients)

    def _extend(self, rest_X: Tensor, gradients: Sequence[Tensor]) -> None:
        """Add a direction to the basis, and the gains of all candidates along it."""
        if len(self._basis_RX) == self.DIRECTIONS:
            self._basis_RX, self._gains_RM = self._basis_RX[:0], self._gains_RM[:0]
            rest_X = torch.cat([each.flatten() for each in gradients])
        direction_X = rest_X / rest_X.norm()
        parts = direction_X.split([each.numel() for each in gradients])
        along = [part.view_as(each) for part, each in zip(parts, gradients, strict=True)]
        self._basis_RX = torch.cat([self._basis_RX, direction_X[None]])
        self._gains_RM = torch.cat([self._gains_RM, _gains(self._layers, along)[None]])


class _Judge:
    """The validation samples of one model, and their gradient at the current classifier.

    They are split into P equal parts, padded with zeros, so that a CPU computes one product per thread.
    """

    def __init__(self, logits_VC: Tensor, features_VE: Tensor, labels_V: Tensor, scale: float) -> None:
        self._scale, self._size = scale, len(labels_V)
        parts = torch.get_num_threads() if labels_V.device.type == "cpu" else 1
        pad = -self._size % parts
        self._features_PVE = functional.pad(features_VE, (0, 0, 0, pad)).unflatten(0, (parts, -1))
        self._labels_P1V = functional.pad(labels_V, (0, pad)).view(parts, 1, -1)
        self._logits_PCV = functional.pad(logits_VC, (0, 0, 0, pad)).unflatten(0, (parts, -1)).mT.contiguous()

    @classmethod
    def of(cls, samples: Candidates, rows_V: Tensor, dtype: torch.dtype) -> list[_Judge]:
        """One per model, for the samples `rows_V`."""
        scale = len(samples.outputs) ** -0.5
        return [
            cls(
                each.logits(rows_V).to(dtype),
                with_bias(each.features_ND[rows_V].to(dtype)),
                samples.labels_N[rows_V],
                scale,
            )
            for each in samples.outputs
        ]

    def gradient_CE(self) -> Tensor:
        """Gradient of the mean validation loss."""
        # `error_vectors` with classes first
        error_PCV = self._logits_PCV.softmax(1).scatter_(1, self._labels_P1V, 0.0)
        error_PCV.scatter_(1, self._labels_P1V, -error_PCV.sum(1, keepdim=True))
        return torch.bmm(error_PCV, self._features_PVE).sum(0).mul_(self._scale / self._size)

    def step(self, layer: LastLayer, picks_B: Tensor, eta: float) -> None:
        """Move the validation logits by the step theta -= eta * sum of the gradients of `picks_B`."""
        # layer.delta_NC contains the factor 1/sqrt(R) of the joint gradient; a step of one model must not.
        moves_CB = layer.delta_NC[picks_B].T * (-eta / self._scale)
        features_PBE = layer.features_NE[picks_B].expand(len(self._features_PVE), -1, -1)
        self._logits_PCV += moves_CB @ torch.bmm(features_PBE, self._features_PVE.mT)
