"""The notebook of the documents runs, shows one output a cell, and holds what it shows."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests import notebook

CELLS_MAX = 12


@pytest.mark.slow
@pytest.mark.processes
def test_every_cell_has_one_output_as_the_file_holds_it(tmp_path: Path) -> None:
    executed = notebook.executed(tmp_path)
    assert notebook.faults(executed) == []
    assert sum(cell.cell_type == "code" for cell in executed.cells) <= CELLS_MAX
    assert (tmp_path / "my_model.py").is_file()


def test_what_differs_is_told() -> None:
    """Of a cell that shows nothing, one that shows two things, and one that shows another number."""
    held = nbformat.read(notebook.NOTEBOOK, as_version=4)
    assert notebook.faults(held) == []
    cells = [cell for cell in held.cells if cell.cell_type == "code"]
    cells[0].outputs = []
    cells[1].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="runs code"))
    cells[2].outputs[0].data["text/plain"] += "1"

    faults = notebook.faults(held)
    assert [fault.rpartition(": ")[2] for fault in (faults[0], faults[2])] == ["0 outputs", "2 outputs"]
    assert len(faults) == 5  # the first two have other outputs as well
