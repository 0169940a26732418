"""Is RaPTr worth it? Against fewer steps, and against stochastic depth, at equal FLOPs.

    python -m benchmarks.raptr CONFIG RESULTS.jsonl [SETTING=VALUE ...]
    python -m benchmarks.raptr --table RESULTS.jsonl

Each line of RESULTS is one training on 5,000 images, which are others for each seed. `train.raptr` of CONFIG is the
schedule, `train.steps` the number of steps (2,000 if it is not set). A repeated call runs what is missing, then prints
the paired differences from RaPTr with their 95 % interval. Accuracies are those on the test split, with recalibrated
BatchNorm statistics and with those of the training.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from benchmarks.journal import Journal
from benchmarks.tables import paired
from lipt.config import load_config
from lipt.data.images import ResidentImages, image_shape
from lipt.runtime import Context
from lipt.runtime.attempt import Attempt
from lipt.runtime.dataset import images_of, open_dataset, open_test_images
from lipt.runtime.network import new_model, standard_augment
from lipt.stages.ingest import ingest
from lipt.training.flops import flops_per_image
from lipt.training.forward import accuracies
from lipt.training.loop import Trainer, train
from lipt.training.raptr import RaptrSchedule, block_flops, recalibrate, saved_flops
from lipt.training.recipe import Recipe

_SEEDS = range(5)
_IMAGES, _EPOCH_STEPS = 5000, 10
"""Images kept; steps of what the training loop calls an epoch: no image repeats before all were used."""
_OTHER = {"inverse": "inverse_sqrt", "inverse_sqrt": "inverse"}


def main(config_file: str, results: Path, overrides: list[str]) -> None:
    journal = journal_of(results)
    ctx = Context.of(load_config(config_file, overrides))
    attempt = Attempt(ctx=ctx, ref="raptr", label="raptr")
    data = open_dataset(attempt, ingest(ctx).make())
    test = open_test_images(ctx, data)
    assert isinstance(test, ResidentImages)
    for seed in _SEEDS:
        images = images_of(ctx, data, "train", np.arange(seed * _IMAGES, (seed + 1) * _IMAGES))
        assert isinstance(images, ResidentImages)
        trained, model = variants(ctx, image_shape(images)), ctx.config.model.name
        for cell in journal.missing({"model": model, "seed": seed, "row": name} for name in trained):
            journal.write({**cell, **measured(ctx, images, test, seed, *trained[cell["row"]])})
    table(journal)


def variants(ctx: Context, shape: tuple[int, int, int]) -> dict[str, tuple[RaptrSchedule | None, float]]:
    """Name -> (subnetworks, share of the steps). All but `full` take equal FLOPs on average."""
    settings = ctx.config.train.raptr
    assert settings is not None, "set train.raptr"
    raptr = RaptrSchedule(**settings.model_dump())
    keep = fmean(raptr.keep)
    model = new_model(ctx, 10, 0)
    blocks = Trainer(model, recipe(ctx, raptr, 1), seed=0, device=ctx.device).subnetworks.blocks
    saved = sum(block_flops(model, blocks, shape).values()) * (1 - keep) / flops_per_image(model, shape).training
    return {
        "raptr": (raptr, 1),
        "fewer steps": (None, 1 - saved),
        "constant p": (replace(raptr, keep=(keep,)), 1),
        "full": (None, 1),
        "raptr, other rescaling": (replace(raptr, rescale=_OTHER[raptr.rescale]), 1),  # type: ignore[arg-type]
    }


def recipe(ctx: Context, raptr: RaptrSchedule | None, share: float) -> Recipe:
    settings = ctx.config.train
    return Recipe(
        epochs=round(share * (settings.steps or 2000) / _EPOCH_STEPS),
        batch_size=settings.batch_size,
        lr=settings.lr,
        schedule="cosine",
        augment=standard_augment(ctx),
        epoch_size=_EPOCH_STEPS * settings.batch_size,
        precision=ctx.precision,
        raptr=raptr,
    )


def measured(
    ctx: Context, images: ResidentImages, test: ResidentImages, seed: int, raptr: RaptrSchedule | None, share: float
) -> dict[str, Any]:
    """One training: accuracies, FLOPs counted from the executed blocks, seconds."""
    model = new_model(ctx, 10, seed)
    trainer = Trainer(model, recipe(ctx, raptr, share), seed=seed, device=ctx.device)
    started, cpu = time.monotonic(), time.process_time()
    train(trainer, lambda _trainer: (images, None))
    wall, cpu = time.monotonic() - started, time.process_time() - cpu
    (as_trained,) = accuracies([model], test, device=ctx.device)
    recalibrate(model, images, augment=trainer.recipe.augment, seed=seed, device=ctx.device, precision=ctx.precision)
    (recalibrated,) = accuracies([model], test, device=ctx.device)
    whole = trainer.progress.images * flops_per_image(model, image_shape(images)).training
    return {
        "steps": trainer.recipe.epochs * _EPOCH_STEPS,
        "recalibrated": recalibrated,
        "as_trained": as_trained,
        "loss": trainer.progress.loss[-1],
        "flops": whole - saved_flops(model, trainer.progress.skipped, image_shape(images)),
        "cpu_s": round(cpu, 1),
        "wall_s": round(wall, 1),
    }


def table(journal: Journal) -> None:
    """Print the rows, and RaPTr minus each of them."""
    rows = journal.lines()
    names = dict.fromkeys(row["row"] for row in rows)
    for name in names:
        own = {row["seed"]: row for row in rows if row["row"] == name}
        ours = {row["seed"]: row for row in rows if row["row"] == "raptr"}
        seeds = sorted(own.keys() & ours.keys())
        text = f"{name:23} n {len(seeds)}"
        for measure in ("recalibrated", "as_trained"):
            text += f"   {measure} {100 * fmean(own[seed][measure] for seed in seeds):.2f}"
            first, other = ({seed: 100 * row[measure] for seed, row in each.items()} for each in (ours, own))
            if len(seeds) == len(_SEEDS) and (ahead := paired(first, other)):
                text += f" (raptr {ahead[0]:+.2f} +- {ahead[1]:.2f})"
        flops, cpu, wall = (fmean(own[seed][key] for seed in seeds) for key in ("flops", "cpu_s", "wall_s"))
        print(f"{text}   {flops / 1e12:.3f} TFLOP  {cpu:.0f} CPU s  {wall:.0f} s")


def journal_of(results: Path) -> Journal:
    return Journal(path=results, keys=("seed", "row"))


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(journal_of(Path(sys.argv[2])))
    else:
        torch.set_num_threads(1)
        main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
