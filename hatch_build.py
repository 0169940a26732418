"""The description of the package and its addresses.

The description is the README. Its links, its pictures and its `git clone` must work outside of the repository, too.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CLONE = "git clone REPOSITORY "
#: What installs from a clone -> what installs from the package index.
_INSTALLED = {"'.[": "'lipt[", "write `.` instead": "write `lipt` instead"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")
_PICTURE = re.compile(r'\b(src|srcset)="(?!https?://)([^"]+)"')


class Readme(MetadataHookInterface):
    """Called by hatchling. `LIPT_REPOSITORY` is the address of the repository; without it links stay as they are."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {}
        if repository := os.environ.get("LIPT_REPOSITORY"):
            ref = os.environ.get("GITHUB_REF_NAME", "HEAD")
            text = with_absolute_links(text, repository, ref)
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/{ref}/docs/index.md",
                "Issues": f"{repository}/issues",
                "Changelog": f"{repository}/blob/{ref}/CHANGELOG.md",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_absolute_links(text: str, repository: str, ref: str) -> str:
    """Point links to files, and pictures, to the repository at this tag or branch; name it in `git clone`. Install the
    package from the index, not from a clone."""
    for in_clone, elsewhere in _INSTALLED.items():
        text = text.replace(in_clone, elsewhere)
    text = _LINK.sub(
        lambda found: f"{found[1]}[{found[2]}]({repository}/{'raw' if found[1] else 'blob'}/{ref}/{found[3]})",
        text.replace(_CLONE, f"git clone {repository} "),
    )
    return _PICTURE.sub(rf'\1="{repository}/raw/{ref}/\2"', text)
