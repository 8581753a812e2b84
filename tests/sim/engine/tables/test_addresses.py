"""A promise to the compiler is checked where bounds are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT

CODE = """
from netfold.homomorphic.kernels.compiled import kernel
from netfold.sim.engine.tables.addresses import natural

@kernel
def taken(index):
    return natural(index)

print(taken(0), taken(7))
try:
    taken(-1)
except IndexError as error:
    print(error)
"""


def test_a_negative_index_is_told_where_bounds_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "taken.py"
    file.write_text(CODE)
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "0 7\na negative index\n"
