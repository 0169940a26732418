"""Scores of several models on streamed images: each image is decoded once, and each model gives what it gives alone.

Shape legend: N images, B batch, C classes, D features, T classes that are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lipt.data import images as data_images
from lipt.flow.dag import Scoring, prepare
from lipt.flow.prepared import Prepared
from lipt.ledger import Cost
from lipt.progress import Reporter
from lipt.runtime.artifact import MARKER, Artifact
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import new_model, read_weights
from lipt.selection.inputs.compressed import TopLogits
from lipt.selection.inputs.dataset import logits_and_features
from lipt.training import forward
from lipt.training.flops import flops_per_image
from lipt.training.forward import forward_batches, outputs_of_each, predictions
from lipt.training.networks import on_device
from lipt.training.tensor_files import State, unpack
from tests.tiny import tiny_context
from tests.unit.training.helpers import blocks

CPU = torch.device("cpu")
MODELS = 3
STREAMED: dict[str, Any] = {
    "precision": "fp32",  # as the naive reference; `auto` is bf16 on some processors
    "data": {"resident_mb": 0},
    "score": {"model": "classic", "runs": MODELS},
    "select": {"algorithm": "grand"},
}
COMPRESSED: dict[str, Any] = {"top_classes": 2, "stored_precision": "bf16"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Prepared]:
    """A workspace with the models that score."""
    folder = tmp_path_factory.mktemp("scores")
    return folder, prepare(tiny_context(folder, STREAMED))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of images that are decoded together."""
    counts: list[int] = []
    decode = data_images.decode_samples

    def counted(samples: Any, positions: Any, *others: Any) -> Tensor:
        counts.append(len(positions))
        return decode(samples, positions, *others)

    monkeypatch.setattr(data_images, "decode_samples", counted)
    return counts


class Texts(Reporter):
    """Notes what is said of the progress."""

    def __init__(self) -> None:
        super().__init__(StringIO(), every_s=3600)
        self.texts: list[str] = []

    def advance(self, label: str, done: int, total: int, text: str = "") -> None:
        self.texts += [text] if text not in self.texts else []


@dataclass(frozen=True, kw_only=True)
class Scored:
    ctx: Context
    artifact: Artifact
    texts: list[str]

    @property
    def cost(self) -> Cost:
        return self.ctx.workspace.cost(self.artifact)

    def outputs(self, model: int) -> State:
        name = f"{self.artifact.ref}/outputs-{model}.safetensors"
        return unpack(self.ctx.workspace.store.read(name, kind="other"), origin=name)


def scored(trained: tuple[Path, Prepared], score: dict[str, Any] | None = None) -> Scored:
    """The scores of all candidates, made anew."""
    folder, prepared = trained
    reporter = Texts()
    ctx = replace(tiny_context(folder, override_of(score or {})), reporter=reporter)
    scoring = Scoring.of(ctx, prepared, None)
    assert scoring.blocks == 1
    ctx.workspace.store.delete(f"{scoring.stage(ctx, 0).ref}/{MARKER}")
    return Scored(ctx=ctx, artifact=scoring.stage(ctx, 0).make(), texts=reporter.texts)


def override_of(score: dict[str, Any]) -> dict[str, Any]:
    return STREAMED | {"score": STREAMED["score"] | score}


def naive(ctx: Context, prepared: Prepared, model: Artifact, *, top: int | None = None) -> State:
    """What one model gives for the candidates, by itself, batch after batch."""
    attempt = Attempt(ctx=ctx, ref="", label="naive")
    data = open_dataset(attempt, prepared.dataset)
    images = images_of(ctx, data, "train", split_positions(ctx, data)[1])
    network = on_device(new_model(ctx, len(data.manifest.classes), 0, read_weights(attempt, model)), CPU).eval()
    with torch.no_grad():
        found = [(labels_B, *logits_and_features(network, x)) for x, labels_B in forward_batches(images, 128, CPU)]
    labels_N, logits_NC, features_ND = (torch.cat(parts) for parts in zip(*found, strict=True))
    if top is None:
        return {"logits": logits_NC, "features": features_ND}
    top = TopLogits.compress(logits_NC, labels_N, top)
    return {**top.tensors(), "features": features_ND.bfloat16()}


def images_read(found: Scored) -> float:
    """The images that the stage has read, by the ledger."""
    attempt = Attempt(ctx=found.ctx, ref="", label="sizes")
    (dataset,) = [ref for ref in found.artifact.inputs if ref.startswith("ingest/")]
    index = open_dataset(attempt, found.ctx.workspace.get(dataset)).index("train")
    return found.cost.read["data"] / float(index.size.mean())


@pytest.mark.parametrize("score", [{}, COMPRESSED], ids=["whole", "compressed"])
def test_streamed_images_are_decoded_once_and_each_model_gives_what_it_gives_alone(
    trained: tuple[Path, Prepared], decoded: list[int], score: dict[str, Any]
) -> None:
    found = scored(trained, score)
    candidates, judged = 1294, 144  # the first model is judged on the validation images
    few = 6  # single images, whose size and FLOPs are looked at
    assert candidates + judged <= sum(decoded) <= candidates + judged + few
    assert candidates + judged <= images_read(found) * 1.01 <= (candidates + judged + few) * 1.02
    assert found.texts == [f"images, {MODELS} models"]
    _, prepared = trained
    network = new_model(found.ctx, 10, 0)
    assert found.cost.flops == (MODELS * candidates + judged) * flops_per_image(network, (3, 8, 8)).forward
    for number, model in enumerate(prepared.initial):
        expected = naive(found.ctx, prepared, model, top=score.get("top_classes"))
        outputs = found.outputs(number)
        assert outputs.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(outputs[name], tensor), (number, name)


def test_models_that_do_not_fit_into_memory_share_several_passes(
    trained: tuple[Path, Prepared], decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = scored(trained)
    parts = [sum(decoded)]
    network = new_model(together.ctx, 10, 0)
    each = sum(tensor.nbytes for tensor in network.state_dict().values()) + 1294 * (10 + 32) * 4
    for room, texts, passes in [
        (2.5, ["images, models 1 to 2 of 3", "images, model 3 of 3"], 2),
        (0.5, ["images, model 1 of 3", "images, model 2 of 3", "images, model 3 of 3"], 3),
    ]:
        decoded.clear()
        monkeypatch.setattr(forward, "_FREE", room * each)
        apart = scored(trained)
        assert apart.texts == texts
        assert sum(decoded) - parts[0] == pytest.approx((passes - 1) * 1294, abs=passes)
        assert apart.artifact == together.artifact
        assert apart.cost.flops == together.cost.flops


def test_images_in_memory_are_scored_by_one_model_after_the_other(
    trained: tuple[Path, Prepared], decoded: list[int]
) -> None:
    """Nothing is decoded twice there, and the outputs of one model are in memory at a time."""
    folder, _ = trained
    ctx = replace(tiny_context(folder, STREAMED | {"data": {"resident_mb": 100}}), reporter=(reporter := Texts()))
    scoring = Scoring.of(ctx, prepare(ctx), None)
    decoded.clear()
    reporter.texts.clear()
    scoring.stage(ctx, 0).make()
    assert sum(decoded) <= 1294 + 144 + 6
    assert reporter.texts == [f"images, model {number} of {MODELS}" for number in (1, 2, 3)]


class Careless(nn.Module):
    """A user's network that changes its input."""

    classifier_name = "classifier"

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(3 * 64, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(x.mul_(-2).add_(1).flatten(1))
        return logits


def test_a_network_that_changes_its_input_does_not_change_that_of_the_next() -> None:
    torch.manual_seed(0)
    models, images = [Careless() for _ in range(3)], blocks(n=50)
    together = outputs_of_each(models, images, device=CPU)
    for model, outputs in zip(models, together, strict=True):
        (alone,) = outputs_of_each([model], images, device=CPU)
        assert torch.equal(outputs.logits(slice(None)), alone.logits(slice(None)))
    alone_MN = torch.cat([predictions([model], images, device=CPU) for model in models])
    assert torch.equal(predictions(models, images, device=CPU), alone_MN)
