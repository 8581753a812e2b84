"""The variants of a run that are done, kept while the others are still to come.

After each variant all that are done are written to a folder of their own, as a run's folder but for its
report, named `<UTC time>-seed<N>-unfinished-<done>-of-<all>`; then the one before is removed. So whatever
ends the run, what was finished is there, and nothing looks like a finished run.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from netfold.sim.results.writer import RunData, write_unfinished


class Unfinished:
    """The folder of one run that is not finished yet."""

    def __init__(self, out_dir: Path) -> None:
        self._out_dir = out_dir
        self.path: Path | None = None  # where the variants are that are done
        self.variants_count = 0  # how many that are

    def write(self, run: RunData, done: int, of: int) -> None:
        """Keep what is done.

        Raises
        ------
        UnwrittenError
            The disk is full, for example; what was kept before is still there.
        """
        earlier = self.path
        self.path = write_unfinished(self._out_dir, run, f"unfinished-{done}-of-{of}")
        self.variants_count = done
        if earlier is not None:
            shutil.rmtree(earlier, ignore_errors=True)

    def remove(self) -> None:
        """The run is finished and has a folder."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path, self.variants_count = None, 0
