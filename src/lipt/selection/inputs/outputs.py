"""The outputs of models for the samples of a selection, in memory or stored in blocks.

Shape legend: N samples, C classes, D features, M members of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection.arrays import as_tensor
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.equality import ByContents
from lipt.selection.numerics.blocks import per_row
from lipt.selection.numerics.norms import as_float, lengths

T = TypeVar("T")

#: The types of outputs and trajectories.
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def unchecked(kind: type[T], **fields: object) -> T:
    """A data class without the checks of its constructor, for values that have passed them."""
    made = object.__new__(kind)
    vars(made).update(fields)
    return made


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs(ByContents):
    """Outputs of one model in one scoring pass; last-layer gradients are computed from them (gradients.py).

    Takes tensors, numpy arrays or lists.
    """

    logits_NC: Tensor | TopLogits
    """Float (N, C) of any precision, in memory or memory-mapped, or compressed. (N, 0) if unknown."""
    features_ND: Tensor
    """Float (N, D), the input of the classifier layer. (N, 0) if unknown. Gradients include those of a bias, even if
    the layer has none."""

    def __post_init__(self) -> None:
        for field, name in (("logits_NC", "logits"), ("features_ND", "features")):
            if not isinstance(values := getattr(self, field), TopLogits):
                object.__setattr__(self, field, as_tensor(values, name))
        shapes = tuple(self.logits_NC.shape), tuple(self.features_ND.shape)
        for name, letter, shape in zip(("logits", "features"), "CD", shapes, strict=True):
            if len(shape) != 2:
                raise UsageError(
                    f"{name} must be a matrix (N, {letter}), not {shape}",
                    "hand over one row per sample; (N, 0) stands for unknown outputs",
                )
        if shapes[0][0] != shapes[1][0]:
            raise UsageError(
                "logits and features must be (N, C) and (N, D) of the same N; "
                f"got logits {shapes[0]}, features {shapes[1]}",
                "hand over one row per sample in both; (N, 0) stands for unknown outputs",
            )
        for name, device in (("logits", self.logits_NC.device), ("features", self.features_ND.device)):
            if device.type == "meta":
                raise UsageError(f"{name} are on the device meta: they have no values", "compute them on another one")
        for name, dtype in (("logits", self.logits_NC.dtype), ("features", self.features_ND.dtype)):
            if dtype not in FLOATS:
                raise UsageError(
                    f"{name} must be floating point of 16, 32 or 64 bits, not {str(dtype).removeprefix('torch.')}",
                    "convert them: .float() of a tensor, .astype('float32') of an array",
                )

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], num_classes: int) -> Outputs:
        """The inverse of `tensors`."""
        logits = tensors["logits"] if "logits" in tensors else TopLogits.of(tensors, num_classes)
        return cls(logits_NC=logits, features_ND=tensors["features"])

    def tensors(self) -> dict[str, Tensor]:
        """The stored tensors by name."""
        logits = self.logits_NC
        stored = logits.tensors() if isinstance(logits, TopLogits) else {"logits": logits}
        return stored | {"features": self.features_ND}

    def without(self, *, logits: bool, features: bool) -> Outputs:
        """A copy without logits or features that nobody uses: (N, 0). They are then not checked."""
        return unchecked(
            Outputs,
            logits_NC=self.features_ND.narrow(1, 0, 0) if logits else self.logits_NC,
            features_ND=self.features_ND.narrow(1, 0, 0) if features else self.features_ND,
        )

    def logits(self, rows_M: Tensor | slice) -> Tensor:
        """Logits (M, C) of the samples `rows_M`, as stored; compressed ones as float32 log-probabilities."""
        return self.logits_NC[rows_M]

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
        return self.logits_NC.shape[1]

    @cached_property
    def lengths_N(self) -> Tensor:
        """|h_i| (N,) of the features; not finite where features are not."""
        return per_row(len(self.features_ND), self.num_features, lambda rows: lengths(as_float(self.features_ND[rows])))

    @property
    def num_features(self) -> int:
        """Number of features, D."""
        return self.features_ND.shape[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredOutputs(ByContents):
    """Outputs outside of memory, read one block of consecutive samples at a time."""

    models: int
    sizes: Sequence[int]
    """Number of samples of each block."""
    read: Callable[[int], Sequence[Outputs]]
    """Returns the outputs of a block by its number, one entry per model; may be called repeatedly."""
    logits: bool = True
    """Whether the blocks hold logits; False = logits are (N, 0)."""
    features: bool = True
    """Whether the blocks hold features."""

    def without(self, *, logits: bool, features: bool) -> StoredOutputs:
        """The same, as of `Outputs`, in every block that is read."""

        def read(index: int) -> list[Outputs]:
            found = _checked(self.read(index))
            for each in found:
                self._check_complete(each, index, logits=not logits, features=not features)
            return [each.without(logits=logits, features=features) for each in found]

        return replace(self, read=read)

    def _check_complete(self, outputs: Outputs, index: int, *, logits: bool, features: bool) -> None:
        """
        Args:
            logits: whether somebody reads them; likewise `features`.

        Raises:
            UsageError: a block lacks what it should have and somebody reads.
        """
        for name, read, announced, count in (
            ("logits", logits, self.logits, outputs.num_classes),
            ("features", features, self.features, outputs.num_features),
        ):
            if read and announced and not count:
                raise UsageError(
                    f"block {index} of the stored outputs holds no {name}",
                    f"let StoredOutputs.read return them, or set StoredOutputs.{name}=False",
                )


def _checked(outputs: object) -> Sequence[Outputs]:
    """What `StoredOutputs.read` gave.

    Raises:
        UsageError: it is no sequence of outputs.
    """
    if isinstance(outputs, Sequence) and all(isinstance(each, Outputs) for each in outputs):
        return outputs
    raise UsageError(
        f"StoredOutputs.read gives {type(outputs).__name__}, not a list of Outputs",
        "return one entry per model: [outputs]",
    )
