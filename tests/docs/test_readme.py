"""The front page, also where the package index shows it."""

from __future__ import annotations

import re

import yaml

from hatch_build import with_absolute_links
from lipt import __version__
from tests.docs.pages import PAGES, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Of a link, of a picture, and of a picture for one colour scheme.
_TARGETS = re.compile(r"""(?:\]\(|\bsrc="|\bsrcset=")([^)"]+)[)"]""")


def test_the_figures_are_those_of_the_results() -> None:
    results = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/results").glob("*.md"))
    figures = re.findall(r"[+−]?\d+\.\d ± \d+\.\d", README)
    assert figures
    assert [figure for figure in figures if figure not in results] == []


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["preferred-citation"]["title"] in " ".join(README.split())


def test_images_have_the_tag_of_this_version() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    tags = re.findall(r"\blipt:(\d+(?:\.\d+)+)", text)
    assert len(tags) > 3
    assert set(tags) == {__version__}


def test_links_lead_to_files() -> None:
    local = [target.partition("#")[0] for target in _TARGETS.findall(README) if "://" not in target]
    assert len(local) > 10
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_links_are_absolute_on_the_package_index() -> None:
    text = with_absolute_links(README, "https://example.org/me/lipt", "v1")
    assert [target for target in _TARGETS.findall(text) if not target.startswith("https://")] == []
    assert "REPOSITORY" not in text
    assert "git clone https://example.org/me/lipt lipt" in text
    assert "pip install 'lipt[run]'" in text
    assert "write `lipt` instead of `'lipt[run]'`" in text
    assert "'.[" not in text
    assert "(https://example.org/me/lipt/raw/v1/docs/figures/idea.svg)" in text
    assert '"https://example.org/me/lipt/raw/v1/docs/figures/report-dark.png"' in text
    assert "(https://example.org/me/lipt/blob/v1/docs/results/index.md)" in text
    assert "(https://proceedings.mlr.press/v202/ro23a.html)" in text
