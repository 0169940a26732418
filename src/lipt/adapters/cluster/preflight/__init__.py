"""Checks of a cluster before a run starts. A check returns a finding, or raises an error with a remedy."""

from collections.abc import Callable

from lipt.adapters.cluster.preflight.installation import pipeline, queue, server, store_objects, training_service
from lipt.adapters.cluster.preflight.rights import account_rights, user_rights
from lipt.adapters.cluster.preflight.scheduling import image, nodes
from lipt.adapters.cluster.preflight.site import AbsentError, Site, UnknownError
from lipt.adapters.cluster.preflight.trial import admission, pod

__all__ = [
    "CHECKS",
    "AbsentError",
    "Site",
    "UnknownError",
    "pipeline",
    "pod",
    "queue",
    "server",
    "training_service",
    "user_rights",
]

#: In the order in which they are shown; those that need nothing but the site.
CHECKS: dict[str, Callable[[Site], str]] = {
    "account": account_rights,
    "store": store_objects,
    "nodes": nodes,
    "image": image,
    "admission": admission,
}
