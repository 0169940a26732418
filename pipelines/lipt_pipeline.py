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
    description="Choose a part of the data with a cheaply pre-trained model, train on it, compare with a random part.",
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
    gpus: str = "0",  # text: KFP 2.17's driver reads a number here as nothing and would ask for no GPU at all
    tolerations: list[dict[str, str]] = [],  # noqa: B006
    node_selector: dict[str, str] = {},  # noqa: B006
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
    nodes: int = 0,
    deadline: int = 720,
) -> None:
    """Five boxes, because each pod step costs a cluster about ten seconds.

    Args:
        workspace: Where results, reports and finished work are kept: s3://BUCKET/PREFIX. Work found there is reused.
        data: Images: digits, cifar10, cifar100, or the s3:// location written by the pipeline lipt-ingest.
        model: resnet18, wrn28_10, torchvision.resnet18, torchvision.wide_resnet50_2, or package.module:function.
        width: Channels of the network's first stage; 0 is the network's own (64 for resnet18).
        algorithm: Selection: auto, random, stratified, grand, el2n, glister, gradmatch, ccs ... (the paper: grand)
        fraction: Data budget: the share of the candidates that is kept, above 0 and at most 1.
        epoch_fraction: Epoch budget: share of the candidates trained on per epoch, drawn from those kept; 0: all kept.
        jigsaws: Workers that pre-train, on as many nodes as there are. As many times batches x 256 images must exist.
        batches: Minibatches of 256 images in the shard of one worker.
        passes: Passes of a worker over its shard.
        epochs: Epochs of the main training.
        seed: Seed of everything: initialisation, split, shards and order.
        profile: Defaults of all settings without a parameter here: robust, or paper (which goes with algorithm grand).
        random_baseline: Also train on a random subset of the same budgets, for the verdict; on fresh draws from all
            data (RS2) where the subset is random itself.
        config: YAML of any other setting, as {select: {balanced: false}}; one that is a parameter is refused.
        image: Container image. Never reuse a tag: nodes and KFP know an image by its name.
        gpus: GPUs (nvidia.com/gpu) of each pod, as text; all of a node's give each pod its own node. 0 runs on CPUs.
        tolerations: Kubernetes tolerations, a JSON list, as [{"key": "nvidia.com/gpu", "operator": "Exists"}].
        node_selector: Labels that a node must have, a JSON object, such as {"pool": "gpu"}.
        cpu: CPU request of each pod, such as 4 or 500m.
        memory: Memory of each pod, request and limit, such as 8Gi.
        s3: Name of the Secret (accesskey, secretkey) and of the ConfigMap (endpoint, region) of the object store.
        nodes: Pods that share jigsaws, groups and score blocks; 0: one for as many jigsaws or groups as a pod has GPUs
            (at least one), scoring in its box.
        deadline: Minutes for pre-training; then the merge goes on with the jigsaws that arrived, if they are enough.
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
    as_pod(pretrained, hours=7 * 24, image=image, s3=s3, cpu="100m", memory="1Gi")  # it waits for its Job
