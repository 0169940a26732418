"""Decoding and training on JPEGs of ImageNet's size, against ImageFolder + DataLoader, interleaved in one run.

    OMP_NUM_THREADS=1 python benchmarks/photographs.py FOLDER [--steps 4]

FOLDER has train/CLASS/*.jpg and test/CLASS/*.jpg. All rates are per CPU second, of all processes, so that other work on
the machine disturbs them little. A DataLoader delivers normalised float32 batches; LiPT delivers uint8 ones, which the
training loop normalises on its device.
"""

import argparse
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder

from lipt.adapters.store import DatasetFiles, open_store
from lipt.config import parse_config
from lipt.data.augmentation import no_augmentation, normalise
from lipt.data.chunks import Dataset
from lipt.data.cropping import Crops
from lipt.data.images import StreamedImages, stream
from lipt.progress import Reporter
from lipt.runtime.chunk_store import write_chunks
from lipt.runtime.dataset import open_apart
from lipt.training.batches import batch_sizes
from lipt.training.loop import Trainer
from lipt.training.networks import build_model
from lipt.training.recipe import Recipe

SIDE, BATCH, CPU = 224, 64, torch.device("cpu")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def cpu_s() -> float:
    """CPU seconds of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def rates(work: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Images per CPU second of each round; `work` gives the number of images. One round runs each once."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            started = cpu_s()
            count = run()
            found[name].append(count / (cpu_s() - started))
    return found


def show(title: str, found: dict[str, list[float]], base: str) -> None:
    print(f"\n{title}")
    for name, each in found.items():
        ratios = [rate / other for rate, other in zip(each, found[base], strict=True)]
        spread = f"{min(ratios):.2f} .. {max(ratios):.2f}"
        print(f"  {name:<36} {statistics.median(each):8.1f} img/s   x {statistics.median(ratios):.2f} ({spread})")


def store(folder: Path, workspace: str) -> StreamedImages:
    """The training images as LiPT streams them."""
    data = parse_config({"data": {"source": str(folder)}}).data
    place = open_store(workspace)
    write_chunks(data, place, Reporter(), "ingest", open_apart(data, place))
    dataset = Dataset(DatasetFiles(place).read)
    count = dataset.manifest.splits["train"].count
    return stream(dataset, "train", np.arange(count), image_size=SIDE, crops=Crops(side=SIDE, flip=True))


def ours(images: StreamedImages, seed: int, finish: Callable[[Tensor], Tensor]) -> int:
    rows_K = images.epoch_order(torch.randperm(len(images)), seed)
    return sum(len(finish(x)) for x in images.batches(rows_K, batch_sizes(len(rows_K), BATCH), seed))


def plain(images: Subset[object], workers: int) -> int:
    return sum(len(x) for x, _ in DataLoader(images, batch_size=BATCH, shuffle=True, num_workers=workers))


def train_ours(trainer: Trainer, images: StreamedImages) -> int:
    trainer.run_epoch(images)
    return len(images)


def train_plain(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batches: Callable[[], Iterator[list[Tensor]]]
) -> int:
    done = 0
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        done += len(x)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=1000, help="of one round")
    parser.add_argument("--steps", type=int, default=4, help="training steps of 16 images; 0: only decode")
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    folder = ImageFolder(str(options.folder / "train"), transforms.Compose([*steps, transforms.Normalize(MEAN, STD)]))
    with tempfile.TemporaryDirectory() as workspace:
        whole = store(options.folder, workspace)
        images = whole.subset(torch.arange(min(options.images, len(whole))))  # side by side, as in a whole epoch
        rows = {path: row for row, (path, _) in enumerate(folder.samples)}
        names = whole.dataset.names("train").to_pylist()[: len(images)]
        some = Subset(folder, [rows[str(options.folder / name)] for name in names])
        print(f"{len(images)} images of {len(folder.classes)} classes")
        loops: dict[str, Callable[[], int]] = {
            "DataLoader": lambda: plain(some, 0),
            "DataLoader, 2 workers": lambda: plain(some, 2),
            "LiPT, uint8 for the device": lambda: ours(images, 1, lambda batch: batch),
            "LiPT, normalised on the CPU": lambda: ours(images, 1, normalise),
        }
        show("random crops in batches", rates(loops, options.rounds), "DataLoader")
        count = 16 * options.steps
        few = Subset(folder, some.indices[:count])
        for name in ("torchvision.resnet18", "torchvision.wide_resnet50_2") if count else ():
            model, other = (build_model(name, num_classes=len(folder.classes), seed=0) for _ in range(2))
            recipe = Recipe(
                epochs=100,
                batch_size=16,
                lr=0.01,
                schedule="constant",
                augment=no_augmentation,
            )
            trainer = Trainer(model, recipe, seed=0, device=CPU)
            optimizer = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
            subset, loader = images.subset(torch.arange(count)), DataLoader(few, batch_size=16, shuffle=True)
            training: dict[str, Callable[[], int]] = {
                "ImageFolder + DataLoader": lambda: train_plain(other.train(), optimizer, lambda: iter(loader)),  # noqa: B023
                "LiPT": lambda: train_ours(trainer, subset),  # noqa: B023
            }
            show(f"training, {name}, float32", rates(training, 2), "ImageFolder + DataLoader")


if __name__ == "__main__":
    main()
