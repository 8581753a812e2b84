"""How far a run is, for people: told while it goes on, never more often than they can read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Progress = Callable[[str, float, float], None]  # what is going on, steps done (and a share), steps in all

_EVERY_S = 0.1  # at most so often


class Teller:
    """Tells how far the steps of one variant are.

    Parameters
    ----------
    progress
        Who is told.
    variant
        Its name.
    done, total
        Steps of the whole run: done before this variant, and in all.
    """

    def __init__(
        self,
        progress: Progress = lambda what, done, total: None,
        variant: str = "",
        done: int = 0,
        total: int = 1,
    ) -> None:
        self._progress, self._variant = progress, variant
        self._begun, self._total = done, total
        self._share, self._told_s = 0.0, -math.inf  # the first is told at once

    def step(self) -> None:
        """One more step begins."""
        self._begun, self._share = self._begun + 1, 0.0
        self._tell(self._variant)

    def at(self, what: str, share: float = 0.0) -> None:
        """What a step is at, and how much of it is done as far as anybody can tell; goes forward only."""
        self._share = max(self._share, min(share, 1.0))
        self._tell(f"{self._variant}: {what}")

    def _tell(self, what: str) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= _EVERY_S:
            self._told_s = now_s
            self._progress(what, max(self._begun - 1, 0) + self._share, self._total)
