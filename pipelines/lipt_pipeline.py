"""The pipeline `lipt`: five boxes from data to report."""

from kfp import dsl

from components import IMAGE
from components.dispatch import dispatch
from components.merge import merge
from components.pretrain import pretrain
from components.select import select
from components.train import train
from pipelines.pod import as_pod


@dsl.pipeline(  # type: ignore[untyped-decorator]
    name="lipt",
    description="Select a part of the data with a cheaply pre-trained model, train on it, compare with a random part.",
)
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
    seed: int = 0,
    profile: str = "robust",
    random_baseline: bool = True,
    config: str = "",
    image: str = IMAGE,
    gpus: str = "0",  # text: KFP 2.17's driver ignores a number here and would request no GPU
    tolerations: list[dict[str, str]] = [],  # noqa: B006
    node_selector: dict[str, str] = {},  # noqa: B006
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
    nodes: int = 0,
    deadline: int = 720,
) -> None:
    """Run the five boxes. There are only five, because each pod costs a cluster about ten seconds.

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
        seed: Seed of all random draws: initialisation, split, shards and order.
        profile: Defaults of all settings without a parameter: robust, or paper (use it with algorithm grand).
        random_baseline: Also train on a random subset with the same budgets, for the verdict. If the selection is
            itself random, the baseline is RS2: a new random subset in every epoch.
        config: All other settings as YAML, such as {select: {balanced: false}}. They must not contradict a parameter.
        image: Container image. Never reuse a tag: nodes and KFP cache images by name.
        gpus: GPUs (nvidia.com/gpu) per pod, as text. All GPUs of a node: each pod has its own node. 0: CPUs only.
        tolerations: Kubernetes tolerations, a JSON list, such as [{"key": "nvidia.com/gpu", "operator": "Exists"}].
        node_selector: Labels that a node must have, a JSON object, such as {"pool": "gpu"}.
        cpu: CPU request of each pod, such as 4 or 500m.
        memory: Memory of each pod, request and limit, such as 8Gi.
        s3: Name of the object store's Secret (accesskey, secretkey) and ConfigMap (endpoint, region).
        nodes: Worker pods that share the jigsaws, groups and score blocks. 0: one pod per jigsaw or group (a pod with
            k GPUs takes k of them); the select box scores.
        deadline: Minutes for pre-training. Then the merge starts with the jigsaws that arrived, if they are enough.
    """
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
        seed=seed,
        profile=profile,
        random_baseline=random_baseline,
        config=config,
        image=image,
        gpus=gpus,
        tolerations=tolerations,
        node_selector=node_selector,
        cpu=cpu,
        memory=memory,
        s3=s3,
        nodes=nodes,
        deadline=deadline,
    )
    spec = dispatched.output
    pretrained = pretrain(spec=spec)
    merged = merge(spec=spec).after(pretrained)
    selected = select(spec=spec, merged=merged.outputs["merged"])
    trained = train(spec=spec, merged=merged.outputs["merged"], subset=selected.outputs["subset"])
    for task, hours in ((dispatched, 24), (merged, 12), (selected, 24), (trained, 7 * 24)):
        as_pod(
            task,
            hours=hours,
            image=image,
            s3=s3,
            cpu=cpu,
            memory=memory,
            gpus=gpus,
            tolerations=tolerations,
            node_selector=node_selector,
        )
    as_pod(pretrained, hours=7 * 24, image=image, s3=s3, cpu="100m", memory="1Gi")  # it only waits for its Job
