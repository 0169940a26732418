"""What the site adds to its theme, in a real browser; skipped where there is no chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from material.plugins.offline.plugin import OfflinePlugin
from mkdocs.config import load_config

from tests.docs.pages import ROOT

PAGE = """
<style>div, p, code {{ display: block; width: 200px; overflow: auto; white-space: nowrap }}</style>
<article class="md-typeset">
<div class="md-typeset__scrollwrap" id="wide"><table style="width: 400px"><tr><td>1</table></div>
<div class="md-typeset__scrollwrap" id="narrow"><table><tr><td>1</table></div>
<p id="drawing"><img src="a.svg" style="width: 400px; height: 9px"></p>
<p id="icon"><img src="a.svg" style="width: 100px; height: 9px"></p>
<pre><code id="long">{}</code></pre>
<pre><code id="short">1</code></pre>
</article>
<script src="{}"></script>
"""


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")
def test_the_keyboard_reaches_what_scrolls(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE.format("1" * 100, (ROOT / "docs/site.js").as_uri()))
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command = [*browser, "--virtual-time-budget=1000", "--dump-dom", (tmp_path / "page.html").as_uri()]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    reached = {name for tag, name in re.findall(r'(<[^>]*id="(\w+)"[^>]*>)', shown) if 'tabindex="0"' in tag}
    assert reached == {"wide", "drawing", "long"}


def test_the_site_loads_it() -> None:
    assert "\nextra_javascript: [site.js]\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_no_page_loads_a_script_from_another_server() -> None:
    """The theme's plugin for search from a folder adds the address of one, unless the site has its own copy."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    plugin = OfflinePlugin()
    plugin.load_config({})
    plugin.on_config(config)
    scripts = config.extra["polyfills"]
    assert scripts
    assert all((ROOT / "docs" / name).is_file() for name in scripts)
