"""The pipeline `lipt-compare`: a configuration and all baselines, under several seeds."""

from kfp import dsl

from components import IMAGE
from components.compare import compare
from pipelines.pod import as_pod


@dsl.pipeline(  # type: ignore[untyped-decorator]
    name="lipt-compare",
    description="Compare LiPT with full data, random subsets, RS2 and classic pre-training, under several seeds.",
)
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
    tolerations: list[dict[str, str]] = [],  # noqa: B006
    node_selector: dict[str, str] = {},  # noqa: B006
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
) -> None:
    """Run all variants in one box, because they share most of their stages.

    Args:
        workspace: Folder of results, reports and finished work: s3://BUCKET/PREFIX. Finished work is reused.
        data: Images: digits, cifar10, cifar100, or the s3:// address that the pipeline lipt-ingest wrote to.
        model: resnet18, wrn28_10, torchvision.resnet18, torchvision.wide_resnet50_2, or package.module:function.
        width: Channels of the network's first stage. 0: the network's default (64 for resnet18).
        algorithm: Selection: auto, random, stratified, grand, el2n, glister, gradmatch, ccs ... (the paper: grand)
        fraction: Kept budget: the share of the candidates in the subset, above 0 and at most 1.
        epoch_fraction: Trained budget: share of the candidates per epoch, drawn from the subset. 0: the whole subset.
        jigsaws: Number of workers that pre-train. The data set must have jigsaws x batches x 256 candidates.
        batches: Batches of 256 images in the shard of one worker.
        passes: Number of passes of a worker over its shard.
        epochs: Epochs of the main training.
        seeds: Seeds; every variant runs once with each of them.
        profile: Defaults of all settings without a parameter: robust, or paper (use it with algorithm grand).
        config: All other settings as YAML, such as {select: {balanced: false}}. They must not contradict a parameter.
        image: Container image. Never reuse a tag: nodes and KFP cache images by name.
        gpus: GPUs (nvidia.com/gpu) per pod, as text. All GPUs of a node: each pod has its own node. 0: CPUs only.
        tolerations: Kubernetes tolerations, a JSON list, such as [{"key": "nvidia.com/gpu", "operator": "Exists"}].
        node_selector: Labels that a node must have, a JSON object, such as {"pool": "gpu"}.
        cpu: CPU request of each pod, such as 4 or 500m.
        memory: Memory of each pod, request and limit, such as 8Gi.
        s3: Name of the object store's Secret (accesskey, secretkey) and ConfigMap (endpoint, region).
    """
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
    )
    as_pod(
        compared,
        hours=14 * 24,
        image=image,
        s3=s3,
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        tolerations=tolerations,
        node_selector=node_selector,
    )
