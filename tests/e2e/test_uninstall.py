"""The last page that a reader needs."""

from __future__ import annotations

from tests.docs.pages import script
from tests.e2e.cluster import NAMESPACE, STORE, kubectl, shell

#: Another run needs it.
ARGO = ("kubectl delete -n argo", "kubectl delete namespace argo")


def volumes_of_store() -> list[str]:
    """The names of the persistent volumes that MinIO's claims are bound to."""
    path = f'jsonpath={{.items[?(@.spec.claimRef.namespace=="{STORE}")].metadata.name}}'
    return kubectl("get", "persistentvolumes", "-o", path).split()


def test_nothing_remains() -> None:
    volumes = volumes_of_store()
    assert volumes
    shell(script("docs/howto/cluster-install.md", "kubectl delete -k manifests/overlays/kind", without=ARGO))
    for namespace in (NAMESPACE, STORE):
        assert kubectl("get", "namespace", namespace, "--ignore-not-found") == ""
    # kubectl waits for the claim. The storage class deletes its volume afterwards, on its own.
    for volume in volumes:
        kubectl("wait", "--for=delete", f"persistentvolume/{volume}", "--timeout=180s")
    assert volumes_of_store() == []
