"""The pipeline `lipt-compare`: a configuration beside all baselines, over seeds."""

from kfp import dsl

from components import IMAGE
from components.compare import compare
from pipelines.pod import as_pod


@dsl.pipeline(  # type: ignore[untyped-decorator]
    name="lipt-compare",
    description="One table: LiPT beside full data, random subsets, RS2 and classic pre-training, over seeds.",
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
    gpus: str = "0",  # text: KFP 2.17's driver reads a number here as nothing and would ask for no GPU at all
    tolerations: list[dict[str, str]] = [],  # noqa: B006
    node_selector: dict[str, str] = {},  # noqa: B006
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
) -> None:
    """One box: rows share most of their stages, and a stage that is finished is not run again.

    Args:
        workspace: Where results, reports and finished work are kept: s3://BUCKET/PREFIX. Work found there is reused.
        data: Images: digits, cifar10, cifar100, or the s3:// location written by the pipeline lipt-ingest.
        model: resnet18, wrn28_10, torchvision.resnet18, torchvision.wide_resnet50_2, or package.module:function.
        width: Channels of the network's first stage; 0 is the network's own (64 for resnet18).
        algorithm: Selection: auto, random, stratified, grand, el2n, glister, gradmatch, ccs ... (the paper: grand)
        fraction: Data budget: the share of the candidates that is kept, above 0 and at most 1.
        epoch_fraction: Epoch budget: share of the candidates trained on per epoch, drawn from those kept; 0: all kept.
        jigsaws: Workers that pre-train. As many times batches x 256 images must exist.
        batches: Minibatches of 256 images in the shard of one worker.
        passes: Passes of a worker over its shard.
        epochs: Epochs of the main training.
        seeds: Seeds; every row runs once for each.
        profile: Defaults of all settings without a parameter here: robust, or paper (which goes with algorithm grand).
        config: YAML of any other setting, as {select: {balanced: false}}; one that is a parameter is refused.
        image: Container image. Never reuse a tag: nodes and KFP know an image by its name.
        gpus: GPUs (nvidia.com/gpu) of each pod, as text; all of a node's give each pod its own node. 0 runs on CPUs.
        tolerations: Kubernetes tolerations, a JSON list, as [{"key": "nvidia.com/gpu", "operator": "Exists"}].
        node_selector: Labels that a node must have, a JSON object, such as {"pool": "gpu"}.
        cpu: CPU request of each pod, such as 4 or 500m.
        memory: Memory of each pod, request and limit, such as 8Gi.
        s3: Name of the Secret (accesskey, secretkey) and of the ConfigMap (endpoint, region) of the object store.
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
