"""What the theme of the documentation lacks: links to files that are no pages, and a name for the search."""

from __future__ import annotations

import re
from posixpath import join, normpath
from typing import Any

_SEARCH = 'data-md-component="search" role="dialog"'
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)[^)]*\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Point them to the repository; without its address, name the file."""

    def outside(link: re.Match[str]) -> str:
        path = normpath(join("docs", page.file.src_uri, "..", link[2]))
        if path.startswith("docs/"):
            return link[0]
        return f"[{link[1]}]({config.repo_url}/blob/main/{path})" if config.repo_url else f"`{path}`"

    return _LINK.sub(outside, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search for screen readers."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')
