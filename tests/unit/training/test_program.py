"""A trained network as a program of its own."""

from __future__ import annotations

import io
import json

import pytest
import torch
from torch import Tensor, nn

from lipt.data.augmentation import normalise
from lipt.errors import RunError
from lipt.training.networks import build_model
from lipt.training.program import program


def trained(name: str, side: int) -> nn.Module:
    """A network whose statistics are not those of a new one."""
    network = build_model(name, num_classes=7, seed=0, width=16 if not name.startswith("torchvision") else None)
    with torch.no_grad():
        network.train()(torch.randn(4, 3, side, side))
    return network.eval()


def loaded(data: bytes) -> tuple[nn.Module, str]:
    files = {"lipt.json": ""}
    found = torch.export.load(io.BytesIO(data), extra_files=files).module()
    return found, files["lipt.json"]


@pytest.mark.parametrize(
    ("name", "side"), [("resnet18", 16), ("wrn28_10", 16), ("vit_small", 16), ("torchvision.resnet18", 64)]
)
def test_it_gives_the_logits_of_the_network_for_any_number_of_images(name: str, side: int) -> None:
    network = trained(name, side)
    data = program(network, (3, side, side), {"lipt.json": json.dumps({"classes": ["ä"]})})
    again, text = loaded(data)
    assert json.loads(text) == {"classes": ["ä"]}
    images = torch.randint(0, 256, (5, 3, side, side), dtype=torch.uint8)
    for part in (images, images[:1]):
        with torch.no_grad():
            torch.testing.assert_close(again(part), network(normalise(part)))


def test_it_needs_no_code_of_ours() -> None:
    """Nothing of LiPT is named in it, and its linear layer is torch's."""
    data = program(trained("resnet18", 16), (3, 16, 16), {})
    traced = torch.export.load(io.BytesIO(data))
    kinds = {str(node.target) for node in traced.graph.nodes if node.op == "call_function"}
    assert all(kind.startswith(("aten.", "_guards")) for kind in kinds), kinds


class _Undecided(nn.Module):
    """Its layers depend on the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 7)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3))
        logits: Tensor = self.last(mean if float(mean.sum()) > 0 else -mean)
        return logits


def test_a_network_that_decides_in_python_is_one_error() -> None:
    with pytest.raises(RunError, match=r"torch\.export cannot trace the network: ") as error:
        program(_Undecided(), (3, 8, 8), {})
    assert "\n" not in error.value.message
    assert error.value.remedy == "change what it names, or load weights.safetensors into the network itself"
