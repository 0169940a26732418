"""The pipeline `lipt-compare`: a configuration and all baselines, under several seeds."""

from kfp import dsl

from components import IMAGE
from components.compare import compare
from pipelines.parameters import described
from pipelines.pod import as_pod


@dsl.pipeline(  # type: ignore[untyped-decorator]
    name="lipt-compare",
    description="Compare LiPT with full data, random subsets, RS2 and classic pre-training, under several seeds.",
)
@described()
def lipt_compare(
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
    seeds: list[int] = [0, 1, 2],  # noqa: B006
    profile: str = "robust",
    config: str = "",
    image: str = IMAGE,
    gpus: str = "0",  # text: KFP 2.17's driver ignores a number here and would request no GPU
    gpu_resource: str = "nvidia.com/gpu",
    tolerations: list[dict[str, str]] = [],  # noqa: B006
    node_selector: dict[str, str] = {},  # noqa: B006
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
) -> None:
    """Run all variants in one box, because they share most of their stages."""
    compared = compare(
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
        config=config,
        gpus=gpus,
        cpu=cpu,
    )
    as_pod(
        compared,
        hours=14 * 24,
        image=image,
        s3=s3,
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        gpu_resource=gpu_resource,
        tolerations=tolerations,
        node_selector=node_selector,
    )
