"""What every account may do, as docs/howto/cluster-rights.md says."""

from __future__ import annotations

import re
from pathlib import Path

#: (resource as `kubectl auth can-i --list` shows it, name of the object or "", verb).
Rights = set[tuple[str, str, str]]

PAGE = Path(__file__).parents[1] / "docs/howto/cluster-rights.md"
#: The table calls them so.
NAMESPACES = {"runs": "lipt", "store": "lipt-store"}
_RIGHT = re.compile(r"`([a-z./]+)`(?: named `([a-z0-9-]+)`)?: ([a-z]+(?:, [a-z]+)*)")


def on_the_page() -> dict[tuple[str, str], Rights]:
    """(who, `runs` or `store`) -> rights, from the table. `who` is an account, or starts with "you"."""
    table = PAGE.read_text(encoding="utf-8").partition("\n| who | in | may | why |\n|---|---|---|---|\n")[2]
    found: dict[tuple[str, str], Rights] = {}
    who = where = ""
    for line in table.partition("\n\n")[0].splitlines():
        first, second, may, _ = (cell.strip() for cell in line.strip("|").split("|"))
        if first:
            who, where = re.sub(r"^`([a-z-]+)`.*", r"\1", first), ""
        where = second or where
        rights = found.setdefault((who, where), set())
        rights |= {
            (resource, name, verb) for resource, name, verbs in _RIGHT.findall(may) for verb in verbs.split(", ")
        }
        assert may == "; ".join(match[0] for match in _RIGHT.finditer(may)) or may.startswith("nothing"), line
    return found


def of_accounts() -> dict[tuple[str, str], Rights]:
    """The part about ServiceAccounts."""
    return {(who, where): rights for (who, where), rights in on_the_page().items() if not who.startswith("you")}
