"""The only box of the pipeline `lipt-compare`."""

from kfp import dsl

from components import box


@box
def compare(
    data: str,
    workspace: str,
    model: str,
    width: int,
    algorithm: str,
    fraction: float,
    epoch_fraction: float,
    jigsaws: int,
    batches: int,
    passes: int,
    epochs: int,
    seeds: list[int],
    profile: str,
    config: str,
    gpus: str,
    cpu: str,
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    verdict: dsl.Output[dsl.Markdown],
) -> None:
    """Run a configuration and its baselines under several seeds. Stages that they share run once.

    Args:
        metrics: mean accuracy of every row, and the gain of LiPT over it.
        report: the whole report, in one file.
        verdict: the conclusions of the report.
    """
    from lipt.pods.boxes import compare_box, pod, save
    from lipt.pods.spec import configure

    with pod():
        end = compare_box(
            configure(
                config,
                data=data,
                workspace=workspace,
                model=model,
                width=width,
                algorithm=algorithm,
                fraction=fraction,
                epoch_fraction=epoch_fraction,
                jigsaws=jigsaws,
                batches=batches,
                passes=passes,
                epochs=epochs,
                seeds=seeds,
                profile=profile,
            ),
            engine="kubeflow",
            gpus=gpus,
            cpu=cpu,
        )
        metrics.metadata.update(end.figures())
        save(report, end.html)
        save(verdict, end.markdown)
