"""Execute the notebook of `examples/` and keep its outputs in it: `make notebook`."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

(PAGE,) = (Path(__file__).parents[2] / "examples").glob("*.ipynb")
#: In the metadata of the notebook: the code that gave the outputs.
EXECUTED = "executed"


def digest(notebook: dict[str, Any]) -> str:
    """SHA-256 of the code of all cells, hexadecimal."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return sha256("\n\n".join("".join(cell["source"]) for cell in cells).encode()).hexdigest()


def main() -> None:
    """Execute the cells in order, in a kernel of this Python, and write the notebook back.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the notebook stays as it was.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(PAGE, as_version=4)
    with TemporaryDirectory() as folder:  # the notebook writes files
        client = NotebookClient(notebook, timeout=600, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute()
    notebook.metadata = {**json.loads(PAGE.read_text(encoding="utf-8"))["metadata"], EXECUTED: digest(notebook)}
    PAGE.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
