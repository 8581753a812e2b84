"""The folder that holds a run's finished variants while others still run.

After each variant, all finished ones are written to a new run folder, named
`<UTC time>-seed<N>-unfinished-<done>-of-<all>`. Then the previous one is removed. So the finished variants
survive any end of the run, and no such folder looks like a finished run.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from netfold.sim.results.writer import RunData, write_unfinished


class Unfinished:
    """The folder of one unfinished run."""

    def __init__(self, out_dir: Path) -> None:
        self._out_dir = out_dir
        self.path: Path | None = None  # folder of the finished variants
        self.variants_count = 0  # how many are in it

    def take_over(self, scenario: str, name: str) -> None:
        """Go on with the folder of a run that was stopped; the next one takes its place."""
        self.path = self._out_dir / scenario / name

    def write(self, run: RunData, done: int, of: int) -> None:
        """Write the finished variants.

        Raises
        ------
        UnwrittenError
            The disk is full, for example; the previous folder is still there.
        """
        earlier = self.path
        self.path = write_unfinished(self._out_dir, run, f"unfinished-{done}-of-{of}")
        self.variants_count = done
        if earlier is not None:
            shutil.rmtree(earlier, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder, once the run is finished and has its own."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path, self.variants_count = None, 0
