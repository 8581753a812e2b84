"""The task of a language model: which token comes next?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.loop.metrics import perplexity
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.windows import Windows
from netfold.sim.workload.workload import Score

_TESTED_TOKENS = 8192  # at most
_TOKENS_AT_ONCE = 512  # in a test


class LanguageTask:
    """Prediction of each token of a window from those before it in the window.

    Nothing is carried from one window to the next: the state of an LSTM is zero before each.

    Parameters
    ----------
    tokens
        The text, `(tokens,)`, int64.
    build
        Makes a module that gives logits `(batch, time, vocabulary)`.
    settings
        Data, batch in windows, workers.
    time
        Tokens of a window that are predicted.
    tested_tokens
        Tokens that are predicted in a test, at most (one window at least).
    """

    def __init__(
        self,
        tokens: NDArray[np.int64],
        build: Callable[[], nn.Module],
        settings: TaskSettings,
        time: int,
        tested_tokens: int = _TESTED_TOKENS,
    ) -> None:
        self._build = build
        self._time = time
        self._windows = Windows(tokens, time + 1, settings, max(1, tested_tokens // time))

    def build(self) -> nn.Module:
        """Return the module with new weights."""
        return self._build()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Tokens, and the token after each, both `(batch, time)` int64."""
        windows = torch.from_numpy(self._windows.drawn(step, worker))
        return (windows[:, :-1],), windows[:, 1:]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of a token."""
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def losses(self, model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of each target, `(targets,)`, in a test."""
        return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="none")

    def score(self, model: nn.Module) -> Score | None:
        """Perplexity of held-out text: e to the mean cross entropy of a token; less is better."""
        tested = torch.from_numpy(self._windows.tested)
        if not len(tested):
            return None
        parts = torch.split(tested, max(1, _TOKENS_AT_ONCE // self._time))
        losses = [self.losses(model, part[:, :-1], part[:, 1:]) for part in parts]
        return Score("perplexity", perplexity(torch.cat(losses).double().mean().item()))
