"""The example in CONTRIBUTING.md: an algorithm is one file, and everything finds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from selection_samples import make

from lipt.cli import main
from lipt.errors import RunError, UsageError
from lipt.selection import Requirements, Selection, registry, requirements, select
from lipt.selection.registry import Picks, Registered


@pytest.fixture
def example() -> Iterator[None]:
    text = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "@register(" in block)
    exec(compile(code, "CONTRIBUTING.md", "exec"), {"__name__": "example"})
    yield
    del registry._REGISTRY["doubted"]


@pytest.mark.usefixtures("example")
def test_the_example_is_an_algorithm(tmp_path: Path) -> None:
    candidates = make(40, 4)
    logits_NC, labels_N = candidates.outputs[0].logits(slice(None)), candidates.labels_N
    lowest = logits_NC.softmax(1)[range(40), labels_N].argsort()[:8].tolist()
    assert select("doubted", candidates, k=8, balanced=False).indices_K.tolist() == lowest
    assert requirements("doubted", 0.2) == Requirements(models=1, logits=True)
    np.save(tmp_path / "labels.npy", labels_N.numpy())
    np.save(tmp_path / "logits.npy", logits_NC.numpy())
    files = [
        "--labels",
        f"{tmp_path}/labels.npy",
        "--logits",
        f"{tmp_path}/logits.npy",
        "--to",
        f"{tmp_path}/s.parquet",
    ]
    main(["select", *files, "--algorithm", "doubted", "--k", "8", "--option", "lowest=true"])
    expected = select("doubted", candidates, k=8).indices_K.tolist()
    assert Selection.load(tmp_path / "s.parquet").indices_K.tolist() == expected


@pytest.mark.usefixtures("example")
def test_its_name_and_options_are_checked() -> None:
    with pytest.raises(UsageError, match="did you mean 'doubted'"):
        select("doubtd", make(), k=8)
    with pytest.raises(UsageError, match="option lowest of doubted: 'x' is not true or false"):
        select("doubted", make(), k=8, lowest="x")


def test_an_algorithm_that_picks_a_sample_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = Registered(
        function=lambda task: Picks(indices_K=torch.zeros(task.budget, dtype=torch.int64)),
        needs=Requirements(),
        memory=lambda _size, **_options: 0,
    )
    monkeypatch.setitem(registry._REGISTRY, "twice", twice)
    assert select("twice", make(), k=1).indices_K.tolist() == [0]
    with pytest.raises(RunError, match="algorithm twice has picked a sample more than once"):
        select("twice", make(), k=8)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 1], "algorithm other has picked 2 samples, not 3"),
        ([0, 1, 2, 3], "algorithm other has picked 4 samples, not 3"),
        ([0, 1, -1], "algorithm other has picked a position outside 0..39"),
        ([0, 1, 40], "algorithm other has picked a position outside 0..39"),
    ],
)
def test_an_algorithm_whose_picks_are_no_selection_is_refused(
    monkeypatch: pytest.MonkeyPatch, indices: list[int], message: str
) -> None:
    other = Registered(
        function=lambda _task: Picks(indices_K=torch.tensor(indices)),
        needs=Requirements(),
        memory=lambda _size, **_options: 0,
    )
    monkeypatch.setitem(registry._REGISTRY, "other", other)
    with pytest.raises(RunError, match=message):
        select("other", make(), k=3)
