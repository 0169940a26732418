"""A user edits the file of the network: no artifact comes from other code than its address names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lipt.errors import RunError
from lipt.runtime import Artifact, Context
from lipt.runtime.network import WEIGHTS
from lipt.stages.ingest import ingest
from lipt.stages.select import select
from lipt.stages.train import train
from lipt.training.tensor_files import unpack
from tests.tiny import tiny_context

NETWORK = """from torch import nn

def net(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_classes))
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    monkeypatch.chdir(tmp_path)
    yield lambda width: (tmp_path / "net_in_hand.py").write_text(NETWORK.replace("WIDTH", str(width))) and None
    sys.modules.pop("net_in_hand", None)


def context(folder: Path, processes: int = 1) -> Context:
    network = {"name": "net_in_hand:net", "width": None, "classifier": "3"}
    changes = {"model": network, "select": {"algorithm": "random"}, "train": {"epochs": 1}, "processes": processes}
    return tiny_context(folder, changes)


def trained(ctx: Context) -> Artifact:
    dataset = ingest(ctx).make()
    return train(ctx, dataset, select(ctx, dataset, ()).make()).make()


def width(ctx: Context, model: Artifact) -> int:
    data = ctx.workspace.store.read(f"{model.ref}/{WEIGHTS}", kind="model")
    return len(unpack(data, origin=model.ref)["1.weight"])


def test_every_run_trains_the_network_of_its_file(write: Callable[[int], None], tmp_path: Path) -> None:
    made = {}
    for wide in (16, 48, 16):
        write(wide)
        ctx = context(tmp_path)
        model = trained(ctx)
        assert width(ctx, model) == wide
        assert made.setdefault(wide, model.ref) == model.ref
    assert len(set(made.values())) == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_an_edit_while_a_run_goes_on_ends_it(processes: int, write: Callable[[int], None], tmp_path: Path) -> None:
    write(16)
    ctx = context(tmp_path, processes)
    dataset = ingest(ctx).make()
    stage = train(ctx, dataset, select(ctx, dataset, ()).make())  # from here on its address is known
    write(48)
    with pytest.raises(RunError, match="net_in_hand:net has changed since this run began"):
        stage.make()
    assert ctx.workspace.find(stage.ref) is None
