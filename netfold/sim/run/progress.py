"""The progress of a run: which variant, which step, and what it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Progress = Callable[[str, float, float], None]  # activity, steps done (with a fraction), total steps

_EVERY_S = 0.1  # shortest interval between two reports


def silent(*_: object) -> None:
    """A progress that nobody looks at."""


class ProgressReporter:
    """Reports the progress of one variant.

    Parameters
    ----------
    progress
        Receives the reports.
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
        self._share, self._reported_s = 0.0, -math.inf  # the first report is immediate

    def begin_step(self) -> None:
        self._begun, self._share = self._begun + 1, 0.0
        self._send(self._variant)

    def report(self, what: str, share: float = 0.0) -> None:
        """Report the activity of the step, and the fraction that is done (it never decreases)."""
        self._share = max(self._share, min(share, 1.0))
        self._send(f"{self._variant}: {what}")

    def _send(self, what: str) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _EVERY_S:
            self._reported_s = now_s
            self._progress(what, max(self._begun - 1, 0) + self._share, self._total)
