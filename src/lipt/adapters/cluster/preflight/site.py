"""The place of a run, and the error of a check without a result."""

from dataclasses import dataclass

from lipt.adapters.cluster.api import Cluster
from lipt.adapters.cluster.job_manifest import Pods
from lipt.errors import LiptError
from lipt.pipeline import ClusterEngine

#: Command that installs the account, its permissions and the store's objects, by engine.
OVERLAY = {
    "argo": "kubectl apply -k manifests/overlays/kind, or your own overlay",
    "kubeflow": "kubectl apply -k manifests/overlays/kubeflow",
}


class UnknownError(LiptError):
    """Could not be checked; not counted as a failure."""


class AbsentError(UnknownError):
    """The cluster does not have it now; an autoscaler may add it."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """The place of a run, and its pods."""

    cluster: Cluster
    engine: ClusterEngine
    namespace: str
    pods: Pods
