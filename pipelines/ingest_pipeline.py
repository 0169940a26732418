"""The pipeline `lipt-ingest`: write images into a chunk store, once."""

from kfp import dsl, kubernetes

from components import IMAGE
from components.ingest import ingest
from pipelines.parameters import described
from pipelines.pod import as_pod


@dsl.pipeline(  # type: ignore[untyped-decorator]
    name="lipt-ingest",
    description="Write images into a chunk store, from which the other pipelines read.",
)
@described(
    data="digits, cifar10, cifar100; or on the claim an ImageFolder (/data/FOLDER) or tars (/data/*.tar).",
    config="All other settings as YAML, such as {data: {test_fraction: 0.1}}. They must not contradict a parameter.",
)
def lipt_ingest(
    store: str,
    data: str = "digits",
    claim: str = "",
    chunk_mb: float = 64.0,
    shuffle_seed: int = 0,
    config: str = "",
    image: str = IMAGE,
    tolerations: list[dict[str, str]] = [],  # noqa: B006
    node_selector: dict[str, str] = {},  # noqa: B006
    cpu: str = "1",
    memory: str = "2Gi",
    s3: str = "lipt-s3",
) -> None:
    """Ingest images in one box, from a volume if `claim` names one."""

    def box() -> dsl.PipelineTask:
        task = ingest(data=data, store=store, chunk_mb=chunk_mb, shuffle_seed=shuffle_seed, config=config)
        return as_pod(
            task,
            hours=48,
            image=image,
            s3=s3,
            cpu=cpu,
            memory=memory,
            tolerations=tolerations,
            node_selector=node_selector,
        )

    with dsl.If(claim == "", name="download"):
        box()
    with dsl.Else(name="volume"):
        kubernetes.mount_pvc(box(), claim, "/data")
