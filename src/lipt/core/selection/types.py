"""What goes into a selection and what comes out.

Shape legend: N candidates, C classes, D features, E = D + 1 (features and a constant 1 for the bias), R models,
K chosen, M members of a group, V validation samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lipt.errors import RunError, UsageError


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What one scoring pass of one model stores; the last-layer gradients follow from it (gradients.py)."""

    logits_NC: Tensor
    """Float (N, C)."""
    features_ND: Tensor
    """Float (N, D): the input of the classifier layer."""

    def __post_init__(self) -> None:
        if self.logits_NC.ndim != 2 or self.features_ND.ndim != 2 or len(self.logits_NC) != len(self.features_ND):
            shapes = f"logits {tuple(self.logits_NC.shape)}, features {tuple(self.features_ND.shape)}"
            raise UsageError(f"logits and features must be (N, C) and (N, D) of the same N; got {shapes}")
        if not (self.logits_NC.is_floating_point() and self.features_ND.is_floating_point()):
            raise UsageError(
                f"logits and features must be floating point, not {self.logits_NC.dtype}, {self.features_ND.dtype}"
            )


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The samples to choose from, and what is known about them.

    Raises:
        UsageError: lengths, shapes, devices or labels do not fit together.
    """

    labels_N: Tensor
    """Int64 (N,), 0 <= label < num_classes."""
    num_classes: int
    outputs: Sequence[Outputs] = ()
    """One per model (theta_p: 1; classic GraNd: 10); empty where no scores are needed."""
    forgetting_N: Tensor | None = None
    """Forgetting events seen in training (N,); +inf for samples that were never learned."""

    def __post_init__(self) -> None:
        labels_N = self.labels_N
        if labels_N.ndim != 1 or labels_N.dtype != torch.int64:
            raise UsageError(f"labels must be int64 (N,), not {labels_N.dtype} {tuple(labels_N.shape)}")
        outside_K = ((labels_N < 0) | (labels_N >= self.num_classes)).nonzero().flatten()
        if len(outside_K):
            first = int(outside_K[0])
            raise UsageError(f"label {int(labels_N[first])} of sample {first} is outside 0..{self.num_classes - 1}")
        for index, outputs in enumerate(self.outputs):
            if tuple(outputs.logits_NC.shape) != (len(labels_N), self.num_classes):
                expected = (len(labels_N), self.num_classes)
                raise UsageError(
                    f"logits of model {index} have shape {tuple(outputs.logits_NC.shape)}, expected {expected}"
                )
            if {outputs.logits_NC.device, outputs.features_ND.device} != {labels_N.device}:
                raise UsageError(f"labels and the outputs of model {index} are on different devices")
        if self.forgetting_N is not None and self.forgetting_N.shape != labels_N.shape:
            raise UsageError(f"{len(self.forgetting_N)} forgetting counts for {len(labels_N)} candidates")

    def __len__(self) -> int:
        return len(self.labels_N)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The chosen samples and how they were chosen."""

    indices_K: Tensor
    """Int64 (K,) distinct positions into the candidates, in order of pick; class after class where balanced."""
    weights_K: Tensor
    """Float32 (K,) >= 0, raw; ones where the algorithm defines none. Training normalises them to mean 1."""
    scores_N: Tensor | None
    """Float32 (N,) where every candidate has one; rankings pick the highest first, `ccs` and `dual` sample by it."""
    algorithm: str
    """What ran: for `auto` the algorithm that it decided for."""
    options: Mapping[str, Any]
    """All options of the algorithm, defaults included."""
    fraction: float
    balanced: bool
    seed: int


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What must be computed before an algorithm can run."""

    models: int = 0
    """The smallest number of scored models (entries of `Candidates.outputs`)."""
    forgetting: bool = False
    """Needs `Candidates.forgetting_N`."""
    validation: bool = False
    """Uses validation outputs where they are given; never mandatory."""

    @property
    def outputs(self) -> bool:
        """Whether a scoring pass is needed at all."""
        return self.models > 0


def check_finite(candidates: Candidates, name: str) -> None:
    """Raise RunError naming the first sample whose logits or features are NaN or infinite."""
    for index, outputs in enumerate(candidates.outputs):
        for what, values_NX in (("logits", outputs.logits_NC), ("features", outputs.features_ND)):
            if not values_NX.isfinite().all():
                sample = int((~values_NX.isfinite()).any(1).nonzero()[0])
                raise RunError(
                    f"{what} of {name} sample {sample}, model {index}, are not finite",
                    "the scoring model diverged: lower its learning rate, or exclude the model",
                )


def check_forgetting(candidates: Candidates) -> Tensor:
    """The forgetting counts (N,).

    Raises:
        UsageError: there are none.
        RunError: a count is NaN or negative.
    """
    if candidates.forgetting_N is None:
        raise UsageError("forgetting counts are missing", "record them while the scoring model trains")
    wrong_K = (~(candidates.forgetting_N >= 0)).nonzero().flatten()  # NaN compares false
    if len(wrong_K):
        raise RunError(f"forgetting count of sample {int(wrong_K[0])} is {float(candidates.forgetting_N[wrong_K[0]])}")
    return candidates.forgetting_N
