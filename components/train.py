"""Box 5: the trained model and the report."""

from kfp import dsl

from components import box


@box
def train(
    spec: str,
    merged: dsl.Input[dsl.Model],
    subset: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    confusion: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    verdict: dsl.Output[dsl.Markdown],
) -> None:
    """Train on the subset and on a random one, evaluate both on the test images, write the report.

    Args:
        model: the reference of the trained model.
        metrics: accuracy, gain over random, both budgets and the costs of the run.
        confusion: the test images by true and predicted class, for up to 50 classes.
        report: the whole report, in one file.
        verdict: the conclusions of the report.
    """
    from lipt.pods.boxes import load, pod, save, train_box

    with pod():
        end = train_box(spec, load(merged) or None, load(subset))
        metrics.metadata.update(end.figures())
        save(model, end.model, ref=end.model, accuracy=end.figures()["accuracy"])
        save(report, end.html)
        save(verdict, end.markdown)
        if end.confusion:
            confusion.log_confusion_matrix(end.classes, end.confusion)
