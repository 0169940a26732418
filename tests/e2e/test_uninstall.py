"""The last page that a reader needs."""

from __future__ import annotations

from tests.docs.pages import script
from tests.e2e.cluster import NAMESPACE, STORE, kubectl, shell

#: Another run needs it.
ARGO = ("kubectl delete -n argo", "kubectl delete namespace argo")


def test_nothing_remains() -> None:
    shell(script("docs/howto/cluster.md", "kubectl delete -k manifests/overlays/kind", without=ARGO))
    for namespace in (NAMESPACE, STORE):
        assert kubectl("get", "namespace", namespace, "--ignore-not-found") == ""
    assert STORE not in kubectl("get", "persistentvolumes", "-o", "jsonpath={.items[*].spec.claimRef.namespace}")
