"""`python -m tests.e2e.prepare`: the cluster, the image and the shipped overlay; prints KUBECONFIG alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.e2e.cluster import IMAGE, NAMESPACE, ROOT, STORE, driver, kubectl


def main() -> None:
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"e2e: {time.monotonic() - started:4.0f} s  {text}", file=sys.stderr, flush=True)

    kubeconfig = driver("up")
    os.environ["KUBECONFIG"] = kubeconfig
    say("the cluster is up")
    driver("image", IMAGE)
    say(f"the nodes have {IMAGE}")
    # A tag is never reused, except here: what an earlier build left must not look like this one's.
    for namespace in (NAMESPACE, STORE):
        kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s")
    # Without a namespace, as the documentation says it: every object names its own.
    subprocess.run(["kubectl", "apply", "-k", ROOT / "tests/e2e/overlay"], check=True, stdout=sys.stderr)
    kubectl("wait", "--for=condition=complete", "--timeout=5m", "job/lipt-setup", namespace=STORE)
    kubectl("rollout", "status", "deployment/minio", "--timeout=3m", namespace=STORE)
    say("the overlay is applied")
    print(kubeconfig)


if __name__ == "__main__":
    main()
