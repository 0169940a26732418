"""Kubeflow components: a file per box, each a signature and a body of at most ten statements over `lipt.pods.boxes`.

KFP copies a body alone into the pod, so it imports what it uses; and it reads annotations as objects, so these files do
without `from __future__ import annotations`.

What travels between the boxes as artifacts are references to a content-addressed workspace (`s3://...`), never samples,
weights or scores: KFP's launcher downloads every input artifact whole and in one stream before a box starts, while the
workspace is read by range, verified against digests, and counted byte by byte.
"""

from collections.abc import Callable
from typing import Any

from kfp import dsl

from lipt import __version__

#: The default of the pipelines' parameter `image`. A tag is never reused: nodes and KFP know an image by its name.
IMAGE = f"lipt:{__version__}"


def box(function: Callable[..., Any]) -> Any:
    """A component that runs in the image, which holds kfp and lipt: nothing is installed in a pod."""
    return dsl.component(function, base_image=IMAGE, install_kfp_package=False)
