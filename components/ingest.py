"""The only box of the pipeline `lipt-ingest`."""

from kfp import dsl

from components import box


@box
def ingest(
    data: str, store: str, chunk_mb: float, shuffle_seed: int, config: str, dataset: dsl.Output[dsl.Dataset]
) -> None:
    """Write images into a chunk store. Continues an interrupted call.

    Args:
        dataset: the address of the chunk store, for the parameter `data` of the other pipelines.
    """
    from lipt.pods.boxes import ingest_box, pod, save
    from lipt.pods.spec import configure

    with pod():
        figures = ingest_box(configure(config, data=data, chunk_mb=chunk_mb, shuffle_seed=shuffle_seed), store)
        save(dataset, store, location=store, **figures)
