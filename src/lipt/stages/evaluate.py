"""Evaluate: the test accuracy of a trained model. No other stage reads the test split."""

import torch

from lipt.data.images import image_shape
from lipt.runtime import Artifact, Attempt, Context, Stage
from lipt.runtime.dataset import open_dataset, open_test_images
from lipt.runtime.network import new_model, read_weights
from lipt.runtime.processes.child import Inputs, ProcessGroup, Summary
from lipt.runtime.processes.parent import run_alone
from lipt.training.flops import flops_per_image
from lipt.training.forward import predictions
from lipt.training.networks import on_device


def evaluate(ctx: Context, dataset: Artifact, model: Artifact) -> Stage:
    """Compute accuracy and confusion matrix (rows: true class) of the last epoch's model on the test split."""

    def body(attempt: Attempt) -> Summary:
        return run_alone(ctx, attempt, predict, {"dataset": dataset, "model": model})

    chosen = ctx.settings("model", seeded=False, view=ctx.view())
    return Stage(ctx=ctx, name="evaluate", settings=chosen, inputs=[dataset, model], body=body, label="evaluate")


def predict(ctx: Context, attempt: Attempt, inputs: Inputs, _processes: ProcessGroup) -> Summary:
    """The body of the stage."""
    dataset, model = inputs["dataset"], inputs["model"]
    assert dataset is not None
    assert model is not None
    data = open_dataset(attempt, dataset)
    images = open_test_images(ctx, data)
    num_classes = len(data.manifest.classes)
    network = on_device(new_model(ctx, num_classes, 0, read_weights(attempt, model)), ctx.device)
    (predicted_N,) = predictions([network], images, device=ctx.device, advance=attempt.shows("images"))
    attempt.flops += len(images) * flops_per_image(network, image_shape(images)).forward
    confusion = torch.bincount(images.labels_N * num_classes + predicted_N, minlength=num_classes**2).view(
        num_classes, num_classes
    )
    return {
        "accuracy": float(confusion.diagonal().sum()) / len(images),
        "images": len(images),
        "confusion": confusion.tolist(),
    }
