"""What every account may do, asked of the API server, is what docs/howto/cluster-rights.md says."""

from __future__ import annotations

import json
import re

from lipt.adapters.cluster.job_manifest import WORKER
from tests.e2e.cluster import NAMESPACE, STORE, Run, kubectl
from tests.rights import NAMESPACES, Rights, of_accounts


def test_every_account_may_do_what_the_page_says() -> None:
    page = {(who, NAMESPACES[where]): rights for (who, where), rights in of_accounts().items() if rights}
    seen: dict[tuple[str, str], Rights] = {}
    accounts = set()
    for home in (NAMESPACE, STORE):
        for name in names("serviceaccounts", home):
            accounts.add(name)
            for where in (NAMESPACE, STORE, "default"):
                if rights := allowed(f"{home}:{name}", where) - allowed(f"{home}:nobody", where):
                    assert (home, name) == (STORE, "lipt-setup") or home == where
                    seen[name, where] = rights
    assert seen == page
    assert accounts - {"default"} == {who for who, _ in of_accounts()}


def allowed(account: str, namespace: str) -> Rights:
    """What `kubectl auth can-i --list` says: resources, URLs, names and verbs in columns."""
    text = kubectl("auth", "can-i", "--list", f"--as=system:serviceaccount:{account}", namespace=namespace)
    rows = re.findall(r"^(\S+) +\[(.*?)\] +\[(.*?)\] +\[(.*?)\]$", text, re.MULTILINE)
    return {
        (resource, name, verb)
        for resource, _, named, verbs in rows
        for name in named.split() or [""]
        for verb in verbs.split()
    }


def names(kind: str, namespace: str) -> set[str]:
    return {
        one["metadata"]["name"] for one in json.loads(kubectl("get", kind, "-o", "json", namespace=namespace))["items"]
    }


def test_runs_see_one_secret_and_workers_get_no_token(reference: tuple[Run, dict[str, bytes]]) -> None:
    assert names("secrets", NAMESPACE) == {"lipt-s3"}
    assert "minio-root" in names("secrets", STORE)
    pods = reference[0].workers()
    assert pods
    for pod in pods:
        assert pod["spec"]["serviceAccountName"] == WORKER
        assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["tmp", "shm"]  # none with a token
