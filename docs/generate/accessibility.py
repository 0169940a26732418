"""Can everyone read the reports? axe-core looks for barriers in a browser. It needs chromium.

    python -m docs.generate.accessibility [REPORT.html ...]

Without a report, as `make axe` calls it, it makes two.
"""

from __future__ import annotations

import shutil
import sys
from itertools import product
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

from docs.generate.screenshot import reports

_WIDTHS = (390, 768, 1440)  # of a phone, a tablet, a desktop
_SCHEMES = ("light", "dark")
_GRAVE = ("serious", "critical")


def main() -> None:
    """Open each report in each width and colour scheme, with all details open, and print what axe finds.

    Ends with exit code 1 if a finding is serious.
    """
    pages = [Path(each) for each in sys.argv[1:]] or reports()
    found = list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_browser())
        for page, width, scheme in product(pages, _WIDTHS, _SCHEMES):
            opened = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
            opened.goto(page.absolute().as_uri())
            found += [f"{page.name}, {width} px, {scheme}: {each}" for each in _barriers(opened)]
            opened.close()
        browser.close()
    print("\n".join(found) or f"axe finds nothing, at {', '.join(map(str, _WIDTHS))} px, {' and '.join(_SCHEMES)}")
    sys.exit(any(f": {impact} " in line for line in found for impact in _GRAVE))


def _browser() -> Path:
    for name in ("chromium", "google-chrome"):
        if path := shutil.which(name):
            return Path(path)
    sys.exit("no chromium and no google-chrome: install one of them")


def _barriers(page: Page) -> list[str]:
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    return [
        f"{each['impact']} {each['id']}: {each['help']}, first at {each['nodes'][0]['target']} of {len(each['nodes'])}"
        for each in Axe().run(page).response["violations"]
    ]


if __name__ == "__main__":
    main()
