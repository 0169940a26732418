"""Training on a GPU: steps that are replayed, the augmentation, checkpoints, predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lipt.data.augmentation import StandardAugment, no_augmentation
from lipt.data.images import ResidentImages
from lipt.data.randaugment import RandAugment
from lipt.training.draws import InfoBatch
from lipt.training.dynamics import Dynamics
from lipt.training.forward import outputs_of, predictions
from lipt.training.loop import Trainer, train
from lipt.training.networks import build_model, on_device
from lipt.training.precision import native_precision
from lipt.training.recipe import Recipe
from lipt.training.soup import interpolate
from lipt.training.tensor_files import pack, state_of, unpack

GPU, CPU = torch.device("cuda"), torch.device("cpu")
#: 11 batches of 23 or 24 images: both sizes are recorded.
RECIPE = Recipe(epochs=2, batch_size=24, lr=0.02, schedule="cosine", augment=StandardAugment(padding=2, flip=True))


@pytest.fixture(autouse=True)
def full_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 has 10 bits: no comparison with a CPU would hold."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def noise(n: int = 256, classes: int = 4, side: int = 16) -> ResidentImages:
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 3, side, side), generator=rng, dtype=torch.uint8)
    return ResidentImages(images_NCHW=images, labels_N=torch.arange(n) % classes)


def trainer_of(
    recipe: Recipe = RECIPE, *, replayed: bool = True, device: torch.device = GPU, name: str = "resnet18"
) -> Trainer:
    width = {"vit_small": 16, "torchvision.resnet18": None}.get(name, 8)
    model = build_model(name, num_classes=4, seed=0, width=width)
    model.same_each_step = replayed  # type: ignore[assignment]
    return Trainer(model, recipe, seed=0, device=device)


def trained(trainer: Trainer, images: ResidentImages, **options: object) -> dict[str, Tensor]:
    train(trainer, lambda _: (images.on(trainer.device), None), **options)  # type: ignore[arg-type]
    return trainer.tensors()


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-3) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].float(), tensor.float(), rtol=tolerance, atol=tolerance, msg=name)


def recorded(trainer: Trainer) -> int:
    assert trainer.replayed is not None
    return len(trainer.replayed._recorded)


@pytest.mark.parametrize("name", ["resnet18", "wrn28_10", "vit_small", "torchvision.resnet18"])
def test_a_replayed_training_is_the_training(name: str) -> None:
    recipe = replace(RECIPE, epochs=1, steps=8, lr=1e-3)  # longer ones amplify rounding
    replayed, plain = trainer_of(recipe, name=name), trainer_of(recipe, name=name, replayed=False)
    assert_close(trained(replayed, noise()), trained(plain, noise()))
    assert recorded(replayed) == 2
    assert replayed.progress.accuracy == pytest.approx(plain.progress.accuracy, abs=0.02)
    assert replayed.progress.loss == pytest.approx(plain.progress.loss, rel=1e-3)


def test_a_replayed_step_uses_the_learning_rate_of_its_step() -> None:
    recipe = replace(RECIPE, epochs=1, lr=0.0)
    still = trainer_of(recipe)
    before = {name: tensor.detach().clone() for name, tensor in still.model.named_parameters()}
    trained(still, noise())
    assert recorded(still) == 2
    for name, parameter in still.model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_replayed_training_leaves_the_same_trajectory() -> None:
    recipe = replace(RECIPE, epochs=1, lr=1e-3)
    seen = []
    for replayed in (True, False):
        dynamics = Dynamics.empty(256, 1)
        trained(trainer_of(recipe, replayed=replayed), noise(), dynamics=dynamics)
        seen.append(dynamics.tensors())
    assert_close(*seen)
    assert not seen[0]["p"].isnan().any()


def test_replayed_steps_apply_the_weights_of_their_own_images() -> None:
    recipe, weights_N = replace(RECIPE, epochs=1, steps=8, lr=1e-3), torch.rand(256) + 0.1
    found = []
    for replayed in (True, False):
        trainer = trainer_of(recipe, replayed=replayed)
        train(trainer, lambda _: (noise().on(GPU), weights_N))
        found.append(trainer.tensors())
    assert_close(*found)


def test_replayed_steps_take_batches_of_any_size() -> None:
    """InfoBatch draws another number of images in each epoch."""
    recipe = replace(RECIPE, epochs=4, steps=30, lr=1e-3)
    found = []
    for replayed in (True, False):
        trainer = trainer_of(recipe, replayed=replayed)
        draws = InfoBatch(torch.full((256,), torch.nan), probability=0.5)
        found.append(trained(trainer, noise(), draws=draws))
        assert trainer.progress.steps == 30
    assert_close(*found, tolerance=0.02)


def test_a_replayed_training_resumes() -> None:
    recipe = replace(RECIPE, epochs=2, lr=1e-3)
    whole, first, second = (trainer_of(recipe) for _ in range(3))
    first.run_epoch(noise().on(GPU))
    second.restore(unpack(pack(first.tensors()), origin="the checkpoint"), first.progress)
    assert_close(trained(second, noise()), trained(whole, noise()), tolerance=5e-3)


def test_layers_that_draw_draw_anew_in_each_replay() -> None:
    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.classifier = nn.Dropout(0.5), nn.Linear(3 * 8 * 8, 4)
            self.same_each_step = True

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.classifier(self.drop(x.flatten(1)))
            return logits

    recipe = replace(RECIPE, epochs=3, batch_size=16, lr=0.0, augment=no_augmentation)
    trainer = Trainer(Drops(), recipe, seed=0, device=GPU)
    trained(trainer, noise(16, side=8))  # one batch per epoch; the third is a replay
    assert recorded(trainer) == 1
    assert len(set(trainer.progress.loss)) == 3


def test_a_network_of_a_user_is_not_replayed() -> None:
    assert trainer_of(replayed=False).replayed is None
    assert trainer_of(device=CPU).replayed is None


@pytest.mark.parametrize(
    "augment",
    [StandardAugment(padding=4, flip=True), *[RandAugment(num_ops=2, magnitude=m) for m in (0, 9, 30)]],
    ids=str,
)
def test_a_view_does_not_depend_on_the_device(augment: Callable[..., Tensor]) -> None:
    images, rows = noise(512, side=32).images_NCHW, torch.arange(512)
    on_gpu, on_cpu = augment(images.to(GPU), rows, 7).cpu(), augment(images, rows, 7)
    differs = (on_gpu != on_cpu).flatten(1).float().mean(1)
    # A pixel that a rotation reads half-way between two can round either way; and a grey value, after a mean.
    assert float((differs > 0.02).float().mean()) == 0, differs.max()
    assert (on_gpu.int() - on_cpu.int()).abs().float().mean() < 0.5


def test_predictions_and_outputs_are_those_of_the_cpu() -> None:
    images = noise(300)
    models = {
        device: on_device(build_model("resnet18", num_classes=4, seed=1, width=8), device) for device in (GPU, CPU)
    }
    found = {device: outputs_of(model, images, device=device) for device, model in models.items()}
    torch.testing.assert_close(found[GPU].logits_NC, found[CPU].logits_NC, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[GPU].features_ND, found[CPU].features_ND, rtol=1e-3, atol=1e-3)
    classes = {device: predictions([model], images, device=device) for device, model in models.items()}
    assert (classes[GPU] != classes[CPU]).float().mean() < 0.02


def test_weights_of_a_gpu_are_averaged() -> None:
    states = [state_of(on_device(build_model("resnet18", num_classes=4, seed=seed, width=8), GPU)) for seed in (0, 1)]
    middle = interpolate(*states, 0.5)
    for name, tensor in middle.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor.cpu(), (states[0][name].cpu() + states[1][name].cpu()) / 2)


def test_bfloat16_is_native_here() -> None:
    expected = "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "fp32"
    assert native_precision(GPU) == expected


def test_images_too_many_for_the_gpu_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    images, seen = noise(64), []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (images.images_NCHW.nbytes, 1 << 40))
    stays = images.on(GPU)
    assert stays.images_NCHW.device.type == "cpu"
    trainer = trainer_of(replace(RECIPE, epochs=1, lr=1e-3))
    trainer.advance = lambda done, _total: seen.append(done)
    trainer.run_epoch(stays)
    assert seen[-1] == 64
