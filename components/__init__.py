"""Kubeflow components, one file per box: a signature, and a body of at most ten statements that calls `lipt.pods`.

KFP copies only the body into the pod, so each body imports what it uses. KFP reads annotations as objects, so these
files do not use `from __future__ import annotations`.

Boxes pass each other references to artifacts in the workspace (`s3://...`), never samples, weights or scores. KFP's
launcher would download every input artifact whole, in one stream, before a box starts. Our store client instead reads
ranges, verifies digests and counts bytes.
"""

from collections.abc import Callable
from typing import Any

from kfp import dsl

from lipt import __version__

#: The default of the pipelines' parameter `image`. Never reuse a tag: nodes and KFP cache images by name.
IMAGE = f"lipt:{__version__}"


def box(function: Callable[..., Any]) -> Any:
    """A component that runs in our image. It contains kfp and lipt, so no pod installs anything."""
    return dsl.component(function, base_image=IMAGE, install_kfp_package=False)
