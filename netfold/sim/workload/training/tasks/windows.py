"""Windows of a text: those that each worker is trained on, and those that are held out for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.workload import keyed, shards

HELD_OUT = 20  # one page in so many
PAGE = 64  # neighbouring windows


class Windows:
    """A text cut into windows, one after another; the rest of it, shorter than a window, is left out.

    A twentieth of the text can be held out, in pages: the same ones for every seed and number of workers.

    Parameters
    ----------
    tokens
        `(tokens,)`, int64.
    size
        Tokens of a window.
    settings
        What is held out, and among how many workers the rest is divided.
    tested
        Windows that are tested, at most; they are spread over those that are held out.

    Raises
    ------
    DataError
        There are fewer windows than workers.
    """

    def __init__(self, tokens: NDArray[np.int64], size: int, settings: TaskSettings, tested: int) -> None:
        count = len(tokens) // size
        self._windows = tokens[: count * size].reshape(count, size)
        pages = -(-count // PAGE)
        is_tested = np.zeros(count, np.bool_)
        if settings.holds_out:
            chosen = keyed(0, "held-out text").permutation(pages)[: -(-pages // HELD_OUT)]
            is_tested = np.isin(np.arange(count) // PAGE, chosen)
        trained, held = np.flatnonzero(~is_tested), np.flatnonzero(is_tested)
        places = np.linspace(0, max(0, len(held) - 1), min(tested, len(held))).astype(np.int64)
        self.tested: NDArray[np.int64] = self._windows[held[places]]  # (tested, size)
        self._shards = [trained[own] for own in shards(len(trained), settings.workers, settings.seed)]
        self._batch, self._seed = settings.batch, settings.seed

    def drawn(self, step: int, worker: int) -> NDArray[np.int64]:
        """A worker's windows of a step, `(batch, size)`."""
        generator = keyed(self._seed, "batch", step, worker)
        found: NDArray[np.int64] = self._windows[generator.choice(self._shards[worker], self._batch)]
        return found
