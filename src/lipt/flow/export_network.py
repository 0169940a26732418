"""Export the trained network of a run, for programs without LiPT."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from lipt.data.images import image_shape
from lipt.flow.export import finished, whole
from lipt.flow.reporting.provenance import MODEL_LINK
from lipt.report.document import Document
from lipt.runtime import Attempt, Context
from lipt.runtime.dataset import images_of, open_dataset
from lipt.runtime.network import new_model, read_weights
from lipt.training.program import program
from lipt.version import __version__

#: The text inside the file that describes the network.
FACTS = "lipt.json"


@dataclass(frozen=True, kw_only=True)
class ExportedNetwork:
    """What `FACTS` says."""

    kind: Literal["network"] = "network"
    model: str
    """Reference of the trained network."""
    shape: tuple[int, int, int]
    """(3, H, W) of the images."""
    classes: list[str]
    """Names, in the order of the logits."""
    test_accuracy: float
    image_size: int | None
    """How images were made that large: settings `data.image_size` and `data.crop`."""
    crop: str
    seeds: list[int]
    """The seeds of the run. The network is that of the first one."""
    lipt: str = __version__


def export_network(ctx: Context, document: Document, target: str) -> ExportedNetwork:
    """Write the trained network of a finished run to `target` (`program`). If that fails, nothing is left there.

    Args:
        document: the run's report.

    Raises:
        RunError: the network is gone, PyTorch cannot export it, or `target` cannot be written.
    """
    (link,) = (link for link in document.links if link.name == MODEL_LINK)
    model = finished(ctx, link.key.rpartition("/")[0])
    attempt = Attempt(ctx=ctx, ref="exports", label="export")
    dataset = open_dataset(attempt, finished(ctx, model.inputs[0]))
    shape = image_shape(images_of(ctx, dataset, "test", np.arange(1)))
    classes = list(dataset.manifest.classes)
    found = ExportedNetwork(
        model=model.ref,
        shape=shape,
        classes=classes,
        test_accuracy=document.rows[0].accuracy[0],
        image_size=ctx.config.data.image_size,
        crop=ctx.config.data.crop,
        seeds=document.provenance.seeds,
    )
    network = new_model(ctx, len(classes), 0, read_weights(attempt, model))
    data = program(network, shape, {FACTS: json.dumps(asdict(found), indent=2)})
    with whole(Path(target)) as unfinished:
        unfinished.write_bytes(data)
    return found
