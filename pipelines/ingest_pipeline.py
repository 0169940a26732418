"""The pipeline `lipt-ingest`: write images into a chunk store, once."""

from kfp import dsl, kubernetes

from components import IMAGE
from components.ingest import ingest
from pipelines.pod import as_pod


@dsl.pipeline(  # type: ignore[untyped-decorator]
    name="lipt-ingest",
    description="Write images into a chunk store, from which the other pipelines read.",
)
def lipt_ingest(
    store: str,
    data: str = "digits",
    claim: str = "",
    chunk_mb: float = 64.0,
    shuffle_seed: int = 0,
    config: str = "",
    image: str = IMAGE,
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
) -> None:
    """Ingest images in one box, from a volume if `claim` names one.

    Args:
        store: Address of the chunk store to write: s3://BUCKET/PREFIX.
        data: digits, cifar10, cifar100; or on the claim an ImageFolder (/data/FOLDER) or tars (/data/*.tar).
        claim: PersistentVolumeClaim with the images, mounted at /data. Empty: no volume.
        chunk_mb: Size of one chunk (tar) in MB.
        shuffle_seed: Seed of the global order of the images (not the seed of a run).
        config: All other settings as YAML, such as {select: {balanced: false}}. They must not contradict a parameter.
        image: Container image. Never reuse a tag: nodes and KFP cache images by name.
        cpu: CPU request of each pod, such as 4 or 500m.
        memory: Memory of each pod, request and limit, such as 8Gi.
        s3: Name of the object store's Secret (accesskey, secretkey) and ConfigMap (endpoint, region).
    """
    with dsl.If(claim == "", name="download"):
        downloaded = ingest(data=data, store=store, chunk_mb=chunk_mb, shuffle_seed=shuffle_seed, config=config)
        as_pod(downloaded, hours=48, image=image, s3=s3, cpu=cpu, memory=memory)
    with dsl.Else(name="volume"):
        read = ingest(data=data, store=store, chunk_mb=chunk_mb, shuffle_seed=shuffle_seed, config=config)
        kubernetes.mount_pvc(as_pod(read, hours=48, image=image, s3=s3, cpu=cpu, memory=memory), claim, "/data")
