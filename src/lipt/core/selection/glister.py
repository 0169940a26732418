"""GLISTER: greedy on the reduction of the validation loss, with a Taylor step after every pick."""

from __future__ import annotations

import torch
from torch import Tensor

from lipt.core.selection.gradients import LastLayer, as_float, error_vectors, last_layers, with_bias
from lipt.core.selection.task import Group, Picks, Task, highest, per_group, register, require
from lipt.core.selection.types import Candidates


@register("glister", models=1, validation=True)
def glister(task: Task, *, eta: float | None = None, batch: int = 1) -> Picks:
    """Greedy on the first-order validation gain <g_i, grad L_val> (Killamsetty et al. AAAI 2021, eq. 5).

    After each pick the classifier takes the step theta -= eta g_s, which in factored form moves the validation logits
    by -eta delta_s (h~_s . h~_v), and the validation gradient is computed anew. Without validation outputs the
    candidates of the group stand in; with them, a class is judged by the validation samples of its own class where
    there are any.

    Args:
        eta: step size; None = 1 / (10 mean |h~|^2) of the group, which makes the result independent of the features'
            scale.
        batch: picks per Taylor step; 1 is the exact greedy.
    """
    require(eta is None or eta >= 0, f"glister: eta must not be negative, not {eta}")
    require(batch >= 1, f"glister: batch must be at least 1, not {batch}")
    judges = task.candidates if task.validation is None else task.validation

    def pick(group: Group) -> tuple[Tensor, None]:
        layers = last_layers(task.candidates, group.members_M)
        square_norm = sum(float(layer.features_NE.square().sum(1).mean()) for layer in layers) / len(layers)
        step = 0.1 / square_norm if eta is None else eta
        return greedy(layers, _Judge.of(judges, group.label), group.budget, step, batch), None

    return per_group(task, pick)


def greedy(layers: list[LastLayer], judges: list[_Judge], k: int, eta: float, batch: int) -> Tensor:
    """Positions (k,) in order of pick; O(M C E + V C E) per Taylor step."""
    picked: list[Tensor] = []
    free_M = torch.zeros_like(layers[0].delta_NC[:, 0])  # 0, and -inf for picks
    while (missing := k - sum(map(len, picked))) > 0:
        gains_M = sum((layer.dot_N(judge.gradient_CE()) for layer, judge in zip(layers, judges, strict=True)), free_M)
        best_B = gains_M.argmax(keepdim=True) if batch == 1 else highest(gains_M, min(batch, missing))
        free_M[best_B] = -torch.inf
        picked.append(best_B)
        for layer, judge in zip(layers, judges, strict=True):
            judge.step(layer, best_B, eta)
    return torch.cat(picked)


class _Judge:
    """The validation samples of one model: their gradient at the current classifier."""

    def __init__(self, logits_VC: Tensor, features_VE: Tensor, labels_V: Tensor, scale: float) -> None:
        self.logits_VC, self.features_VE, self.labels_V, self.scale = logits_VC, features_VE, labels_V, scale

    @classmethod
    def of(cls, samples: Candidates, label: int | None) -> list[_Judge]:
        """One per model, for the samples of class `label`; for all samples if it is None or has none."""
        own_V = (samples.labels_N == label).nonzero().flatten() if label is not None else samples.labels_N[:0]
        rows_V = own_V if len(own_V) else torch.arange(len(samples), device=own_V.device)
        scale = len(samples.outputs) ** -0.5
        return [
            cls(
                as_float(each.logits_NC[rows_V]).clone(),
                with_bias(each.features_ND[rows_V]),
                samples.labels_N[rows_V],
                scale,
            )
            for each in samples.outputs
        ]

    def gradient_CE(self) -> Tensor:
        """Gradient of the mean validation loss."""
        return error_vectors(self.logits_VC, self.labels_V).T @ self.features_VE * (self.scale / len(self.labels_V))

    def step(self, layer: LastLayer, picks_B: Tensor, eta: float) -> None:
        """theta -= eta * sum of the gradients of `picks_B`, seen from the validation logits."""
        # layer.delta_NC carries the 1/sqrt(R) of the joint gradient; the step of each model is its own.
        moves_BC = layer.delta_NC[picks_B] * (-eta / self.scale)
        self.logits_VC.addmm_(self.features_VE @ layer.features_NE[picks_B].T, moves_BC)
