"""`python -m tests.e2e.prepare`: the cluster and the image; prints KUBECONFIG alone."""

from __future__ import annotations

import os
import sys
import time

from tests.e2e.cluster import IMAGE, NAMESPACE, STORE, driver, kubectl


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
    print(kubeconfig)


if __name__ == "__main__":
    main()
