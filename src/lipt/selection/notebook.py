"""Tables that a notebook shows in place of `repr`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_table(caption: str, facts: Mapping[str, str]) -> str:
    """HTML of a table with one row for each fact; names and texts are escaped."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items())
    return f"<table><caption>{escape(caption)}</caption>{''.join(rows)}</table>"
