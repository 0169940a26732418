"""The page of examples: every file of `examples/`, in full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from lipt.cli import cli

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs/reference/examples.md"
_HEAD = """# Examples

This page shows complete configurations. `lipt init EXAMPLE` writes one of them into the current folder. (`make
reference` writes this page.)

A test runs each example, on few images. `several-nodes` and `kubectl` run on a cluster of three nodes. There is no
Kubeflow in the tests: `kubeflow` runs with Kubeflow's local runner (`kfp.local`), each box as a process.

| NAME | what it shows |
|---|---|
"""
_LANGUAGES = {".yaml": "yaml", ".py": "python"}


def text() -> str:
    """The page: what `lipt init` lists, then the contents of each example."""
    listed = [line.partition(" ") for line in CliRunner().invoke(cli, ["init"]).stdout.splitlines()]
    rows = [f"| [`{name}`](#{name}) | {what.strip()} |\n" for name, _, what in listed]
    sections = [f"## {name}\n\n{''.join(_contents(name))}" for name, _, _ in listed]
    return "\n".join([_HEAD + "".join(rows), *sections])


def _contents(name: str) -> Iterator[str]:
    """The files of an example, each as a block of code; of a notebook its code."""
    (path,) = (_ROOT / "examples").glob(f"[0-9]*-{name}*")
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.suffix == ".ipynb":
            cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
            yield f"The code of the notebook `{file.name}`:\n\n"
            yield "\n".join(_block("python", "".join(each["source"])) for each in cells if each["cell_type"] == "code")
        elif file.suffix in _LANGUAGES:
            yield f"`{file.name}`:\n\n"
            yield _block(_LANGUAGES[file.suffix], file.read_text(encoding="utf-8"))


def _block(language: str, code: str) -> str:
    return f"```{language}\n{code.rstrip()}\n```\n"
