"""Box 1: data, theta_* and shards."""

from components import box


@box
def dispatch(
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
    train_nodes: int,
    seed: int,
    profile: str,
    random_baseline: bool,
    config: str,
    image: str,
    gpus: str,
    gpu_resource: str,
    tolerations: list[dict[str, str]],
    node_selector: dict[str, str],
    cpu: str,
    memory: str,
    s3: str,
    nodes: int,
    deadline: int,
    grace: float,
    queue: str,
    priority: str,
) -> str:
    """Check the settings, ingest the data if necessary, train theta_* and draw the shards.

    Returns:
        The address of the run specification: settings, and references to theta_* and the shards.
    """
    from lipt.pods.boxes import dispatch_box, pod
    from lipt.pods.spec import configure

    with pod():
        settings = configure(
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
            train_nodes=train_nodes,
            seed=seed,
            profile=profile,
            random_baseline=random_baseline,
        )
        return dispatch_box(
            settings,
            engine="kubeflow",
            image=image,
            gpus=gpus,
            gpu_resource=gpu_resource,
            tolerations=tolerations,
            node_selector=node_selector,
            cpu=cpu,
            memory=memory,
            s3=s3,
            nodes=nodes,
            deadline=deadline,
            grace=grace,
            queue=queue,
            priority=priority,
        )
