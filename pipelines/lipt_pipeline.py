"""The pipeline `lipt`: five boxes from data to report."""

from kfp import dsl

from components import IMAGE
from components.dispatch import dispatch
from components.merge import merge
from components.pretrain import pretrain
from components.select import select
from components.train import train
from pipelines.parameters import described
from pipelines.pod import as_pod


@dsl.pipeline(  # type: ignore[untyped-decorator]
    name="lipt",
    description="Select a part of the data with a cheaply pre-trained model, train on it, compare with a random part.",
)
@described()
def lipt(
    workspace: str,
    data: str = "digits",
    model: str = "resnet18",
    width: int = 0,
    algorithm: str = "auto",
    fraction: float = 0.05,
    epoch_fraction: float = 0.0,
    jigsaws: int = 4,
    batches: int = 1,
    passes: int = 5,
    epochs: int = 200,
    train_nodes: int = 1,
    seed: int = 0,
    profile: str = "robust",
    random_baseline: bool = True,
    config: str = "",
    image: str = IMAGE,
    gpus: str = "0",  # text: KFP 2.17's driver ignores a number here and would request no GPU
    gpu_resource: str = "nvidia.com/gpu",
    tolerations: list[dict[str, str]] = [],  # noqa: B006
    node_selector: dict[str, str] = {},  # noqa: B006
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
    nodes: int = 0,
    deadline: int = 720,
    grace: float = 3.0,
    queue: str = "",
    priority: str = "",
) -> None:
    """Run the five boxes. There are only five, because each pod costs a cluster about ten seconds."""
    dispatched = dispatch(
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
        config=config,
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
    spec = dispatched.output
    pretrained = pretrain(spec=spec)
    merged = merge(spec=spec).after(pretrained)
    selected = select(spec=spec, merged=merged.outputs["merged"])
    trained = train(spec=spec, merged=merged.outputs["merged"], subset=selected.outputs["subset"])
    for task in (dispatched, merged, selected, trained):
        as_pod(
            task,
            image=image,
            s3=s3,
            cpu=cpu,
            memory=memory,
            gpus=gpus,
            gpu_resource=gpu_resource,
            tolerations=tolerations,
            node_selector=node_selector,
        )
    as_pod(
        pretrained,  # it only waits for its Job
        image=image,
        s3=s3,
        cpu="100m",
        memory="1Gi",
        tolerations=tolerations,
        node_selector=node_selector,
    )
