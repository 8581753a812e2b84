"""Every codec on every collective."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from rich.table import Table

from netfold.sim.files.process import require_threads
from netfold.sim.report.style import Shown
from netfold.sim.results.parquet import frame
from netfold.sim.run.context import Progress
from netfold.sim.studies.matrix import Cell, Matrix, Wanted, make_matrix, matrix_table


class Matrixed(Shown):
    """What every codec on every collective came to; `print` shows the matrix.

    Attributes
    ----------
    cells
        A row for every codec, collective, choice (such as a switch program) and loss: verdict ("refused"
        with reason and hint where it does not work), time, bytes, and how much the checks have examined.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self.cells: pl.DataFrame = frame(Cell, matrix.cells)

    @property
    def passes(self) -> bool:
        """Whether every cell that ran passed all checks."""
        return not self._matrix.failed

    def table(self) -> Table:
        """The table that `netfold codecs matrix` prints."""
        return matrix_table(self._matrix)

    def __repr__(self) -> str:
        ran = self.cells.filter(pl.col("verdict") != "refused").height
        return f"<netfold matrix: {ran} of {self.cells.height} cells ran, {len(self._matrix.failed)} failed>"


def matrix(
    codecs: Sequence[str] = (),
    *,
    collectives: Sequence[str] = (),
    loss: str = "1%",
    workers: int = 4,
    switch: str = "",
    seed: int = 1,
    progress: Progress | None = None,
) -> Matrixed:
    """Run codecs on collectives, each without loss and with it: a few training steps on a star.

    Parameters
    ----------
    codecs
        Texts such as "packed" or "lossless:load=0.7"; left out, all that are registered.
    collectives
        Kinds of collectives; left out, all. in_network is run with every switch program.
    loss
        Share of the packets that every link loses in the second run of a cell; "0%": no second run.
    switch
        Profile of the switch; left out, for every cell the one that can do least of those that carry it.
    progress
        Called with the current codec, the codecs done and all codecs; `print` works.

    Raises
    ------
    ScenarioError, NetfoldError
        A codec, an option, a collective, a switch or a loss that cannot be used.
    DataError
        The training data is not available.
    """
    require_threads()
    named = [codecs] if isinstance(codecs, str) else codecs
    kinds = [collectives] if isinstance(collectives, str) else collectives
    wanted = Wanted(tuple(named), tuple(kinds), loss, workers, switch, seed)
    return Matrixed(make_matrix(wanted, progress or _ignore_progress))


def _ignore_progress(what: str, done: float, total: float) -> None:
    """Default: progress is discarded."""
