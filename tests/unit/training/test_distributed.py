"""Two and three processes against one: BatchNorm, gradients, curves, resumption."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lipt.errors import RunError, UsageError
from lipt.training.distributed import Ranks
from lipt.training.loop import train
from tests.programs import run_python
from tests.unit.training import rank_program
from tests.unit.training.rank_program import NORMS, RAPTRS, SETS, Tensors, make_trainer, norm_inputs, outcome, run_norm


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Tensors]]:
    """What each process left, by number of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    run_python("-m", rank_program.__name__, str(folder))
    return {count: [load_file(folder / f"{rank}-of-{count}.safetensors") for rank in range(count)] for count in SETS}


def select(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@pytest.mark.parametrize("name", NORMS)
def test_batchnorm_is_that_of_the_whole_batch(name: str, found: dict[int, list[Tensors]]) -> None:
    layer, x, dy = norm_inputs(name)
    expected = run_norm(layer, layer, x, dy)
    parts = [select(tensors, f"{name}/") for tensors in found[2]]
    joined = {key: torch.cat([part[key] for part in parts]) for key in ("y", "eval") if key in expected}
    joined["dx"] = torch.cat([part["dx"] for part in parts]) / 2
    for key, tensor in expected.items():
        for value in [joined[key]] if key in joined else [part[key] for part in parts]:
            torch.testing.assert_close(value, tensor, rtol=1e-4, atol=2e-4, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("kind", RAPTRS)
@pytest.mark.parametrize("count", SETS)
def test_training_together_equals_training_alone(count: int, kind: str, found: dict[int, list[Tensors]]) -> None:
    """Batches and parts of unequal size, sample weights, augmentation, BatchNorm, momentum; five epochs."""
    trainer, images, weights_N = make_trainer(count, Ranks(), kind)
    start = outcome(trainer)
    train(trainer, lambda _trainer: (images, weights_N))
    expected, together = outcome(trainer), select(found[count][0], f"{kind}/straight/")
    assert together.keys() == expected.keys()
    near = {"full": 2e-6, "raptr": 1e-5}[kind]  # 1/p multiplies rounding too; the weights move by 1e-3 and more
    for name, tensor in expected.items():
        torch.testing.assert_close(
            together[name], tensor, rtol=1e-5, atol=near, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert torch.equal(together["accuracy"], expected["accuracy"])
    assert not torch.allclose(expected["classifier.weight"], start["classifier.weight"], atol=1e-3)


@pytest.mark.parametrize("kind", RAPTRS)
@pytest.mark.parametrize("count", SETS)
def test_all_processes_end_with_the_same_bits(count: int, kind: str, found: dict[int, list[Tensors]]) -> None:
    first, *others = [select(tensors, f"{kind}/straight/") for tensors in found[count]]
    for other in others:
        assert all(torch.equal(other[name], tensor) for name, tensor in first.items())


@pytest.mark.parametrize("stop", ["resumed", "resumed within an epoch"])
@pytest.mark.parametrize("kind", RAPTRS)
@pytest.mark.parametrize("count", SETS)
def test_resuming_together_repeats_the_run_bit_by_bit(
    count: int, kind: str, stop: str, found: dict[int, list[Tensors]]
) -> None:
    straight, resumed = (select(found[count][0], f"{kind}/{part}/") for part in ("straight", stop))
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(resumed[name], tensor) for name, tensor in straight.items())


def test_sums(found: dict[int, list[Tensors]]) -> None:
    assert [tensors["sum"].tolist() for tensors in found[3]] == [[3.0, 3.0]] * 3


def test_parts_divide_a_batch_evenly_and_keep_neighbours_together() -> None:
    rows = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:50]
    parts = [Ranks(rank=rank, count=8).part(rows) for rank in range(8)]
    assert sorted(torch.cat(parts).tolist()) == list(range(50))
    assert {len(part) for part in parts} == {6, 7}
    own = [rows[part] for part in parts]
    assert all(before.max() < after.min() for before, after in pairwise(own))
    assert Ranks().part(rows).tolist() == list(range(50))


def test_layers_that_draw_give_each_process_other_draws(found: dict[int, list[Tensors]]) -> None:
    """Each has its own images. With the same draws, the masks of a Dropout layer would repeat within a batch."""
    drawn = torch.cat([tensors["draws"] for tensors in found[2]])
    assert len(drawn) == 2 * 2 * 6  # processes, epochs, steps
    assert len(drawn.unique(dim=0)) == len(drawn)


def test_a_batch_smaller_than_the_team_is_one_clear_error() -> None:
    trainer, images, _ = make_trainer(2, Ranks(), "full")
    trainer.ranks = Ranks(rank=0, count=64)
    with pytest.raises(RunError, match=r"batch of \d\d images cannot be divided over 64 processes"):
        trainer.run_epoch(images)


class NormAndActivation(nn.BatchNorm2d):
    """As in many libraries of networks."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


def test_a_batchnorm_that_does_more_is_refused() -> None:
    """Its activation would be lost without a word."""
    with pytest.raises(UsageError, match="NormAndActivation is a BatchNorm with a forward of its own"):
        Ranks(rank=0, count=2).replicate(nn.Sequential(nn.Conv2d(3, 4, 1), NormAndActivation(4)))
