"""The trajectory of each sample through a training, recorded from the forward passes of the training itself.

Shape legend: N samples, T epochs, K samples trained on in an epoch, P a part of a batch, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(kw_only=True)
class Dynamics:
    """A trajectory (`selection.Trajectory`) in the making: NaN where a sample was not trained on in an epoch."""

    p_NT: Tensor
    """Probability of the sample's own class."""
    error_NT: Tensor
    """|softmax(z) - onehot(y)|, the EL2N score of one epoch."""
    margin_NT: Tensor
    """Logit of the own class minus the largest other logit."""

    @classmethod
    def empty(cls, samples: int, epochs: int) -> Dynamics:
        return cls(**{name: torch.full((samples, epochs), torch.nan) for name in ("p_NT", "error_NT", "margin_NT")})

    def record(self, epoch: int, rows_K: Tensor, seen_K3: Tensor) -> None:
        """Add what `observe` saw in one epoch of the rows that were trained on, each once."""
        for column, recorded_NT in enumerate((self.p_NT, self.error_NT, self.margin_NT)):
            recorded_NT[rows_K, epoch] = seen_K3[:, column]

    def tensors(self) -> dict[str, Tensor]:
        """By name, as they are stored."""
        return {"p": self.p_NT, "error": self.error_NT, "margin": self.margin_NT}


def observe(logits_PC: Tensor, labels_P: Tensor) -> Tensor:
    """float32 (P, 3): probability of the own class, error |p - onehot(y)|, margin."""
    own_P1 = labels_P[:, None]
    p_PC = logits_PC.softmax(1)
    p_P1 = p_PC.gather(1, own_P1)
    # 1 - p_y as a sum of the others keeps its digits where p_y rounds to 1
    others_PC = p_PC.scatter(1, own_P1, 0.0)
    error_P = (others_PC.square().sum(1) + others_PC.sum(1).square()).sqrt()
    rival_P = logits_PC.scatter(1, own_P1, -torch.inf).amax(1)
    margin_P = logits_PC.gather(1, own_P1).squeeze(1) - rival_P
    return torch.stack([p_P1.squeeze(1), error_P, margin_P], 1)
