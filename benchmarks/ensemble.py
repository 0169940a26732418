"""Is the swarm a good ensemble for scoring? `python benchmarks/ensemble.py CONFIG [--set KEY=VALUE ...]`.

DUAL and EL2N want the mean and the spread of predictions over several models. Their authors take the epochs of one
training run; a swarm gives n jigsaws for less than two epochs. Here both score the same candidates, and a fresh network
is trained on each choice:

- swarm: the jigsaws of the configuration, cost = epochs of theta_* + local training;
- epochs, equal cost: one model, evaluated after each of as many epochs as that costs (at least two);
- epochs, ten times the cost: the same model, ten times as far.

Prints a Markdown table as it goes, one line per score, seed and budget.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from lipt.config import load_config, override
from lipt.flow.dag import prepare, train_jigsaws
from lipt.rng import derive
from lipt.runtime.attempt import Attempt
from lipt.runtime.context import Context
from lipt.runtime.dataset import open_dataset, open_test_images, split_positions, training_images
from lipt.runtime.network import new_model, read_weights, standard_augment
from lipt.selection import Candidates, Outputs, select
from lipt.stages.pretrain import DELTA
from lipt.training.forward import accuracies, outputs_of
from lipt.training.loop import Trainer, train
from lipt.training.networks import on_device
from lipt.training.recipe import Recipe
from lipt.training.tensor_files import decode_delta

BUDGETS = {0.01: 100, 0.05: 50}  # fraction: epochs
SCORES = {"EL2N, ccs": ("ccs", {"score": "el2n"}), "DUAL": ("dual", {})}


def compare(ctx: Context) -> None:
    prepared = prepare(ctx)
    jigsaws, _ = train_jigsaws(ctx, prepared, range(ctx.config.dispatch.jigsaws))
    attempt = Attempt(ctx=ctx, ref="ensemble/0", label="ensemble")
    dataset = open_dataset(attempt, prepared.dataset)
    classes = len(dataset.manifest.classes)
    _, positions = split_positions(ctx, dataset)
    images, test = training_images(ctx, dataset, positions), open_test_images(ctx, dataset)
    labels_N = images.labels_N

    star = read_weights(attempt, prepared.initial[0])
    swarm = []
    for artifact in jigsaws.values():
        state = decode_delta(attempt.read(artifact, DELTA, kind="model"), star, origin=artifact.ref)
        swarm.append(outputs_of(on_device(new_model(ctx, classes, 0, state), ctx.device), images, device=ctx.device))
    config, shards = ctx.config, ctx.config.dispatch
    local = shards.jigsaws * shards.batches * shards.batch_size * config.pretrain.passes
    cost = config.initialise.epochs + local / len(images)

    def recipe(epochs: int, lr: float, batch_size: int) -> Recipe:
        return Recipe(epochs=epochs, batch_size=batch_size, lr=lr, schedule="cosine", augment=standard_augment(ctx))

    equal, far = max(2, round(cost)), round(10 * cost)

    def epochs(count: int) -> list[Outputs]:
        trainer = Trainer(
            new_model(ctx, classes, ctx.seed("ensemble")),
            replace(recipe(count, config.initialise.lr, config.initialise.batch_size), schedule="constant"),
            seed=ctx.seed("ensemble"),
            device=ctx.device,
        )
        seen: list[Outputs] = []

        def remember(each: Trainer) -> None:
            seen.append(outputs_of(each.model, images, device=ctx.device))

        train(trainer, lambda _: (images, None), after_epoch=remember)
        return seen

    path = epochs(far)
    sources = {
        f"swarm of {len(swarm)}": (swarm, cost),
        f"{equal} epochs of one model": (path[:equal], float(equal)),
        f"{far} epochs of one model": (path, float(far)),
    }
    for fraction, length in BUDGETS.items():
        chosen = {
            "class-balanced random": (
                select(
                    "stratified",
                    Candidates(labels_N=labels_N, num_classes=classes),
                    fraction=fraction,
                    seed=config.seed,
                ),
                0.0,
            )
        }
        for source, (outputs, price) in sources.items():
            candidates = Candidates(labels_N=labels_N, num_classes=classes, outputs=outputs)
            for name, (algorithm, options) in SCORES.items():
                picked = select(algorithm, candidates, fraction=fraction, seed=config.seed, **options)
                chosen[f"{name}, {source}"] = picked, price
        for name, (picked, price) in chosen.items():
            model = new_model(ctx, classes, derive(config.seed, "main"))
            trainer = Trainer(
                model, recipe(length, config.train.lr, config.train.batch_size), seed=config.seed, device=ctx.device
            )
            subset = images.subset(picked.indices_K)
            train(trainer, lambda _, subset=subset: (subset, None))
            share = accuracies([model], test, device=ctx.device)[0]
            print(f"| {fraction:.0%} | {config.seed} | {name} | {price:.1f} | {share:.1%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.set)
    print("| kept | seed | score | cost, epochs | accuracy |\n|---|---|---|---|---|")
    for seed in arguments.seeds:
        compare(Context.of(override(config, {"seed": seed})))


if __name__ == "__main__":
    main()
