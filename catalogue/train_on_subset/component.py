"""One pod that selects a part of its images and trains an image classifier on it."""

from kfp import dsl


@dsl.component(base_image="python:3.13", packages_to_install=["lipt[run]==0.1.0"])
def train_on_subset(
    images: dsl.Input[dsl.Dataset],
    subset: dsl.Output[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    fraction: float = 0.05,
    algorithm: str = "auto",
    epochs: int = 200,
    config: str = "",
):
    """Select a part of the images, train on it, and compare with a random part of the same size.

    Everything runs in this one pod, without worker pods and without an object store.

    Args:
        images: Folder with train/CLASS/*.jpg (or .png), and test/CLASS/*.jpg if there is a test split.
        subset: Names of the selected images, one per line.
        model: Weights of the network that was trained on them, a safetensors file.
        metrics: Test accuracy in percent with the selected images and with random ones; number of selected images.
        report: The whole report, one page.
        fraction: Share of the training images to keep, above 0 and at most 1.
        algorithm: Selection algorithm: auto, random, stratified, grand, el2n, glister, gradmatch, ccs and others.
        epochs: Epochs of the training on the subset.
        config: All other settings as YAML, such as {model: {width: 16}}.
    """
    import shutil
    import tempfile
    from pathlib import Path

    import lipt
    import yaml
    from lipt.report.html_page import render

    changes = {
        "workspace": tempfile.mkdtemp(),
        "data": {"source": images.path},
        "select": {"fraction": fraction, "algorithm": algorithm},
        "train": {"epochs": epochs},
    }
    run = lipt.run(yaml.safe_load(config) or {}, changes)
    names = run.subset.files()
    Path(subset.path).write_text("".join(f"{name}\n" for name in names))
    shutil.copyfile(run.model, model.path)
    Path(report.path).write_text(render(run.report, framed=True))
    metrics.log_metric("images", len(names))
    for row in run.report.rows:
        name = "selected" if row.role == "selected" else row.name.replace("-", "_")
        metrics.log_metric(f"{name}_accuracy", 100 * sum(row.accuracy) / len(row.accuracy))
