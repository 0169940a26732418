"""`select`, the entry point of the selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from textwrap import indent
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lipt.errors import RunError, UsageError
from lipt.selection import registry
from lipt.selection.arguments import balanced_of, budget_of, check_samples, initial_of, judges_of, seed_of, share_of
from lipt.selection.arrays import ArrayLike
from lipt.selection.auto import AUTO, auto_rule, epochs_of, unused_inputs
from lipt.selection.inputs.candidates import Candidates
from lipt.selection.inputs.passes import in_memory
from lipt.selection.lost import remark_on_lost
from lipt.selection.needs import Requirements
from lipt.selection.options import bind_options, plain
from lipt.selection.registry import Picks, Task, require
from lipt.selection.result import Selection
from lipt.selection.signatures import OPTIONS, AlgorithmName, Select
from lipt.selection.table import checked_notes


def resolve(algorithm: str, fraction: float, *, balanced: bool = True, epochs: int = 0) -> str:
    """The algorithm that runs at this share of the data; it differs from `algorithm` only for `auto`.

    Args:
        epochs: of the trajectory; 0 = there is none.

    Raises:
        UsageError: no such algorithm, or a fraction outside (0, 1].
    """
    fraction = share_of(plain(fraction))
    name = auto_rule(fraction, balanced=balanced, epochs=epochs)[0] if algorithm == AUTO else algorithm
    registry.lookup(name)
    return name


def requirements(
    algorithm: str, fraction: float, options: Mapping[str, Any] | None = None, *, epochs: int = 0
) -> Requirements:
    """The inputs besides labels that `algorithm` needs at this share of the data, so that a pipeline can skip scoring.

    Args:
        epochs: as for `resolve`.

    Raises:
        UsageError: no such algorithm or option, a value of the wrong type, or a fraction outside (0, 1].
    """
    options = options or {}
    return registry.lookup(resolve(checked(algorithm, options), fraction, epochs=epochs)).needs_with(options)


def checked(algorithm: str, options: Mapping[str, Any]) -> AlgorithmName:
    """The name of an algorithm that exists and has these options.

    Raises:
        UsageError: no such algorithm or option, or a value of the wrong type.
    """
    if algorithm == AUTO:
        require(not options, "algorithm auto takes no options", "name the algorithm to set its options")
    else:
        bind_options(algorithm, registry.lookup(algorithm).function, options)
    return cast(AlgorithmName, algorithm)


def _with_signatures(function: Callable[..., Selection]) -> Select:
    """The same function; type checkers and `help` then know the options of each algorithm."""
    explained = '\n\n    Options and their defaults; `print(lipt.describe("ccs"))` explains those of one algorithm:\n\n'
    function.__doc__ = (function.__doc__ or "").rstrip() + explained + indent(OPTIONS, " " * 8) + "\n    "
    return cast(Select, function)


def _without_default_device(function: Callable[..., Selection]) -> Callable[..., Selection]:
    """The same function, whose new tensors are on the CPU where it names no device, also after
    `torch.set_default_device`."""

    @wraps(function)
    def on_cpu(*arguments: Any, **keywords: Any) -> Selection:
        if torch.empty(0).device.type == "cpu":  # get_default_device of torch 2.6 misses `with torch.device(…)`
            return function(*arguments, **keywords)
        with torch.device("cpu"):
            return function(*arguments, **keywords)

    return on_cpu


@_with_signatures
@_without_default_device
def select(
    algorithm: AlgorithmName,
    candidates: Candidates,
    *,
    fraction: float | None = None,
    k: int | None = None,
    seed: int = 0,
    balanced: bool = True,
    validation: Candidates | None = None,
    initial: ArrayLike | None = None,
    notes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Selection:
    """Choose a share (`fraction`) or a number (`k`) of the candidates; pass exactly one of the two.

    Args:
        algorithm: `lipt.ALGORITHMS` lists them; `print(lipt.describe("ccs"))` explains one and its options.
        candidates: from `lipt.score_dataset(model, dataset)` or `lipt.Candidates.of(labels, ...)`.
        fraction: share to keep, 0 < fraction <= 1: round(fraction * n) samples, at least 1.
        k: number of samples to keep, 1 <= k <= n.
        seed: fixes every random draw; the same seed gives the same picks.
        balanced: split the budget over the classes in proportion to their size, by largest remainder. With less than
            one sample per class some classes get none, and `remarks` says so. False: one problem for all classes.
            `random` never balances, `stratified` always does.
        validation: outputs of held-out samples, for algorithms whose requirements name it, else refused; None = the
            candidates.
        initial: positions (I,) of candidates that are already selected, for algorithms whose requirements name it. They
            count as covered and are not picked again; budget and result contain new samples only.
        notes: entries for the selection's provenance, for example {"checkpoint": its digest}.
        options: of the algorithm, such as `beta=0.3` of `ccs`; `help(lipt.select)` lists all of them.

    Raises:
        UsageError: unknown algorithm or option, missing outputs, arguments out of range, notes that cannot be stored.
        RunError: logits or features that are not finite, or too large to be squared, scores that are NaN, counts that
            are NaN or negative; names the sample. An algorithm that picks a sample twice, or too few.
    """
    require(
        not isinstance(algorithm, Candidates),
        "select takes the algorithm first, then the candidates",
        'for example lipt.select("ccs", candidates, fraction=0.05)',
    )
    check_samples(candidates, validation)
    # Before the options: a budget under another name, such as n=30, would only be called an unknown option.
    budget, fraction = budget_of(plain(fraction), plain(k), len(candidates))
    asked, name = checked(algorithm, options), str(algorithm)
    seed, balanced = seed_of(plain(seed)), balanced_of(plain(balanced))
    if asked == AUTO:
        name, options = auto_rule(fraction, balanced=balanced, epochs=epochs_of(candidates))
    found = registry.lookup(name)
    bound = bind_options(name, found.function, options)
    needs = found.needs_with(bound)
    notes = checked_notes({} if notes is None else notes)  # fail before the work
    if needs.trajectory and candidates.trajectories:
        needs = Requirements(trajectory=True, initial=needs.initial)
    who = f"algorithm {name}{', which auto takes at this share,' if asked == AUTO else ''}"
    require(
        validation is None or needs.validation,
        f"algorithm {name} takes no validation samples",
        "leave them out, or choose glister",
    )
    initial_I = initial_of(initial, candidates, budget, name, needs)
    candidates = _with_needed_outputs(candidates, needs, who)  # after all that can be refused without reading them
    task = Task(
        candidates=candidates,
        budget=budget,
        fraction=fraction,
        balanced=balanced,
        initial_I=initial_I,
        validation=None if validation is None else judges_of(candidates, validation),
        seed=seed,
    )
    with torch.autocast(candidates.labels_N.device.type, enabled=False):  # a caller's would round to bf16
        picks = found.function(task, **bound)
    _check_picks(picks.indices_K, len(candidates), budget, name)
    unused = unused_inputs(candidates, used=needs.outputs or needs.trajectory) if asked == AUTO else []
    weights_K = picks.weights_K
    if weights_K is None:
        weights_K = torch.ones(len(picks.indices_K), device=picks.indices_K.device)
    return Selection(
        indices_K=picks.indices_K,
        weights_K=weights_K.to(torch.float32),
        # Of its own: the caller may write to the arrays of the candidates.
        scores_N=None if picks.scores_N is None else picks.scores_N.to(torch.float32, copy=True),
        labels_N=candidates.labels_N.clone(),
        positions_N=torch.from_numpy(np.arange(len(candidates))),
        algorithm=name,
        options={**bound, **picks.chosen},
        fraction=fraction,
        balanced=balanced,
        seed=seed,
        notes=notes,
        remarks=(*unused, *_all_equal(picks), *_without_any(candidates, picks.indices_K, task.initial_I)),
    )


def _with_needed_outputs(candidates: Candidates, needs: Requirements, who: str) -> Candidates:
    """The candidates with the outputs that the algorithm reads: finite, and in memory unless it reads them in passes.

    Args:
        who: the algorithm, as errors name it.

    Raises:
        UsageError: outputs are missing.
        RunError: an output is not finite, or too large to be squared.
    """
    if candidates.num_models < needs.models:
        models = f"{needs.models} model{'s' * (needs.models != 1)}"
        given = {0: "there is none", 1: "there is 1"}.get(candidates.num_models, f"there are {candidates.num_models}")
        raise UsageError(
            f"{who} needs a trajectory, or the outputs of at least {models}; {given}"
            if needs.trajectory
            else f"{who} needs the outputs of at least {models}; {given}",
            "to use your scores, choose scores, or ccs with score=scores (lipt select: --option score=scores)"
            if candidates.scores_N is not None
            else "score the candidates first, or choose random or stratified"
            if not candidates.num_models
            else "score with more models (score_dataset takes a list of them), or hand over a trajectory",
        )
    registry.require_outputs(candidates, who, logits=needs.logits, features=needs.features)
    candidates = candidates.looked_at(logits=needs.logits, features=needs.features)
    return in_memory(candidates, "candidate") if needs.outputs and not needs.passes else candidates


def _check_picks(indices_K: Tensor, n: int, budget: int, algorithm: str) -> None:
    """Raise RunError unless these are `budget` different candidates: an algorithm that compares with NaN, for example,
    picks one twice."""
    remedy = "if the algorithm is yours, correct it; otherwise report this"
    if len(indices_K) != budget:
        raise RunError(f"algorithm {algorithm} has picked {len(indices_K):,} samples, not {budget:,}", remedy)
    low, high = indices_K.aminmax()
    if int(low) < 0 or int(high) >= n:  # a negative position would count from the end
        raise RunError(f"algorithm {algorithm} has picked a position outside 0..{n - 1}", remedy)
    taken_N = torch.zeros(n, dtype=torch.bool, device=indices_K.device)
    taken_N[indices_K] = True
    if int(taken_N.count_nonzero()) != budget:
        raise RunError(f"algorithm {algorithm} has picked a sample more than once", remedy)


def _all_equal(picks: Picks) -> list[str]:
    """A remark if all samples have one score, such as the errors of a model with one output: then it says nothing."""
    scores_N = picks.scores_N
    if scores_N is None or len(picks.indices_K) == len(scores_N) or bool((scores_N != scores_N[0]).any()):
        return []
    return [f"all samples have the score {float(scores_N[0]):g}, so the scores choose nothing"]


def _without_any(candidates: Candidates, indices_K: Tensor, initial_I: Tensor) -> list[str]:
    """A remark if classes with candidates have no selected sample, initial ones included."""
    labels = candidates.labels_N.numpy(force=True)
    taken_K = torch.cat([indices_K, initial_I]) if initial_I.numel() else indices_K
    taken_C = np.bincount(labels.take(taken_K.numpy(force=True)), minlength=candidates.num_classes).tolist()
    remark = remark_on_lost(candidates.class_sizes, taken_C, len(indices_K))
    return [remark] if remark else []
