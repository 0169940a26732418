"""Weights on the wire: exact where it matters, small, and hostile bytes are refused."""

from __future__ import annotations

import pytest
import torch
import zstandard
from safetensors.torch import save
from torch import Tensor

from lipt.errors import IntegrityError
from lipt.training.networks import build_model
from lipt.training.pruning import prune
from lipt.training.tensor_files import State, decode_delta, encode_delta, pack, state_of, unpack


@pytest.fixture(scope="module")
def pair() -> tuple[State, State]:
    """(theta_*, a jigsaw a few small steps away, pruned)."""
    model = build_model("resnet18", num_classes=10, seed=0, width=16)
    base = state_of(model)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng) * 1e-3)
    prune(model, "magnitude", 0.9, seed=0)
    return base, state_of(model)


def test_pack_is_lossless(pair: tuple[State, State]) -> None:
    again = unpack(pack(pair[1]), origin="x")
    assert again.keys() == pair[1].keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in pair[1].items())


def test_delta_rounds_the_difference_only(pair: tuple[State, State]) -> None:
    base, state = pair
    again = decode_delta(encode_delta(state, base), base, origin="x")
    assert again.keys() == state.keys()
    for name, tensor in state.items():
        assert again[name].dtype == tensor.dtype
        if tensor.dim() <= 1:
            assert torch.equal(again[name], tensor)
            continue
        difference = (tensor - base[name]).abs()
        assert ((again[name] - tensor).abs() <= difference * 2**-8 + 1e-7).all()
        assert torch.equal(again[name] == 0, tensor == 0)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(3, 4),
        torch.tensor([[0.0, 0.5], [0.0, 0.0]]),
        torch.tensor([[0.5]]),
        torch.zeros(0, 4),
        torch.full((3, 3), -torch.inf).triu(1),
    ],
    ids=["all zero", "one value", "a scale", "empty", "a mask of attention"],
)
def test_delta_of_the_tensors_that_a_users_model_may_have(tensor: Tensor) -> None:
    for base in ({"w": tensor}, {"w": torch.where(tensor.isinf(), tensor, tensor + 1)}):
        again = decode_delta(encode_delta({"w": tensor}, base), base, origin="x")
        assert torch.equal(again["w"], tensor)


def test_delta_is_much_smaller_than_fp32(pair: tuple[State, State]) -> None:
    base, state = pair
    assert len(encode_delta(state, base)) < 0.40 * len(pack(state))


def test_nothing_is_unpickled() -> None:
    hostile = b"\x80\x04cos\nsystem\n(S'touch /tmp/lipt-was-here'\ntR."
    with pytest.raises(IntegrityError, match="evil"):
        unpack(hostile, origin="evil")
    with pytest.raises(IntegrityError, match="evil"):
        decode_delta(hostile, {}, origin="evil")


@pytest.mark.parametrize("damage", ["truncated", "flipped", "other base", "bomb"])
def test_damage_is_named(pair: tuple[State, State], damage: str) -> None:
    base, state = pair
    data = encode_delta(state, base)
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data = data[:40] + bytes([data[40] ^ 0xFF]) + data[41:]
    elif damage == "other base":
        base = state_of(build_model("resnet18", num_classes=10, seed=0, width=8))
    else:
        data = zstandard.ZstdCompressor().compress(save({"x": torch.zeros(200_000_000, dtype=torch.uint8)}))
    with pytest.raises(IntegrityError, match=r"jigsaw-3"):
        decode_delta(data, base, origin="jigsaw-3")


def test_a_delta_with_too_many_values_is_refused(pair: tuple[State, State]) -> None:
    base, state = pair
    parts = unpack(zstandard.ZstdDecompressor().decompress(encode_delta(state, base)), origin="x")
    name = next(key for key in parts if key.startswith("delta/"))
    parts[name] = torch.cat([parts[name], parts[name][:, :1]], dim=1).contiguous()
    with pytest.raises(IntegrityError, match="values for"):
        decode_delta(zstandard.ZstdCompressor().compress(save(parts)), base, origin="x")
