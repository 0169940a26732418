"""Where a run would go, and what is said when a check cannot tell."""

from __future__ import annotations

from dataclasses import dataclass

from lipt.adapters.cluster.api import Api
from lipt.adapters.cluster.manifest import Pods
from lipt.errors import LiptError

#: What installs the account, its rights and the store's objects, by engine.
OVERLAY = {
    "argo": "kubectl apply -k manifests/overlays/kind",
    "kubeflow": "kubectl apply -k manifests/overlays/kubeflow",
}


class UnknownError(LiptError):
    """It could not be found out, which is no failure."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a run would go, and how its pods would look."""

    cluster: Api
    engine: str
    namespace: str
    pods: Pods
