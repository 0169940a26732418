"""The last page that a reader needs."""

from __future__ import annotations

from tests.docs.pages import script
from tests.e2e.cluster import NAMESPACE, STORE, kubectl, shell


def test_nothing_remains() -> None:
    overlay, *_argo = script("docs/howto/cluster.md", "kubectl delete -k manifests/overlays/kind").splitlines()
    shell(overlay)
    for namespace in (NAMESPACE, STORE):
        assert kubectl("get", "namespace", namespace, "--ignore-not-found") == ""
    assert STORE not in kubectl("get", "persistentvolumes", "-o", "jsonpath={.items[*].spec.claimRef.namespace}")
