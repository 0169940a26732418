"""Trajectories (probability, error and margin of each sample in each epoch of a training), and scores from them.

Shape legend: N samples, T epochs, W windows, J epochs in a window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lipt.errors import RunError, UsageError
from lipt.selection.arrays import ArrayLike, as_tensor, per_model
from lipt.selection.inputs.equality import ByContents
from lipt.selection.inputs.outputs import FLOATS
from lipt.selection.numerics.blocks import per_row
from lipt.selection.numerics.norms import as_float, sum_of

#: Probabilities of half precision may be this far outside of 0..1.
_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory(ByContents):
    """The trajectory of one model, from tensors, numpy arrays or lists.

    Raises:
        UsageError: values are no real numbers, the shapes differ, there is no epoch, or p is no probability.
        RunError: a value is NaN or infinite; the message names the sample.
    """

    p_NT: Tensor
    """Probability of the sample's own class, float (N, T)."""
    error_NT: Tensor
    """Length of the error vector, |softmax(z) - onehot(y)|, float (N, T)."""
    margin_NT: Tensor
    """Logit of the own class minus the largest other logit, float (N, T)."""

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            object.__setattr__(self, name, _as_floats(values, f"{name} of a trajectory"))
        shapes = {tuple(tensor.shape) for tensor in self.tensors().values()}
        if len(shapes) > 1 or self.p_NT.ndim != 2 or not self.epochs:
            raise UsageError(
                f"a trajectory is three arrays (N, T) with T >= 1, not {sorted(shapes)}",
                "hand over p, error and margin, each with a row per sample and a column per epoch",
            )
        for name, tensor in self.tensors().items():
            low_N, high_N = tensor.aminmax(dim=1)  # without a temporary of the size of the trajectory
            wrong_K = (~(low_N.isfinite() & high_N.isfinite())).nonzero().flatten()
            if len(wrong_K):
                what = "NaN" if low_N[wrong_K[0]].isnan() else "infinite"
                raise RunError(
                    f"{name} in the trajectory of sample {int(wrong_K[0])} is {what}",
                    "the training that recorded it diverged: lower its learning rate, record again",
                )
            outside_K = ((low_N < -_ROUNDING) | (high_N > 1 + _ROUNDING)).nonzero().flatten()
            if name == "p" and len(outside_K):
                raise UsageError(
                    f"p in the trajectory of sample {int(outside_K[0])} is outside 0..1",
                    "hand over the probability of the sample's own class, not its logit or its percentage",
                )

    @classmethod
    def of(cls, tensors: Mapping[str, ArrayLike]) -> Trajectory:
        """The inverse of `tensors`."""
        given: dict[str, Any] = {f"{name}_NT": tensors[name] for name in ("p", "error", "margin")}
        return cls(**given)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by the names under which they are stored."""
        return {"p": self.p_NT, "error": self.error_NT, "margin": self.margin_NT}

    def __len__(self) -> int:
        return self.p_NT.shape[0]

    def __repr__(self) -> str:
        return f"Trajectory({len(self):,} samples, {self.epochs} epoch{'s' * (self.epochs != 1)})"

    @property
    def epochs(self) -> int:
        """Number of epochs, T."""
        return self.p_NT.shape[1]

    def to(self, device: torch.device) -> Trajectory:
        """The trajectory on a device; itself if it is there."""
        tensors = self.tensors()
        if all(tensor.device == device for tensor in tensors.values()):
            return self
        return Trajectory.of({name: tensor.to(device) for name, tensor in tensors.items()})

    def epochs_of(self, part: slice) -> Trajectory:
        """The trajectory of some of the epochs."""
        return Trajectory.of({name: tensor[:, part] for name, tensor in self.tensors().items()})


def as_trajectories(values: Any) -> list[Trajectory]:
    """One per model; a trajectory alone is that of one model.

    Raises:
        UsageError: something else than trajectories.
    """
    found = per_model(values)
    for each in found:
        if not isinstance(each, Trajectory):
            raise UsageError(
                f"trajectories hold a {type(each).__name__}, not a lipt.Trajectory",
                "hand over lipt.Trajectory(p_NT=..., error_NT=..., margin_NT=...), or a list with one per model",
            )
    return found


def _as_floats(values: ArrayLike, what: str) -> Tensor:
    """The same memory if `values` are floating point; integers as float32."""
    found = as_tensor(values, what)
    if found.dtype.is_complex:
        raise UsageError(f"{what} must be real numbers, not {found.dtype}", "hand over its real part")
    return found if found.dtype in FLOATS else found.float()  # few operations know other types, such as float8


def forgetting_events(trajectory: Trajectory) -> Tensor:
    """How often a sample was classified correctly, then wrongly (N,); +inf if it was never correct (Toneva et al. 2019,
    Algorithm 1)."""
    correct_NT = trajectory.margin_NT > 0
    forgotten_N = (correct_NT[:, :-1] & ~correct_NT[:, 1:]).sum(1).float()
    return forgotten_N.masked_fill_(~correct_NT.any(1), torch.inf)


def variability(p_NT: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Mean and unbiased standard deviation of p in each window of consecutive epochs, (N, W) each."""
    windows_NWJ = _in_rows(p_NT).unfold(1, window, 1)
    mean_NW1 = windows_NWJ.mean(2, keepdim=True)
    # `std` would round a single sample differently from one of many.
    return mean_NW1.squeeze(2), ((windows_NWJ - mean_NW1).square().sum(2) / (window - 1)).sqrt()


def by_windows(p_NT: Tensor, window: int, score: Callable[[Tensor], Tensor]) -> Tensor:
    """The results (N, ...) of `score`, which looks at all windows, a block of samples at a time."""
    return per_row(len(p_NT), p_NT.shape[1] * window, lambda rows: score(p_NT[rows]))


def row_means(values_NT: Tensor) -> Tensor:
    """The mean (N,) of each row, bitwise the same in whichever order the memory holds the values."""
    return per_row(len(values_NT), values_NT.shape[1], lambda rows: _in_rows(values_NT[rows]).mean(1))


def _in_rows(values_NT: Tensor) -> Tensor:
    """In float32 or float64, row after row in memory: a sum over strided memory rounds equal rows differently."""
    return as_float(values_NT).contiguous()


def _logarithms(p_NT: Tensor) -> Tensor:
    """log p, finite where p is 0."""
    return p_NT.clamp_min(torch.finfo(p_NT.dtype).tiny).log()


#: Difficulty by name, higher = harder.
DIFFICULTIES: dict[str, Callable[[Trajectory], Tensor]] = {
    "el2n": lambda trajectory: row_means(trajectory.error_NT),  # Paul et al. 2021, Definition 2.2, over epochs
    "loss": lambda trajectory: -row_means(_logarithms(as_float(trajectory.p_NT))),
    "aum": lambda trajectory: -row_means(trajectory.margin_NT),  # Pleiss et al. 2020, eq. 2, the opposite sign
    "forgetting": forgetting_events,
}


def mean_difficulty(trajectories: Sequence[Trajectory], name: str) -> Tensor:
    """Difficulty (N,) of that name, the mean over the models."""
    return sum_of(DIFFICULTIES[name](trajectory) for trajectory in trajectories) / len(trajectories)
