"""Race: train the network for a part of the steps on the subset of one contestant, and measure its validation accuracy.

Successive halving (Jamieson & Talwalkar, AISTATS 2016) over selections instead of hyper-parameters.
"""

from collections.abc import Sequence
from dataclasses import replace

from lipt.config import override
from lipt.data.images import image_shape
from lipt.errors import UsageError
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.algorithm import contestants, label_with_options
from lipt.runtime.budgets import smallest_batch, steps_of
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import WEIGHTS, new_model
from lipt.runtime.processes.child import Summary
from lipt.runtime.processes.parent import run_together
from lipt.stages.inputs import check_index
from lipt.stages.train import fit, inputs_of, present, train_settings
from lipt.training.flops import flops_per_image
from lipt.training.forward import accuracies
from lipt.training.networks import on_device
from lipt.training.tensor_files import unpack


def race(
    ctx: Context,
    dataset: Artifact,
    subset: Artifact,
    start: Artifact | None = None,
    recorded: Sequence[Artifact] = (),
    *,
    index: int = 0,
) -> Stage:
    """Train on the subset of contestant `index` modulo the number of contestants, in round `index` divided by it.

    The learning rate goes through its whole schedule in the steps of the round. The summary holds the accuracy on the
    validation images. The weights stay in the workspace, but nothing reads them.

    Args:
        start: the model whose weights the training starts from, as the main training does; None: random weights.
        recorded: the models whose trajectories give the first losses, as those of the main training.
    """
    settings, field = ctx.config.select.race, contestants(ctx.config)
    if settings is None:
        raise UsageError("the configuration has no race", "set select.race")
    check_index(index, len(settings.rounds) * len(field), "training of the race")
    number, contestant = divmod(index, len(field))
    share, name = settings.rounds[number], label_with_options(field[contestant])
    inputs = inputs_of(dataset, subset, start, recorded)

    def body(attempt: Attempt) -> Summary:
        data = open_dataset(attempt, dataset)
        _, candidates = split_positions(ctx, data)
        sizes = ctx.config.train, len(candidates), int(subset.summary["count"])
        whole = steps_of(*sizes)
        length = {"steps": max(1, round(share * whole)), "reselect_every": 0}
        short = replace(ctx, config=override(ctx.config, {"train": length}))
        trained = run_together(short, attempt, fit, inputs, batch_size=smallest_batch(*sizes))
        return {"accuracy": _accuracy(ctx, attempt, dataset), "steps": trained["steps"], "images": trained["images"]}

    chosen, label = train_settings(ctx, subset, share=share), f"race {name}, {100 * share:g} %"
    return Stage(ctx=ctx, name="race", settings=chosen, inputs=present(inputs), body=body, label=label)


def _accuracy(ctx: Context, attempt: Attempt, dataset: Artifact) -> float:
    """Accuracy on the validation images of the network that the attempt has trained."""
    data = open_dataset(attempt, dataset)
    validation, _ = split_positions(ctx, data)
    key = f"{attempt.ref}/{WEIGHTS}"
    state = unpack(attempt.store.read(key, kind="model"), origin=key)
    model = on_device(new_model(ctx, len(data.manifest.classes), 0, state), ctx.device)
    images = images_of(ctx, data, "train", validation)
    attempt.flops += len(images) * flops_per_image(model, image_shape(images)).forward
    return accuracies([model], images, device=ctx.device, precision=ctx.precision)[0]
