"""Least rights, restricted pods, closed networks, no secrets."""

from __future__ import annotations

import re
from pathlib import Path

from lipt.adapters.cluster.job_manifest import Pods, pod_spec
from tests.manifests.objects import MANIFESTS, Object, built, each_object, each_pod, kinds, load, pods_of, worker_job

#: The only container that runs as root.
OWNER = "volume-owner"


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
            if container["name"] == OWNER:
                continue
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


def test_the_namespaces_enforce_it(components: Path) -> None:
    """Where root gives a volume to MinIO, the store's namespace enforces `baseline`."""
    for folder, store in ((MANIFESTS / "overlays" / "kind", "baseline"), (components.parent / "plain", "restricted")):
        namespaces = kinds(built(folder), "Namespace")
        assert set(namespaces) == {"lipt", "lipt-store"}
        for name, namespace in namespaces.items():
            labels = namespace["metadata"]["labels"]
            level = store if name == "lipt-store" else "restricted"
            modes = ("enforce", "warn", "audit")
            assert [labels[f"pod-security.kubernetes.io/{mode}"] for mode in modes] == [level, level, "restricted"]


def test_only_the_owner_of_a_volume_is_changed_by_root() -> None:
    """What `baseline` allows, and only for one container; it has the image of the runs."""
    overlay = built(MANIFESTS / "overlays" / "kind")
    (container,) = kinds(overlay, "Deployment")["minio"]["spec"]["template"]["spec"]["initContainers"]
    assert container["name"] == OWNER
    security = container["securityContext"]
    assert (security["runAsUser"], security["capabilities"]) == (0, {"drop": ["ALL"], "add": ["CHOWN"]})
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    (setup,) = kinds(overlay, "Job")["lipt-setup"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == setup["image"]


def test_no_secrets_in_files() -> None:
    assert not [one["metadata"]["name"] for one in each_object() if one["kind"] == "Secret"]
    for path in MANIFESTS.rglob("*.yaml"):
        assert not re.search(r"(?i)(password|secretkey|accesskey)['\"]?\s*[:=]\s*['\"]?[\w/+]{16,}", path.read_text())


def test_bindings_lead_somewhere(overlay: list[Object]) -> None:
    there = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in overlay}
    for one in overlay:
        if one["kind"] == "RoleBinding":
            assert ("Role", one["metadata"]["namespace"], one["roleRef"]["name"]) in there
            for subject in one["subjects"]:
                account = ("ServiceAccount", subject["namespace"], subject["name"])
                assert account in there or subject["name"] in ("pipeline-runner", "default-editor")  # Kubeflow's


def test_pods_without_an_account_have_no_token(overlay: list[Object]) -> None:
    accounts = kinds(overlay, "ServiceAccount")
    for one in overlay:
        for name, pod in pods_of(one):
            account = pod["spec"].get("serviceAccountName")
            assert account in accounts if account else pod["spec"]["automountServiceAccountToken"] is False, name
    assert "default" not in accounts


def test_network_rules_know_our_pods() -> None:
    """Each rule selects pods by labels that they carry, and no other pods."""
    objects = built(MANIFESTS / "overlays/kind")
    runs, store = of_namespace(objects, "lipt"), of_namespace(objects, "lipt-store")
    for rules in (runs, store):
        assert rules["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    boxes = {name: labels for one in objects for name, labels in labels_of_pods(one) if "WorkflowTemplate" in name}
    ours = dict(labels_of_pods(next(one for one in objects if one["kind"] == "Deployment")))
    ours |= dict(labels_of_pods(next(one for one in objects if one["kind"] == "Job")))
    assert {name: selected(rules, ours) for name, rules in store.items() if name != "default-deny"} == {
        "minio": {"Deployment/minio"},
        "lipt-setup": {"Job/lipt-setup"},
        "lipt-api-server": {"Job/lipt-setup"},
    }
    check_rules_of_runs(runs, boxes)


def test_network_rules_of_kubeflow_know_our_pods() -> None:
    rules = of_namespace(built(MANIFESTS / "overlays/kubeflow"), "kubeflow")
    boxes = {}
    for path in sorted((MANIFESTS.parent / "pipelines").glob("*.yaml")):
        for name, box in load(path)[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"].items():
            boxes[f"{path.stem}/{name}"] = box["podMetadata"]["labels"]
    assert len(boxes) == 8
    check_rules_of_runs(rules, boxes)
    assert selected(rules["lipt-kubeflow"], boxes | WORKERS) == set(boxes)
    for name, rule in rules.items():  # it also holds pods of other programs
        assert selected(rule, {"another": {"app": "another", "app.kubernetes.io/part-of": "kubeflow"}}) == set(), name


WORKERS = {
    "worker": worker_job(1)["spec"]["template"]["metadata"]["labels"],
    "training": worker_job(1, together=True)["spec"]["template"]["metadata"]["labels"],
}


def check_rules_of_runs(rules: dict[str, Object], boxes: dict[str, dict[str, str]]) -> None:
    """Our pods accept nothing but peers of a training; all reach DNS and the store, boxes the API server, too."""
    pods = boxes | WORKERS
    assert selected(rules["lipt"], pods) == selected(rules["lipt-store"], pods) == set(pods)
    assert selected(rules["lipt-api-server"], pods) == set(boxes)
    assert selected(rules["lipt-training"], pods) == {"training"}
    assert {name for name, rule in rules.items() if "ingress" in rule} == {"lipt-training"}
    assert "Ingress" in rules["lipt"]["policyTypes"]
    anywhere = {
        port for rule in rules.values() for to in rule.get("egress", []) if "to" not in to for port in ports(to)
    }
    assert anywhere == {53, 5353} | {443, 6443, 8443, 16443}  # DNS, the API server


def test_the_component_closes_the_ports_of_the_api_server(components: Path) -> None:
    objects = built(components.parent / "closed")
    for namespace in ("lipt", "lipt-store"):
        for name, rules in of_namespace(objects, namespace).items():
            open_to_all = [port for to in rules.get("egress", []) if "to" not in to for port in ports(to)]
            assert set(open_to_all) <= {53, 5353}, name
        (rule,) = of_namespace(objects, namespace)["lipt-api-server"]["egress"]
        assert all(set(peer) == {"ipBlock"} for peer in rule["to"])


def test_the_component_lets_prometheus_read_what_pods_measure(components: Path) -> None:
    """One port in three places; every pod of a run takes it from the ConfigMap."""
    objects = built(components.parent / "metrics")
    (source,) = [one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "lipt-s3"]
    (monitor,) = [one for one in objects if one["kind"] == "PodMonitor"]
    assert source["metadata"]["namespace"] == monitor["metadata"]["namespace"] == "lipt"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (rule,) = of_namespace(objects, "lipt")["lipt-metrics"]["ingress"]
    containers, address = endpoint["relabelings"]
    (port,) = ports(rule)
    assert (source["data"]["metrics"], address["replacement"]) == (f"prometheus:{port}", f"$1:{port}")
    template = next(one for one in objects if one["kind"] == "WorkflowTemplate")["spec"]["templates"]
    assert any("container" in one for one in template)  # which Argo calls `main`
    worker = pod_spec(Pods(image="lipt:1"), job="j", arguments=[])["containers"][0]
    assert containers["regex"] == f"main|{worker['name']}"
    boxes = {name: labels for one in objects for name, labels in labels_of_pods(one) if "WorkflowTemplate" in name}
    found = monitor["spec"]["selector"]["matchLabels"].items()
    assert all(found <= labels.items() for labels in (boxes | WORKERS).values())
    taken = {
        "name": "LIPT_METRICS",
        "valueFrom": {"configMapKeyRef": {"name": "lipt-s3", "key": "metrics", "optional": True}},
    }
    assert taken in worker["env"]


def of_namespace(objects: list[Object], namespace: str) -> dict[str, Object]:
    """Its network rules by name."""
    return {
        one["metadata"]["name"]: one["spec"]
        for one in objects
        if (one["kind"], one["metadata"].get("namespace")) == ("NetworkPolicy", namespace)
    }


def labels_of_pods(one: Object) -> list[tuple[str, dict[str, str]]]:
    return [(name, pod["metadata"]["labels"]) for name, pod in pods_of(one)]


def selected(rules: Object, pods: dict[str, dict[str, str]]) -> set[str]:
    """The pods to which network rules apply."""
    selector = rules["podSelector"]
    found = {name for name in pods if selector.get("matchLabels", {}).items() <= pods[name].items()}
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "DoesNotExist"
        found = {name for name in found if expression["key"] not in pods[name]}
    return found


def ports(rule: Object) -> list[int]:
    return [entry["port"] for entry in rule["ports"]]


def test_on_openshift_the_pods_of_a_run_name_no_user(components: Path) -> None:
    (template,) = kinds(built(components.parent / "openshift"), "WorkflowTemplate").values()
    assert template["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert "runAsUser" not in str(template["spec"]["templates"])
