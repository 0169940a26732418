"""The picture of a report in the UI of Kubeflow Pipelines, from a run of the quickstart there. It needs chromium.

    kubectl -n kubeflow port-forward service/ml-pipeline-ui 8080:80
    uv run --no-project --with playwright,pillow python -m docs.generate.kubeflow_ui http://localhost:8080 HANDLE

HANDLE is what `lipt submit` printed, or the identifier of the run alone. Playwright drives the browser. Nothing else
needs it, so it is not among the packages for development.
"""

from __future__ import annotations

import sys

from docs.generate.screenshot import FIGURES, save

_WIDTH, _HEIGHT, _SCALE = 1500, 1000, 0.8  # 1200 x 800 pixels
#: The UI fits the graph into the window once. The report then covers the right half of the window. So the window is
#: narrow at first, and the graph remains in the left half.
_NARROW = 980


def main(ui: str, handle: str) -> None:
    """Open the run, click on its report, then photograph both."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _NARROW, "height": _HEIGHT}, device_scale_factor=_SCALE)
        page.add_init_script("localStorage.navbarCollapsed = true")
        page.goto(f"{ui.rstrip('/')}/#/runs/details/{handle.rsplit('/', 1)[-1]}")
        page.get_by_test_id("artifact-icon-live").last.wait_for()  # before, it shows no artifact
        page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})
        page.get_by_role("button", name="report", exact=True).click()
        page.get_by_role("button", name="Visualization").click()
        page.frame_locator("iframe").get_by_role("heading", name="Verdict").wait_for()
        page.wait_for_timeout(1000)  # until what moves stands still
        save(page.screenshot(), FIGURES / "kubeflow.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
