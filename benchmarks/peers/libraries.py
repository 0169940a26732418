"""Small functions around the unmodified libraries cords, apricot-select and submodlib-py."""

from __future__ import annotations

import importlib
import random
import sys
import types
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from apricot import FacilityLocationSelection, GraphCutSelection
from submodlib import DisparityMinFunction, FacilityLocationFunction, GraphCutFunction, LogDeterminantFunction
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.inputs import Problem

VERSIONS = {name: version(name) for name in ("cords", "apricot-select", "submodlib-py", "torch", "numpy")}
#: cords chooses its solver by `device == "cpu"`. A torch.device is not equal to "cpu" and gets the solver for GPUs.
CPU_SOLVER, TORCH_SOLVER = "cpu", torch.device("cpu")
_SL = "cords.selectionstrategies.SL"


def import_error() -> str:
    """The error of `import cords.selectionstrategies.SL`, in one line; empty if it works."""
    try:
        importlib.import_module(_SL)
    except ImportError as error:
        for name in [name for name in sys.modules if name.startswith(_SL)]:
            del sys.modules[name]
        return f"{type(error).__name__}: {' '.join(str(error).split())[:90]}"
    return ""


def strategy(module: str, name: str) -> type:
    """A strategy class of cords, imported without the package's __init__; no code is changed."""
    if _SL not in sys.modules:
        package = types.ModuleType(_SL)
        package.__path__ = [f"{importlib.import_module('cords.selectionstrategies').__path__[0]}/SL"]
        sys.modules[_SL] = package
    found: type = getattr(importlib.import_module(f"{_SL}.{module}"), name)
    return found


class Log:
    """Receives the messages of cords and keeps the number of random points."""

    def __init__(self) -> None:
        self.fills = 0

    def debug(self, message: str, *values: float) -> None:
        if message.startswith("Random points added"):
            self.fills = max(0, int(values[0]))


def cords(
    kind: str, p: Problem, k: int, *, batch: int = 160, device: Any = CPU_SOLVER, seed: int = 0, **options: Any
) -> tuple[list[int], list[float], int]:
    """Indices, weights and random fills of `kind` (craig, glister, gradmatch) for a total budget of k samples."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    loss, log, loader = (
        nn.CrossEntropyLoss(reduction="none"),
        Log(),
        DataLoader(TensorDataset(p.features, p.labels), batch),
    )
    common = {"device": device, "num_classes": p.classes, "linear_layer": True, "logger": log, **options}
    if kind == "craig":
        made = strategy("craigstrategy", "CRAIGStrategy")(loader, loader, p.model, loss, if_convex=False, **common)
    elif kind == "glister":
        made = strategy("glisterstrategy", "GLISTERStrategy")(loader, loader, p.model, loss, **common)
    else:
        made = strategy("gradmatchstrategy", "GradMatchStrategy")(loader, loader, p.model, loss, eta=0.01, **common)
    indices, weights = made.select(k, p.model.state_dict())
    return [int(i) for i in indices], [float(w) for w in weights], log.fills


def cords_submodular(p: Problem) -> str:
    """Construct the strategy that offers facility location and graph cut, with the arguments that it documents."""
    loader = DataLoader(TensorDataset(p.features, p.labels), 160)
    found = strategy("submodularselectionstrategy", "SubmodularSelectionStrategy")
    loss = nn.CrossEntropyLoss(reduction="none")
    found(loader, loader, p.model, loss, "cpu", p.classes, True, False, "PerClass", "facility-location", "lazy")
    return "constructed"


def cords_gradients(p: Problem) -> Tensor:
    """The gradients that cords computes for the problem."""
    base = strategy("dataselectionstrategy", "DataSelectionStrategy")
    loader = DataLoader(TensorDataset(p.features, p.labels), 160)
    made = base(loader, loader, p.model, p.classes, True, nn.CrossEntropyLoss(reduction="none"), "cpu", Log())
    made.compute_gradients()
    found: Tensor = made.grads_per_elem
    return found


def apricot_facility(
    similarity: np.ndarray, k: int, optimizer: str = "lazy", seed: int = 0, **options: Any
) -> list[int]:
    selector = FacilityLocationSelection(
        k, metric="precomputed", optimizer=optimizer, optimizer_kwds=options, random_state=seed
    )
    return [int(i) for i in selector.fit(similarity.astype(np.float64)).ranking]


def apricot_cut(similarity: np.ndarray, k: int, alpha: float) -> list[int]:
    selector = GraphCutSelection(k, metric="precomputed", alpha=alpha, random_state=0)
    return [int(i) for i in selector.fit(similarity.astype(np.float64)).ranking]


def _picks(function: Any, k: int, optimizer: str) -> list[int]:
    return [int(i) for i, _ in function.maximize(budget=k, optimizer=optimizer, show_progress=False)]


def submodlib_facility(similarity: np.ndarray, k: int, optimizer: str = "LazyGreedy") -> list[int]:
    function = FacilityLocationFunction(n=len(similarity), mode="dense", sijs=similarity, separate_rep=False)
    return _picks(function, k, optimizer)


def submodlib_cut(similarity: np.ndarray, k: int, lam: float) -> list[int]:
    function = GraphCutFunction(n=len(similarity), mode="dense", lambdaVal=lam, ggsijs=similarity, separate_rep=False)
    return _picks(function, k, "NaiveGreedy")


def submodlib_logdet(similarity: np.ndarray, k: int, ridge: float) -> list[int]:
    function = LogDeterminantFunction(n=len(similarity), mode="dense", lambdaVal=ridge, sijs=similarity)
    return _picks(function, k, "NaiveGreedy")


def submodlib_farthest(similarity: np.ndarray, k: int) -> list[int]:
    return _picks(DisparityMinFunction(n=len(similarity), mode="dense", sijs=similarity), k, "NaiveGreedy")
