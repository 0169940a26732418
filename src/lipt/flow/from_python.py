"""`lipt.run`: a whole run from Python."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from os import PathLike, fspath
from types import NoneType
from typing import Any

from lipt.config import load_config, override, parse_config
from lipt.errors import UsageError
from lipt.flow.address import folder_of, page_of
from lipt.flow.compare import run_with_baseline
from lipt.flow.reporting.provenance import MODEL_LINK
from lipt.progress import make_reporter
from lipt.report.document import Document
from lipt.report.numbers import format_percent
from lipt.report.significance import mean_accuracy
from lipt.report.verdict import Verdict, judge
from lipt.runtime import Attempt, Context
from lipt.selection import Selection
from lipt.selection.notebook import facts_table
from lipt.stages.select import read_subset

#: A run seeds the generators of torch, Python and NumPy, which all threads of a process share.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The results of a run."""

    report: Document
    verdict: Verdict
    """What the report concludes. `print(run(…).verdict)` shows it."""
    page: str
    """Path or address of the report as an HTML page."""
    model: str
    """Path or address of the trained network's weights, a safetensors file."""
    subset: Selection
    """The chosen training images, with their names: `subset.files()`."""

    def __repr__(self) -> str:
        return f"Finished({self.verdict.headline} Report: {self.page})"

    def _repr_html_(self) -> str:
        """The conclusion, the test accuracy of each method, and where the results are, as a table of a notebook."""
        accuracies = {row.label: f"{format_percent(mean_accuracy(row))} test accuracy" for row in self.report.rows}
        where = {"report": self.page, "trained network": self.model}
        return facts_table("Run", {"conclusion": self.verdict.headline, **accuracies, **where})


def run(config: str | PathLike[str] | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Finished:
    """Run a configuration from data to report, as `lipt run` does. Finished stages are skipped.

    Runs in several threads take turns: they seed the generators of torch, Python and NumPy, which a process has once.
    So no other thread may draw random numbers meanwhile. To run several at a time, use a process for each.

    Args:
        config: a YAML file, or the settings as nested mappings: `{"data": {"source": "digits"}}`.
        changes: settings that replace those of `config`: `{"select": {"fraction": 0.1}}`.

    Raises:
        LiptError: a setting is wrong (UsageError), or the run failed.
    """
    if not isinstance(config, (str, PathLike, Mapping)):
        raise UsageError(f"config is a {type(config).__name__}", "hand over a YAML file, or settings as a dict")
    if isinstance(config, str) and not config.endswith((".yaml", ".yml")) and not os.path.exists(config):
        raise UsageError(
            f"config is {config[:60]!r}: neither settings nor a file",
            "write settings, such as {model: {width: 16}}, or name an existing YAML file",
        )
    if not isinstance(changes, (Mapping, NoneType)):
        raise UsageError(f"changes are a {type(changes).__name__}", "hand over settings as a dict")
    settings = parse_config(_plain(config)) if isinstance(config, Mapping) else load_config(fspath(config))
    ctx = Context.of(override(settings, _plain(changes or {})), make_reporter())
    with _ONE_AT_A_TIME, closing(ctx.reporter):
        document = run_with_baseline(ctx)
    assert document is not None  # None on a dry run only
    assert document.subset is not None
    ref, store = document.subset.ref, ctx.workspace.store
    folder = store.uri.removeprefix("file://")
    (model,) = (link.key for link in document.links if link.name == MODEL_LINK)
    return Finished(
        report=document,
        verdict=judge(document.rows),
        page=page_of(store, folder_of(document)),
        model=f"{folder}/{model}",
        subset=read_subset(Attempt(ctx=ctx, ref="reports", label="subset"), ctx.workspace.get(ref), sources=True),
    )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with paths as text, as in a file."""
    return {
        key: _plain(value) if isinstance(value, Mapping) else fspath(value) if isinstance(value, PathLike) else value
        for key, value in settings.items()
    }
