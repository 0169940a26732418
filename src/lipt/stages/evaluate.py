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

#: With more classes a confusion matrix is unreadable, grows with their square, and exceeds what an engine stores.
MAX_CONFUSION_CLASSES = 50


def evaluate(ctx: Context, dataset: Artifact, model: Artifact) -> Stage:
    """Compute the accuracy of the last epoch's model on the test split, in all and in each class, and if there are at
    most `MAX_CONFUSION_CLASSES` the confusion matrix (rows: true class)."""

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
    labels_N, is_hit_N = images.labels_N, images.labels_N == predicted_N
    summary = {
        "accuracy": int(is_hit_N.sum()) / len(images),
        "images": len(images),
        "images_per_class": torch.bincount(labels_N, minlength=num_classes).tolist(),
        "hits_per_class": torch.bincount(labels_N[is_hit_N], minlength=num_classes).tolist(),
    }
    if num_classes <= MAX_CONFUSION_CLASSES:
        pairs = torch.bincount(labels_N * num_classes + predicted_N, minlength=num_classes**2)
        summary["confusion"] = pairs.view(num_classes, num_classes).tolist()
    return summary
