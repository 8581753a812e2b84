"""Execute the notebook of the documents, and compare its outputs with those that it holds.

    python -m tests.notebook [--write]

The exit status is 1 if a cell has no output or several, or an output differs. `--write` puts the outputs in.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests import ROOT

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
LENGTH_MAX = 2000  # characters of an output in a message
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d")


def executed(folder: Path) -> Any:
    """The notebook after all cells have run in a folder, to which the paths that they show are relative."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    return nbformat.reads(nbformat.writes(notebook).replace(f"{folder.resolve()}/", ""), as_version=4)


def faults(notebook: Any) -> list[str]:
    """Code cells without just one output, and those whose output is not the one that the file holds."""
    import nbformat

    problems = []
    for cell, held in zip(notebook.cells, nbformat.read(NOTEBOOK, as_version=4).cells, strict=True):
        if cell.cell_type == "code":
            first_line, shown, printed = cell.source.partition("\n")[0], _text(held), _text(cell)
            if len(cell.outputs) != 1:
                problems.append(f"{first_line}: {len(cell.outputs)} outputs")
            if shown != printed:
                problems.append(
                    f"{first_line}: shown is {shown[:LENGTH_MAX]}, printed {printed[:LENGTH_MAX]}"
                )
    return problems


def _text(cell: Any) -> str:
    """A cell's outputs, without the time of a run."""
    return _TIME.sub("TIME", json.dumps(cell.outputs, sort_keys=True))


def main(arguments: list[str]) -> int:
    """Check or write the notebook (see the module docstring); returns the exit status."""
    import nbformat

    with tempfile.TemporaryDirectory() as name:
        notebook = executed(Path(name))
    problems = faults(notebook)
    if "--write" in arguments:
        nbformat.write(notebook, NOTEBOOK)
    print("\n".join(problems) or "all outputs are as shown")
    return int(bool(problems) and "--write" not in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
