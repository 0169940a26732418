"""Race: train the network for a part of the steps on the subset of one contestant, and measure its validation accuracy.

Successive halving (Jamieson & Talwalkar, AISTATS 2016) over selections instead of hyper-parameters.
"""

from collections.abc import Sequence
from dataclasses import replace

from lipt.config import override
from lipt.data.images import image_shape
from lipt.errors import DivergedError, UsageError
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.algorithm import contestants, label_with_options
from lipt.runtime.budgets import round_steps, smallest_batch, steps_of
from lipt.runtime.dataset import images_of, open_dataset, split_positions
from lipt.runtime.network import WEIGHTS, new_model
from lipt.runtime.processes.child import Inputs, ProcessGroup, Summary
from lipt.runtime.processes.parent import run_together
from lipt.stages.inputs import check_index
from lipt.stages.train import fit, inputs_of, present, train_settings
from lipt.training.flops import flops_per_image
from lipt.training.forward import accuracies
from lipt.training.networks import on_device
from lipt.training.tensor_files import unpack

#: In the summary of a training that diverged: its message.
DIVERGED = "diverged"


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
    validation images, or why the training diverged. The weights stay in the workspace, but nothing reads them.

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
        length = {"steps": round_steps(share, steps_of(*sizes)), "reselect_every": 0}
        short = replace(ctx, config=override(ctx.config, {"train": length}))
        trained = run_together(short, attempt, _fit_or_diverge, inputs, batch_size=smallest_batch(*sizes))
        found = {key: trained[key] for key in ("steps", "images", DIVERGED) if key in trained}
        return found if DIVERGED in found else {"accuracy": _accuracy(ctx, attempt, dataset)} | found

    once = ctx.config.train.model_copy(update={"reselect_every": 0})  # as in `length`, so it is in no address
    never_again = replace(ctx, config=ctx.config.model_copy(update={"train": once}))
    chosen, label = train_settings(never_again, subset, share=share), f"race {name}, {100 * share:g} %"
    return Stage(ctx=ctx, name="race", settings=chosen, inputs=present(inputs), body=body, label=label)


def _fit_or_diverge(ctx: Context, attempt: Attempt, inputs: Inputs, processes: ProcessGroup) -> Summary:
    """`fit`; a training that diverges leaves no weights, and its summary says why. Its FLOPs are counted as if no block
    had been skipped (`train.raptr`)."""
    try:
        return fit(ctx, attempt, inputs, processes)
    except DivergedError as error:
        dataset = inputs["dataset"]
        assert dataset is not None
        if processes.ranks.rank == 0:
            data = open_dataset(attempt, dataset)
            shape = image_shape(images_of(ctx, data, "train", split_positions(ctx, data)[0][:1]))
            attempt.flops += error.images * flops_per_image(new_model(ctx, len(data.manifest.classes), 0), shape)[1]
        return {DIVERGED: error.message, "steps": error.steps, "images": error.images}


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
