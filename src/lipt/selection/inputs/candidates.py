"""The candidates of a selection, with the outputs of models for them.

Shape legend: N candidates, C classes, D features, E = D + 1 (features and a constant 1 for the bias), R models,
K chosen, M members of a group, V validation samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lipt.errors import UsageError
from lipt.selection.arrays import ArrayLike, as_labels, as_tensor, per_model
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.equality import ByContents
from lipt.selection.inputs.not_logits import refuse_probabilities
from lipt.selection.inputs.outputs import Outputs, StoredOutputs, unchecked
from lipt.selection.inputs.trajectory import Trajectory, as_trajectories
from lipt.selection.notebook import facts_table
from lipt.selection.numerics.blocks import class_sizes, members_by_class
from lipt.selection.options import integer

#: More classes than this are only believed if they are named: memory and time grow with their number.
_MOST_CLASSES = 2**20


def check_labels(labels_B: Tensor, num_classes: int, *, start: int = 0, all_known: bool = True) -> None:
    """
    Args:
        start: the number of the first of these samples.
        all_known: these are all labels. Of a part nothing says whether its classes are numbered from 1.

    Raises:
        UsageError: a label is outside 0..num_classes - 1; names the first.
    """
    if len(labels_B) and not 0 <= int(labels_B.min()) <= int(labels_B.max()) < num_classes:
        first = int(((labels_B < 0) | (labels_B >= num_classes)).nonzero()[0])
        from_1 = all_known and int(labels_B.min()) >= 1 and int(labels_B.max()) == num_classes
        one_output = num_classes == 1 and int(labels_B.max()) == 1
        raise UsageError(
            f"label {int(labels_B[first])} of sample {start + first} is outside 0..{num_classes - 1}",
            "if the network has one output z for two classes, the logits are [0, z]: put a row of zeros before weight "
            "and bias of its last linear layer; of an array (N, 1), hand over np.hstack([0 * z, z])"
            if one_output
            else "the classes seem to be numbered from 1: hand over labels - 1"
            if from_1
            else "give the network one output per class, and number the classes from 0 to num_classes - 1. Leave out "
            "samples without a label. If your classes are numbered from 1, hand over labels - 1",
        )


def _checked_labels(labels: ArrayLike | None) -> Tensor:
    """Int64 (N,) from integers of any kind.

    Raises:
        UsageError: there are none, they are no integers, or not one per sample.
    """
    if labels is None:
        raise UsageError(
            "there are no labels", "hand over the class number of each sample; without classes, zeros: [0] * n"
        )
    labels_N = as_labels(labels)
    if labels_N.ndim != 1:
        raise UsageError(
            f"labels must be one class number per sample, (N,), not {tuple(labels_N.shape)}",
            "of one-hot labels, hand over labels.argmax(1); of a column, labels.flatten()",
        )
    return labels_N


def count_classes(labels_N: Tensor) -> int:
    """The number of classes if nobody names it: the largest label + 1.

    Raises:
        UsageError: the labels look like identifiers.
    """
    largest = int(labels_N.max()) if labels_N.numel() else -1
    if largest >= _MOST_CLASSES:
        raise UsageError(
            f"the largest label is {largest:,}: the labels look like identifiers, not like class numbers",
            "number the classes from 0: np.unique(labels, return_inverse=True)[1], or set num_classes",
        )
    return largest + 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates(ByContents):
    """The samples to choose from, with their labels, outputs and scores: `Candidates.of` and `score_dataset` make them.

    Where a tensor is expected, an array or a list will do.

    Raises:
        UsageError: values are not numbers, lengths, shapes, devices or labels do not fit together.
    """

    labels_N: Tensor
    """Int64 (N,), 0 <= label < num_classes."""
    num_classes: int
    outputs: Sequence[Outputs] = ()
    """One per model (theta_p: 1; classic GraNd: 10); empty if the algorithm needs none."""
    stored: StoredOutputs | None = None
    """Replaces `outputs`. Algorithms with `Requirements.passes` then hold one block at a time."""
    trajectories: Sequence[Trajectory] = ()
    """One per training. Algorithms that can read trajectories then need no `outputs`; their scores are means over the
    epochs."""
    forgetting_N: Tensor | None = None
    """Forgetting events in training (N,), if there is no trajectory; +inf for samples that were never learned."""
    scores_N: Tensor | None = None
    """Your own scores (N,): `scores` keeps the highest, `ccs` takes higher as harder."""

    def __post_init__(self) -> None:
        labels_N = _checked_labels(self.labels_N)
        num_classes, device = integer(self.num_classes, "num_classes", least=0), labels_N.device
        check_labels(labels_N, num_classes)
        trajectories = [each.to(device) for each in as_trajectories(self.trajectories)]
        vars(self).update(labels_N=labels_N, num_classes=num_classes, trajectories=trajectories)
        for field, name in (("forgetting_N", "forgetting"), ("scores_N", "scores")):
            if (values := getattr(self, field)) is not None:
                object.__setattr__(self, field, as_tensor(values, name).to(device))
        self._check_kinds()
        self._check_outputs()
        self._check_lengths()

    def _check_kinds(self) -> None:
        """Outputs are data classes, in a list."""
        if isinstance(self.outputs, Outputs):
            raise UsageError("outputs are those of one model, not a list", "hand over one entry per model: [outputs]")
        several = isinstance(self.outputs, Sequence)
        wrong = [each for each in (self.outputs if several else [self.outputs]) if not isinstance(each, Outputs)]
        if wrong:
            raise UsageError(
                f"outputs hold a {type(wrong[0]).__name__}, not lipt.Outputs",
                "hand over arrays to lipt.Candidates.of(labels, logits=..., features=...)",
            )
        if not isinstance(self.stored, StoredOutputs | None):
            raise UsageError(
                f"stored is of type {type(self.stored).__name__}, not lipt.StoredOutputs",
                "hand over outputs in memory as outputs=[...]",
            )

    def _check_outputs(self) -> None:
        """There is a row per label, and a column per class, on the device of the labels."""
        count = len(self.labels_N)
        for index, outputs in enumerate(self.outputs):
            found, expected = tuple(outputs.logits_NC.shape), (count, self.num_classes)
            if found not in (expected, (count, 0)) and not found[1]:
                raise UsageError(
                    f"features of model {index} have {found[0]} rows; there are {count} labels",
                    "hand over one row per label",
                )
            if found not in (expected, (count, 0)):
                raise UsageError(
                    f"logits of model {index} have shape {found}, expected {expected}",
                    "hand over one row per label and one column per class",
                )
            if {outputs.logits_NC.device, outputs.features_ND.device} != {self.labels_N.device}:
                raise UsageError(
                    f"labels and the outputs of model {index} are on different devices", "move them to one device"
                )

    def _check_lengths(self) -> None:
        """Everything else has as many entries as there are labels."""
        labels_N = self.labels_N
        if self.stored is not None and (self.outputs or sum(self.stored.sizes) != len(labels_N)):
            held = _counted(len(self.outputs), "model")
            raise UsageError(
                f"outputs of {sum(self.stored.sizes)} samples are stored, and those of {held} are in memory; there are "
                f"{len(labels_N)} labels",
                "hand over either stored outputs of all samples, or outputs in memory",
            )
        for index, trajectory in enumerate(self.trajectories):
            if len(trajectory) != len(labels_N):
                raise UsageError(
                    f"trajectory {index} covers {len(trajectory)} samples; there are {len(labels_N)} labels",
                    "hand over one row per label",
                )
        for what, values in (("forgetting counts", self.forgetting_N), ("scores", self.scores_N)):
            if values is not None and values.shape != labels_N.shape:
                raise UsageError(
                    f"{what} have shape {tuple(values.shape)}, expected {tuple(labels_N.shape)}",
                    "hand over one number per candidate",
                )

    def __len__(self) -> int:
        return self.labels_N.shape[0]

    def __repr__(self) -> str:
        classes = _counted(self.num_classes, "class", "classes")
        facts = [f"{len(self):,} of {classes}", f"outputs of {_counted(self.num_models, 'model')}"]
        facts += [f"trajectories of {_counted(len(self.trajectories), 'model')}"] if self.trajectories else []
        facts += ["forgetting counts"] if self.forgetting_N is not None else []
        facts += ["scores"] if self.scores_N is not None else []
        return f"Candidates({', '.join(facts)})"

    def _repr_html_(self) -> str:
        """The facts of `repr`, and what is known of each model, as a table of a notebook."""
        facts = {"samples": f"{len(self):,}", "classes": f"{self.num_classes:,}", "models": f"{self.num_models:,}"}
        for index, each in enumerate(self.outputs):
            logits = "compressed logits" if isinstance(each.logits_NC, TopLogits) else "logits"
            known = [logits] * (each.num_classes > 0) + [_counted(each.num_features, "feature")] * (
                each.num_features > 0
            )
            facts[f"model {index}"] = ", ".join(known)
        if self.stored is not None:
            known = ["logits"] * self.stored.logits + ["features"] * self.stored.features
            facts["each model"] = f"{', '.join(known)}, stored in {_counted(len(self.stored.sizes), 'block')}"
        for index, trajectory in enumerate(self.trajectories):
            facts[f"trajectory {index}"] = _counted(trajectory.epochs, "epoch")
        own = ["forgetting counts"] * (self.forgetting_N is not None) + ["scores"] * (self.scores_N is not None)
        return facts_table("Candidates", facts | ({"of each sample": ", ".join(own)} if own else {}))

    @property
    def num_models(self) -> int:
        """Number of models that were scored."""
        return len(self.outputs) if self.stored is None else self.stored.models

    @cached_property
    def class_sizes(self) -> list[int]:
        """Number of candidates of every class."""
        return class_sizes(self.labels_N, self.num_classes)

    @cached_property
    def members(self) -> list[Tensor]:
        """Positions (M,) of every class, ascending."""
        return members_by_class(self.labels_N, self.class_sizes)

    def looked_at(self, *, logits: bool, features: bool) -> Candidates:
        """A copy without unused outputs, which are then not checked. It drops all cached results, because labels or
        outputs may have changed."""

        fields = {name: value for name, value in vars(self).items() if name not in ("class_sizes", "members")}
        unused = {"logits": not logits, "features": not features}
        if self.stored is None:
            fields["outputs"] = [each.without(**unused) for each in self.outputs]
        else:
            fields["stored"] = self.stored.without(**unused)
        return unchecked(type(self), **fields)

    @classmethod
    def of(
        cls,
        labels: ArrayLike,
        *,
        logits: ArrayLike | TopLogits | Sequence[ArrayLike | TopLogits] | None = None,
        features: ArrayLike | Sequence[ArrayLike] | None = None,
        num_classes: int | None = None,
        trajectories: Trajectory | Sequence[Trajectory] = (),
        forgetting: ArrayLike | None = None,
        scores: ArrayLike | None = None,
    ) -> Candidates:
        """From numpy arrays, tensors of any device, or lists; memory-mapped arrays stay memory-mapped.

        Args:
            labels: integers (N,) of any type; they are moved to the device of the logits.
            logits: float (N, C) of any precision, or compressed; for several models a list or tuple of these (a list of
                rows is one array). May be left out if the algorithm does not need them.
            features: float (N, D), the input of the classifier layer; otherwise as the logits.
            num_classes: C; None = the columns of the logits, else the largest label + 1, at most 2^20.
            trajectories: one, or several (one per model); they are moved to the device of the labels.
            forgetting: forgetting events (N,).
            scores: your own scores (N,), for `scores` and for `ccs` with `score="scores"`.

        Raises:
            UsageError: values are not numbers, lengths, shapes, devices or labels do not fit together, or the logits
                are probabilities.
        """
        scored = [each if isinstance(each, TopLogits) else as_tensor(each, "logits") for each in per_model(logits)]
        seen = [as_tensor(each, "features") for each in per_model(features)]
        if scored and seen and len(scored) != len(seen):
            raise UsageError(
                f"there are logits of {_counted(len(scored), 'model')} and features of {len(seen)}",
                "give both of each model, or only one of the two for algorithms that do not need the other",
            )
        known: list[Tensor | TopLogits] = [*(scored or seen)]
        nothing = [torch.empty(*each.shape[:1], 0, device=each.device) for each in known]
        outputs = [Outputs(logits_NC=z, features_ND=h) for z, h in zip(scored or nothing, seen or nothing, strict=True)]
        labels_N = _checked_labels(labels)
        device = outputs[0].logits_NC.device if outputs else labels_N.device
        if num_classes is None:
            num_classes = outputs[0].num_classes if scored else count_classes(labels_N)
        made = cls(
            labels_N=labels_N.to(device),
            num_classes=num_classes,
            outputs=outputs,
            trajectories=as_trajectories(trajectories),
            forgetting_N=None if forgetting is None else as_tensor(forgetting, "forgetting"),
            scores_N=None if scores is None else as_tensor(scores, "scores"),
        )
        for index, each in enumerate(outputs):
            if isinstance(each.logits_NC, Tensor):  # compressed ones are log-probabilities
                refuse_probabilities(each.logits_NC, f"model {index}")
        return made


def _counted(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"
