"""Box 1."""

from kfp import dsl

from components import box


@box
def dispatch(
    data: str, workspace: str, model: str, width: int, algorithm: str, fraction: float, epoch_fraction: float,
    jigsaws: int, batches: int, passes: int, epochs: int, seed: int, profile: str, random_baseline: bool, config: str,
    plan: dsl.Output[dsl.Artifact],
) -> list[dict[str, int]]:  # fmt: skip
    """Check the settings, ingest the data if need be, train theta_* and cut the shards.

    Args:
        plan: the run's plan as JSON: its settings, and references to theta_* and the shards.

    Returns:
        One {index} per worker.
    """
    from lipt.stages.boxes import configure, dispatch_box, pod, save

    with pod():
        settings = configure(
            config, data=data, workspace=workspace, model=model, width=width, algorithm=algorithm, fraction=fraction,
            epoch_fraction=epoch_fraction, jigsaws=jigsaws, batches=batches, passes=passes, epochs=epochs, seed=seed,
            profile=profile, random_baseline=random_baseline)  # fmt: skip
        made = dispatch_box(settings, engine="kubeflow")
        save(plan, made.to_json(), dataset=made.dataset, workspace=workspace)
        return made.workers()
