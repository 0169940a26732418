"""The stages, one file each: a function takes the context and its input artifacts and returns a `Stage`.

`inputs` checks what such a function is given.

A `Stage` makes one artifact.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def stage_function(name: str) -> Callable[..., Any]:
    """The function of a stage, by its name in `pipeline.STAGES`; it returns a `Stage` or an `Ingest`."""
    function: Callable[..., Any] = getattr(import_module(f"lipt.stages.{name}"), name)
    return function
