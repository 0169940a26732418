"""Least rights, restricted pods, closed networks, no secrets."""

from __future__ import annotations

import re
from pathlib import Path

from tests.manifests.objects import MANIFESTS, Object, built, each_object, each_pod, kinds, pods_of

RIGHTS = {
    "lipt-run": {
        "batch/jobs": {"create", "get", "list", "patch", "delete"},
        "/pods": {"get", "list", "patch", "delete"},
        "/events": {"list"},
        "argoproj.io/workflowtaskresults": {"create", "patch"},
    },
    "lipt-setup": {"/secrets": {"create"}, "/secrets/minio-root": {"get"}, "/secrets/lipt-s3": {"get"}},
}


def test_pods_are_restricted() -> None:
    """Pod Security level `restricted`, and more: a numeric user, a read-only root file system."""
    names = set()
    for name, pod in each_pod():
        names.add(name)
        spec = pod["spec"]
        ours = spec.get("securityContext", {})
        assert ours.get("runAsNonRoot") is True, name
        assert ours.get("runAsUser", 0) > 0, name
        assert ours.get("seccompProfile") == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        for container in spec.get("initContainers", []) + spec["containers"]:
            context = container.get("securityContext", {})
            where = f"{name}/{container['name']}"
            assert context.get("allowPrivilegeEscalation") is False, where
            assert context.get("readOnlyRootFilesystem") is True, where
            assert context.get("capabilities") == {"drop": ["ALL"]}, where
            assert not context.get("privileged"), where
            assert context.get("runAsUser", 1) > 0, where
        for volume in spec.get("volumes", []):
            assert not {"hostPath", "nfs"} & set(volume), name
    assert {"Deployment/minio", "Job/lipt-setup", "WorkflowTemplate/lipt/train", "Job/worker"} <= names


def test_the_namespace_enforces_it() -> None:
    (namespace,) = kinds(built(MANIFESTS / "overlays" / "kind"), "Namespace").values()
    level = "pod-security.kubernetes.io"
    assert {namespace["metadata"]["labels"][f"{level}/{mode}"] for mode in ("enforce", "audit", "warn")} == {
        "restricted"
    }


def test_only_the_owner_of_a_volume_is_changed_by_root(components: Path) -> None:
    """What Pod Security's level `baseline` allows, and only for one container; it has the image of the runs."""
    overlay = built(components.parent / "volume")
    (namespace,) = kinds(overlay, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    (container,) = kinds(overlay, "Deployment")["minio"]["spec"]["template"]["spec"]["initContainers"]
    security = container["securityContext"]
    assert (security["runAsUser"], security["capabilities"]) == (0, {"drop": ["ALL"], "add": ["CHOWN"]})
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    (setup,) = kinds(overlay, "Job")["lipt-setup"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == setup["image"]


def test_no_secrets_in_files() -> None:
    assert not [one["metadata"]["name"] for one in each_object() if one["kind"] == "Secret"]
    for path in MANIFESTS.rglob("*.yaml"):
        assert not re.search(r"(?i)(password|secretkey|accesskey)['\"]?\s*[:=]\s*['\"]?[\w/+]{16,}", path.read_text())


def test_least_rights(overlay: list[Object]) -> None:
    assert not kinds(overlay, "ClusterRole")
    assert not kinds(overlay, "ClusterRoleBinding")
    for name, role in kinds(overlay, "Role").items():
        rights: dict[str, set[str]] = {}
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for only in rule.get("resourceNames", [""]):
                        key = f"{group}/{resource}" + (f"/{only}" if only else "")
                        rights.setdefault(key, set()).update(rule["verbs"])
        assert rights == RIGHTS[name]


def test_bindings_lead_somewhere(overlay: list[Object]) -> None:
    roles = kinds(overlay, "Role")
    for binding in kinds(overlay, "RoleBinding").values():
        assert binding["roleRef"]["name"] in roles
        for subject in binding["subjects"]:
            assert subject["namespace"] == binding["metadata"]["namespace"]


def test_pods_without_an_account_have_no_token(overlay: list[Object]) -> None:
    accounts = kinds(overlay, "ServiceAccount")
    for one in overlay:
        for name, pod in pods_of(one):
            account = pod["spec"].get("serviceAccountName")
            assert account in accounts if account else pod["spec"]["automountServiceAccountToken"] is False, name


def test_network_rules_know_our_pods() -> None:
    """Each selector finds pods by labels that they carry."""
    overlay = built(MANIFESTS / "overlays" / "kind")
    policies = kinds(overlay, "NetworkPolicy")
    assert policies["default-deny"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    labels = {name: pod["metadata"]["labels"] for one in overlay for name, pod in pods_of(one)}

    def meant(policy: str) -> set[str]:
        selector = policies[policy]["spec"]["podSelector"]
        found = {name for name in labels if selector["matchLabels"].items() <= labels[name].items()}
        for expression in selector.get("matchExpressions", []):
            key, values = expression["key"], expression.get("values", [])
            if expression["operator"] == "NotIn":
                found = {name for name in found if labels[name].get(key) not in values}
            else:
                assert expression["operator"] == "DoesNotExist"
                found = {name for name in found if key not in labels[name]}
        return found

    assert meant("minio") == {"Deployment/minio"}
    assert meant("lipt") == meant("lipt-api-server") == set(labels) - {"Deployment/minio"}
