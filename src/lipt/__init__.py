"""LiPT: train on a well-chosen part of the data, on one machine or as a Kubeflow pipeline.

    candidates = lipt.score_dataset(model, dataset)          # one pass over the images
    selection = lipt.select("ccs", candidates, fraction=0.05)
    subset = selection.subset(dataset)                       # train on it with your own loop
    done = lipt.run("photos.yaml")                           # or a whole run, with a verdict

The names below are the public ones. They load when they are first used, so `import lipt` alone imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lipt.errors import LiptError, of_missing_module
from lipt.version import __version__

if TYPE_CHECKING:
    from lipt.flow.from_python import run
    from lipt.selection import (
        ALGORITHMS,
        AlgorithmName,
        Candidates,
        Description,
        Outputs,
        Requirements,
        Selection,
        StoredOutputs,
        Trajectory,
        describe,
        requirements,
        score_dataset,
        select,
    )

__all__ = [
    "ALGORITHMS", "AlgorithmName", "Candidates", "Description", "LiptError", "Outputs", "Requirements", "Selection",
    "StoredOutputs", "Trajectory", "__version__", "describe", "requirements", "run", "score_dataset", "select",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lipt' has no attribute {name!r}")
    try:
        return getattr(import_module("lipt.flow.from_python" if name == "run" else "lipt.selection"), name)
    except ModuleNotFoundError as error:
        raise of_missing_module(error) from None


def __dir__() -> list[str]:
    return __all__
