"""`python -m tests.e2e.prepare`: the cluster, the image and the shipped overlay; prints KUBECONFIG alone."""

from __future__ import annotations

import os
import sys
import time

from tests.e2e.cluster import IMAGE, ROOT, driver, kubectl


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
    kubectl("delete", "namespace", "lipt", "--ignore-not-found", "--timeout=120s")
    kubectl("apply", "-k", str(ROOT / "tests/e2e/overlay"))
    kubectl("wait", "--for=condition=complete", "--timeout=5m", "job/lipt-setup")
    kubectl("rollout", "status", "deployment/minio", "--timeout=3m")
    say("the overlay is applied")
    print(kubeconfig)


if __name__ == "__main__":
    main()
