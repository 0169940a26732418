"""The pages on the selection: their example runs, and their table lists every algorithm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from docs.generate.algorithms import END, PAGE, START
from lipt.selection import ALGORITHMS, select


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (PAGE.parents[1] / "howto/select-in-python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(block, namespace)
    assert len(namespace["selection"].indices_K) == 50
    assert namespace["selection"].provenance["checkpoint"] == "sha256:0a1b"
    assert pq.read_table(tmp_path / "subset.parquet")["rank"].null_count == 450
    drawn = [len(labels_B) for _, labels_B in namespace["loader"]]
    assert drawn == [10] * 5
    expected = select("el2n", namespace["candidates"], fraction=0.1).indices_K
    overlap = len(set(namespace["hardest"].indices_K.tolist()) & set(expected.tolist()))
    assert overlap >= 45  # float16 moves few samples across the border


def test_the_documentation_lists_every_algorithm() -> None:
    table = PAGE.read_text().split(START)[1].split(END)[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert list(rows) == list(ALGORITHMS)
    assert rows["uncertainty"] == (
        "Least certain predictions | logits | `measure` (entropy, margin, least_confidence) |  | O(nC) | "
        "active learning baseline"
    )
    assert "`beta` (by the fraction and the errors), `strata` (50) | Zheng et al. ICLR 2023, Alg" in rows["ccs"]
