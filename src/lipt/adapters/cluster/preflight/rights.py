"""Checks of the permissions of the caller, and of the account of a run's boxes."""

from collections.abc import Iterable

from lipt.adapters.cluster.api import MissingError, RefusedError
from lipt.adapters.cluster.preflight.site import OVERLAY, Site, UnknownError
from lipt.errors import RunError, UsageError

GRANT = "kubectl -n {namespace} create rolebinding lipt-users --clusterrole=edit --user=NAME, by an administrator"
#: Permissions of the account of a run's boxes, from manifests/base/access: (API group, resource, verbs).
_ACCOUNT = (
    ("batch", "jobs", ("create", "get", "list", "patch", "delete")),
    ("", "pods", ("get", "list", "patch", "delete")),
    ("", "events", ("list", "create")),
    ("argoproj.io", "workflows", ("get",)),
)
_ARGO_ACCOUNT = (("argoproj.io", "workflowtaskresults", ("create", "patch")),)
#: Permissions that a user needs for `lipt submit`, `status`, `logs` and `cancel`.
_LOGS = (
    ("", "pods", ("list",)),
    ("", "pods/log", ("get",)),
    ("batch", "jobs", ("list", "delete")),
    ("", "events", ("list",)),
)
_USER = {
    "argo": (
        ("argoproj.io", "workflowtemplates", ("get",)),
        ("argoproj.io", "workflows", ("create", "get", "patch")),
        *_LOGS,
    ),
    "kubeflow": (("", "services/proxy", ("create", "get")), ("argoproj.io", "workflows", ("list",)), *_LOGS),
}

Rights = Iterable[tuple[str, str, Iterable[str]]]


def user_rights(site: Site, *, endpoint: bool = False) -> str:
    """The caller may submit runs, see them, read their logs and cancel them.

    Args:
        endpoint: Kubeflow Pipelines has its own address and checks permissions itself.
    """
    rights = [right for right in _USER[site.engine] if not (endpoint and right[1] == "services/proxy")]
    missing = missing_rights(site, rights)
    # Kubeflow brings a controller of its own, beside which no second one may stand.
    of_argo = site.engine == "argo" and all(right.endswith(".argoproj.io") for right in missing)
    if missing and of_argo and not missing_rights(site, [("", "pods", ("create",))]):  # as with the role edit
        raise UsageError(
            f"you may not {', '.join(missing)} in {site.namespace}",
            "the role edit has no rights on workflows, because Argo's aggregate roles are not installed: an "
            "administrator applies Argo's install.yaml, or makes a Role with the rights of "
            "docs/howto/cluster-rights.md",
        )
    if missing:
        raise UsageError(
            f"you may not {', '.join(missing)} in {site.namespace}", GRANT.format(namespace=site.namespace)
        )
    return "submit, status, logs, cancel"


def account_rights(site: Site) -> str:
    """The account of a run's boxes exists and may start the Jobs of a fan-out."""
    account = _account(site)
    user = f"system:serviceaccount:{site.namespace}:{account}"
    rights = (*_ACCOUNT, *(_ARGO_ACCOUNT if site.engine == "argo" else ()))
    try:
        missing = missing_rights(site, rights, user=user)
    except RefusedError:
        raise UnknownError(
            f"you may not ask what {account} may do",
            f"an administrator can: kubectl -n {site.namespace} auth can-i create jobs --as={user}",
        ) from None
    if missing:
        raise RunError(f"ServiceAccount {account} may not {', '.join(missing)}", OVERLAY[site.engine])
    return f"ServiceAccount {account}: Jobs and pods"


def missing_rights(site: Site, rights: Rights, *, user: str = "") -> list[str]:
    """The rights that the caller, or another user, lacks in the namespace."""
    path, kind, extra = "selfsubjectaccessreviews", "SelfSubjectAccessReview", {}
    if user:
        path, kind = f"namespaces/{site.namespace}/localsubjectaccessreviews", "LocalSubjectAccessReview"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{site.namespace}", "system:authenticated"]
        extra = {"user": user, "groups": groups}
    missing = []
    for group, resource, verbs in rights:
        for verb in verbs:
            plural, _, sub = resource.partition("/")
            asked = {"namespace": site.namespace, "verb": verb, "group": group, "resource": plural, "subresource": sub}
            review = site.cluster.create(
                f"/apis/authorization.k8s.io/v1/{path}",
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"namespace": site.namespace} if user else {},
                    "spec": {"resourceAttributes": asked, **extra},
                },
            )
            if not review["status"]["allowed"]:
                missing.append(f"{verb} {resource}{f'.{group}' if group else ''}")
    return missing


def _account(site: Site) -> str:
    """The account of the boxes. In Argo the workflow names it; in Kubeflow it depends on the installation."""
    names = {"argo": ("lipt-run",), "kubeflow": ("pipeline-runner", "default-editor")}[site.engine]
    for name in names:
        try:
            site.cluster.get(f"/api/v1/namespaces/{site.namespace}/serviceaccounts/{name}")
        except MissingError:
            continue
        except RefusedError:
            pass
        return name
    remedy = OVERLAY["argo"] if site.engine == "argo" else "-n NAMESPACE: the profile that runs belong to"
    raise RunError(f"namespace {site.namespace} has no ServiceAccount {' or '.join(names)}", remedy)
