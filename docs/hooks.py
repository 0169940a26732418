"""Links of a page to files outside of the documentation, such as manifests: the site has no such pages."""

from __future__ import annotations

import re
from posixpath import join, normpath
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)[^)]*\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Point them to the repository; without its address, name the file."""

    def outside(link: re.Match[str]) -> str:
        path = normpath(join("docs", page.file.src_uri, "..", link[2]))
        if path.startswith("docs/"):
            return link[0]
        return f"[{link[1]}]({config.repo_url}/blob/main/{path})" if config.repo_url else f"`{path}`"

    return _LINK.sub(outside, markdown)
