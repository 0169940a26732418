"""The table of rights in docs/howto/cluster-rights.md is what the manifests grant and what `lipt doctor` checks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from lipt.adapters.cluster.job_manifest import WORKER
from lipt.adapters.cluster.preflight import rights as doctor
from tests.manifests.objects import MANIFESTS, Object, built, worker_job
from tests.rights import NAMESPACES, Rights, of_accounts, on_the_page


def in_words(rules: list[Object]) -> Rights:
    """The rules of a role."""
    return {
        (f"{resource}.{group}" if group else resource, name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def granted(objects: list[Object]) -> dict[tuple[str, str], Rights]:
    """(account, namespace) -> rights; an account without rights has the namespace ""."""
    by_name = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one for one in objects}
    found: dict[tuple[str, str], Rights] = {}
    for (kind, namespace, _), binding in by_name.items():
        if kind == "RoleBinding":
            role = by_name["Role", namespace, binding["roleRef"]["name"]]
            for subject in binding["subjects"]:
                found.setdefault((subject["name"], namespace), set()).update(in_words(role["rules"]))
    accounts = {name for kind, _, name in by_name if kind == "ServiceAccount"}
    return found | {(name, ""): set() for name in accounts - {name for name, _ in found}}


def test_every_account_may_do_what_the_page_says() -> None:
    page = {(who, NAMESPACES.get(where, "")): rights for (who, where), rights in of_accounts().items()}
    assert granted(built(MANIFESTS / "overlays/kind")) == page
    kubeflow = granted(built(MANIFESTS / "overlays/kubeflow"))
    boxes = {name: rights for (name, _), rights in kubeflow.items() if rights}
    assert boxes == dict.fromkeys(["lipt-run", "pipeline-runner", "default-editor"], page["lipt-run", "lipt"])
    assert (WORKER, "") in kubeflow
    assert page[WORKER, ""] == set()


@pytest.mark.parametrize("name", ["kind", "kubeflow", "openshift"])
def test_no_right_waits_for_an_account_that_somebody_else_could_make(name: str, components: Path) -> None:
    """Who may make a namespace could make the account of a binding there, and would get its rights."""
    overlay = built(components.parent / (name if name == "openshift" else f"overlays/{name}"))
    made = {
        (one["metadata"]["name"], one["metadata"]["namespace"]) for one in overlay if one["kind"] == "ServiceAccount"
    }
    made |= {(name, "kubeflow") for name in ("pipeline-runner", "default-editor")}  # Kubeflow's own
    subjects = [
        (subject["name"], subject["namespace"])
        for one in overlay
        if one["kind"] == "RoleBinding"
        for subject in one["subjects"]
    ]
    assert subjects
    assert set(subjects) <= made


def test_nobody_has_rights_on_the_whole_cluster(overlay: list[Object]) -> None:
    assert {"ClusterRole", "ClusterRoleBinding"}.isdisjoint(one["kind"] for one in overlay)


def test_runs_get_no_rights_beside_the_root_credentials() -> None:
    """Whoever may create pods in a namespace can read all its Secrets."""
    overlay = built(MANIFESTS / "overlays/kind")
    there = {who: rights for (who, namespace), rights in granted(overlay).items() if namespace == "lipt-store"}
    assert {who: {resource for resource, *_ in rights} for who, rights in there.items()} == {"lipt-setup": {"secrets"}}
    bindings = [
        one for one in overlay if (one["kind"], one["metadata"].get("namespace")) == ("RoleBinding", "lipt-store")
    ]
    assert bindings
    for one in bindings:
        assert [subject["namespace"] for subject in one["subjects"]] == ["lipt-store"]


def test_people_need_what_the_page_says() -> None:
    page = on_the_page()
    assert {(f"you, for {name}", "runs") for name in ("Argo", "Kubeflow")} < page.keys()
    assert checked(doctor._USER["argo"]) == page["you, for Argo", "runs"]
    assert checked(doctor._USER["kubeflow"]) == page["you, for Kubeflow", "runs"]
    assert checked((*doctor._ACCOUNT, *doctor._ARGO_ACCOUNT)) == page["lipt-run", "runs"]
    (role,) = [one for one in built(MANIFESTS / "overlays/kind") if one["metadata"]["name"] == "lipt-store-user"]
    assert in_words(role["rules"]) == page["you, for our MinIO", "store"]


def checked(rights: Iterable[tuple[str, str, Iterable[str]]]) -> Rights:
    """What `lipt doctor` asks for."""
    return {
        (f"{resource}.{group}" if group else resource, "", verb) for group, resource, verbs in rights for verb in verbs
    }


def test_workers_have_an_account_without_a_token() -> None:
    (account,) = [
        one
        for one in built(MANIFESTS / "overlays/kind")
        if (one["kind"], one["metadata"]["name"]) == ("ServiceAccount", WORKER)
    ]
    assert account["automountServiceAccountToken"] is False
    pod = worker_job(1)["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (WORKER, False)
