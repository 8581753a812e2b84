"""The task of finding an answer in a text: the question repeats a span of the text, which is the answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.data.wordpiece import CLASSIFY, SEPARATE
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.windows import Windows
from netfold.sim.workload.workload import Score, keyed

SHORTEST, LONGEST = 4, 16  # tokens of a question; the longest is also a quarter of the sequence at most

_TESTED = 64  # windows
_TESTED_AT_ONCE = 4


class QuestionsTask:
    """Which span of a text does the question repeat? Spans are drawn at random.

    A sequence is as in BERT's use of SQuAD: [CLS] question [SEP] text [SEP]; the question is of segment 0,
    and from the text on it is segment 1. It has no padding.
    """

    def __init__(
        self,
        tokens: NDArray[np.int64],
        build: Callable[[], nn.Module],
        settings: TaskSettings,
        sequence: int,  # tokens, special ones included
    ) -> None:
        self._build = build
        self._windows = Windows(tokens, sequence, settings, _TESTED)
        self._seed = settings.seed

    def build(self) -> nn.Module:
        """Return the module with new weights."""
        return self._build()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Tokens and segments, both `(batch, sequence)`, and the answers' first and last place `(batch, 2)`.

        All are int64.
        """
        return asked(self._windows.drawn(step, worker), keyed(self._seed, "spans", step, worker))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of the places, the mean of that of the first and of the last."""
        return functional.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """Exact match: the share of held-out answers of which both places have the largest finite logit."""
        if not len(self._windows.tested):
            return None
        (tokens, segments), answers = asked(self._windows.tested, keyed(0, "held-out spans"))
        parts = zip(
            *(torch.split(part, _TESTED_AT_ONCE) for part in (tokens, segments, answers)), strict=True
        )
        rights = [_is_right(model(own, kinds), places) for own, kinds, places in parts]
        return Score("exact match", torch.cat(rights).double().mean().item())


def asked(windows: NDArray[np.int64], generator: np.random.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Sequences of windows `(batch, sequence)` of text, whose last tokens make room for the question."""
    sequence = windows.shape[1]
    longest = min(LONGEST, sequence // 4)
    tokens, segments = np.empty_like(windows), np.zeros_like(windows)
    answers = np.empty((len(windows), 2), np.int64)
    for row, window in enumerate(windows):
        size = int(generator.integers(SHORTEST, longest + 1))
        text = window[: sequence - size - 3]
        start = int(generator.integers(len(text) - size + 1))
        question = text[start : start + size]
        tokens[row] = [CLASSIFY, *question, SEPARATE, *text, SEPARATE]
        segments[row, size + 2 :] = 1
        answers[row] = size + 2 + start, size + 1 + start + size
    return (torch.from_numpy(tokens), torch.from_numpy(segments)), torch.from_numpy(answers)


def _is_right(logits: Tensor, answers: Tensor) -> Tensor:
    """Whether both places of each answer are found."""
    is_right: Tensor = (logits.argmax(1) == answers).all(1) & logits.isfinite().flatten(1).all(1)
    return is_right
