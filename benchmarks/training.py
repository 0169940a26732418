"""Images per second of training, against the loops that one would write instead.

    python -m benchmarks.training [--widths 16 64] [--rounds 5] [--threads 1] [--profile]
    python -m benchmarks.training --device cuda [--compile] [--launched]
    python -m benchmarks.training --stream CONFIG      # an ingested data set, from memory and from its chunks

ResNet-18 on images of 32 x 32 with random crop and flip. The rows of a table take turns within each round, so that a
busy machine slows all of them; a figure is the median over the rounds. On a CPU the seconds are CPU seconds, because
the machine may be shared.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lipt.config import Config, load_config, override
from lipt.data.augmentation import StandardAugment, no_augmentation, normalise
from lipt.data.images import ResidentImages
from lipt.data.randaugment import RandAugment
from lipt.runtime import Context, Stage
from lipt.runtime.attempt import Attempt
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import new_model
from lipt.stages.ingest import ingest
from lipt.training.loop import Trainer
from lipt.training.networks import build_model, on_device
from lipt.training.precision import Precision, autocast, native_precision
from lipt.training.recipe import Recipe

CPU = torch.device("cpu")
BATCH = 128
#: Batches of a round: a GPU works while Python prepares the next ones.
BATCHES = {"cpu": 1, "cuda": 40}
STANDARD = StandardAugment(padding=4, flip=True)
Step = Callable[[], None]


class AsImages(Dataset[tuple[Tensor, int]]):
    """What torchvision's CIFAR10 does: a PIL image for each sample, and the transforms one would copy."""

    def __init__(self, images: ResidentImages) -> None:
        from torchvision import transforms

        self.pixels, self.labels = images.images_NCHW.permute(0, 2, 3, 1).numpy(), images.labels_N.tolist()
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


def plain(images: ResidentImages, width: int, device: torch.device, *, tuned: bool) -> Step:
    """The usual loop; `tuned`: with channels last and bfloat16, as a careful reader of torch's guide writes it."""
    model = build_model("resnet18", num_classes=10, seed=0, width=width).to(device)
    if tuned:
        model = on_device(model, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True)
    workers = 0 if device.type == "cpu" else min(8, os.cpu_count() or 1)
    loader = DataLoader(AsImages(images), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)

    def forever() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from loader

    batches = forever()

    def step() -> None:
        for _ in range(BATCHES[device.type]):
            x, y = next(batches)
            if tuned:
                x = x.contiguous(memory_format=torch.channels_last)
            learn(model, optimizer, x.to(device), y.to(device), "bf16" if tuned else "fp32")

    return step


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, precision: Precision) -> None:
    """One step, as in torch's tutorials; its loss is shown."""
    with autocast(x.device, precision):
        loss = F.cross_entropy(model(x).float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()


def fast_loop(images: ResidentImages, width: int, device: torch.device, mode: str | None) -> Step:
    """The loop of one who knows GPUs: images and augmentation on the GPU, fused SGD, `torch.compile` in this mode."""
    model: Any = on_device(build_model("resnet18", num_classes=10, seed=0, width=width), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True)
    network = torch.compile(model, mode=mode) if mode else model
    pixels, labels = images.images_NCHW.to(device), images.labels_N.to(device)

    def step() -> None:
        for _ in range(BATCHES[device.type]):
            rows = torch.randint(len(labels), (BATCH,), device=device)
            x = normalise(_cropped(pixels[rows]))
            with autocast(device, "bf16"):
                loss = F.cross_entropy(network(x).float(), labels[rows])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def _cropped(images: Tensor) -> Tensor:
    """One random crop for each image, and flips."""
    x = F.pad(images, [4] * 4).unfold(2, 32, 1).unfold(3, 32, 1)
    top, left = torch.randint(9, (2, len(images)), device=images.device)
    x = x[torch.arange(len(images), device=images.device), :, top, left]
    flips = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(flips, x.flip(3), x)


def engine(
    images: ResidentImages,
    width: int,
    precision: Precision,
    device: torch.device,
    augment: object = STANDARD,
    *,
    launched: bool = False,
) -> Step:
    """An epoch of one round's batches; `launched`: Python launches each kernel."""
    model = build_model("resnet18", num_classes=10, seed=0, width=width)
    recipe = Recipe(
        epochs=10**6,
        batch_size=BATCH,
        lr=0.01,
        schedule="constant",
        augment=augment,  # type: ignore[arg-type]
        epoch_size=BATCH * BATCHES[device.type],
        precision=precision,
    )
    trainer, own = Trainer(model, recipe, seed=0, device=device), images.on(device)
    if launched:
        trainer.replayed = None
    return lambda: trainer.run_epoch(own)


def network(images: ResidentImages, width: int, precision: Precision, device: torch.device) -> Step:
    """Forward and backward of the network on one ready batch: what no loop that launches each kernel can beat."""
    model = on_device(build_model("resnet18", num_classes=10, seed=0, width=width), device)
    x, y = normalise(images.images_NCHW[:BATCH].to(device)), images.labels_N[:BATCH].to(device)

    def step() -> None:
        for _ in range(BATCHES[device.type]):
            with autocast(device, precision):
                loss = F.cross_entropy(model(x).float(), y)
            loss.backward()
            model.zero_grad()

    return step


def measured(rows: dict[str, Step], rounds: int, device: torch.device) -> dict[str, float]:
    """Images per second of each row."""
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for step in rows.values():
        step()
    for _ in range(rounds):
        for name, step in rows.items():
            seconds[name].append(_taken(step, device))
    return {name: BATCH * BATCHES[device.type] / median(taken) for name, taken in seconds.items()}


def _taken(step: Step, device: torch.device) -> float:
    if device.type == "cpu":
        started = time.process_time()
        step()
        return time.process_time() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--launched", action="store_true", help="on a GPU: also without replays")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile; takes minutes")
    parser.add_argument("--profile", action="store_true", help="show where the engine's time goes")
    parser.add_argument("--stream", metavar="CONFIG")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE", help="of CONFIG")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.stream:
        streamed(load_config(arguments.stream, arguments.set), arguments.rounds)
        return
    device = torch.device(arguments.device)
    rng = np.random.default_rng(0)
    count = 64 * BATCH
    images = ResidentImages(
        images_NCHW=torch.from_numpy(rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)),
        labels_N=torch.from_numpy(rng.integers(0, 10, count)),
    )
    native = native_precision(device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{arguments.threads} threads"
    print(f"torch {torch.__version__}, {where}, native precision {native}, load {os.getloadavg()[0]:.1f}")
    for width in arguments.widths:
        rows = {
            "plain loop": plain(images, width, device, tuned=False),
            "plain loop, channels last, bf16": plain(images, width, device, tuned=True),
            "engine, fp32": engine(images, width, "fp32", device),
            f"engine, auto ({native})": engine(images, width, native, device),
            "the same without augmentation": engine(images, width, native, device, no_augmentation),
            "the same with RandAugment": engine(images, width, native, device, RandAugment(num_ops=1, magnitude=9)),
            f"network alone, {native}": network(images, width, native, device),
        }
        if device.type == "cuda":
            rows["all on the GPU"] = fast_loop(images, width, device, None)
            if arguments.launched:
                rows["engine, each kernel launched"] = engine(images, width, native, device, launched=True)
            if arguments.compile:
                rows["all on the GPU, compiled"] = fast_loop(images, width, device, "default")
                rows["all on the GPU, compiled to graphs"] = fast_loop(images, width, device, "reduce-overhead")
        found = measured(rows, arguments.rounds, device)
        for name, rate in found.items():
            print(f"width {width:3}  {name:34} {rate:8.0f} img/s   {rate / found['plain loop']:.2f}", flush=True)
        if arguments.profile:
            show_profile(engine(images, width, native, device))


def streamed(config: Config, rounds: int) -> None:
    """An epoch of 8,192 images from memory and from the chunks, decoding included; and the decoding alone."""
    ctx = Context.of(config)
    dataset = ingest(ctx).make()

    def open_all(attempt: Attempt) -> dict[str, Any]:
        data = open_dataset(attempt, dataset)
        positions = split_positions(ctx, data)[1][:8192]
        sets = {
            name: images_of(Context.of(override(config, {"data": {"resident_mb": limit}})), data, "train", positions)
            for name, limit in (("from memory", 4096), ("from chunks", 0))
        }
        trainers = {}
        for name in sets:
            model = new_model(ctx, len(data.manifest.classes), 0)
            recipe = Recipe(
                epochs=10**6, batch_size=BATCH, lr=0.01, schedule="constant", augment=STANDARD, precision=ctx.precision
            )
            trainers[name] = Trainer(model, recipe, seed=0, device=CPU)
        seconds: dict[str, list[float]] = {name: [] for name in (*sets, "decoding alone")}
        for _ in range(rounds):
            for name, trainer in trainers.items():
                started = time.process_time()
                trainer.run_epoch(sets[name])
                seconds[name].append(time.process_time() - started)
            started = time.process_time()
            rows = torch.arange(len(positions))
            for _batch in sets["from chunks"].batches(rows, [BATCH] * (len(rows) // BATCH)):
                pass
            seconds["decoding alone"].append(time.process_time() - started)
        for name, taken in seconds.items():
            print(f"{name:16} {len(positions) / median(taken):8.0f} img/CPU s")
        return {}

    Stage(ctx=ctx, name="benchmark", settings={"now": time.time()}, inputs=[dataset], body=open_all, label="").make()


def show_profile(step: Step) -> None:
    from torch.profiler import ProfilerActivity, profile

    step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        step()
    total = sum(event.self_cpu_time_total for event in found.key_averages())
    for event in sorted(found.key_averages(), key=lambda event: -event.self_cpu_time_total)[:10]:
        print(f"    {event.key:40} {100 * event.self_cpu_time_total / total:5.1f} %")


if __name__ == "__main__":
    main()
