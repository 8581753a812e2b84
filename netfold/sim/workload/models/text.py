"""What models of text have in common: options, windows of a text, the next token, attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.keys import count_of
from netfold.sim.workload.model_task import Batches, Draw
from netfold.sim.workload.training_keys import perplexity
from netfold.sim.workload.workload import keyed

if TYPE_CHECKING:
    Vocabulary = int
else:
    Vocabulary = count_of(2)
    """Size of a vocabulary: one token stands for all that it leaves out."""

HELD_OUT = 20  # one page in so many
PAGE = 64  # neighbouring windows
TESTED_TOKENS = 8192
_TOKENS_AT_ONCE = 512


class Windows:
    """A text cut into windows, one after another; the rest of it, shorter than a window, is left out.

    A twentieth of the text can be held out, in pages: the same ones for every seed and number of workers.

    Parameters
    ----------
    tokens
        `(tokens,)`, int64.
    size
        Tokens of a window.
    holds_out
        Whether a part is held out.
    tested
        Windows that are tested, at most; they are spread over those that are held out.
    """

    def __init__(self, tokens: NDArray[np.int64], size: int, holds_out: bool, tested: int) -> None:
        count = len(tokens) // size
        self._windows = tokens[: count * size].reshape(count, size)
        pages = -(-count // PAGE)
        is_tested = np.zeros(count, np.bool_)
        if holds_out:
            chosen = keyed(0, "held-out text").permutation(pages)[: -(-pages // HELD_OUT)]
            is_tested = np.isin(np.arange(count) // PAGE, chosen)
        self._trained, held = np.flatnonzero(~is_tested), np.flatnonzero(is_tested)
        places = np.linspace(0, max(0, len(held) - 1), min(tested, len(held))).astype(np.int64)
        self.tested: NDArray[np.int64] = self._windows[held[places]]  # (tested, size)

    def __len__(self) -> int:
        return len(self._trained)

    def drawn(self, shard: NDArray[np.int64], draw: Draw) -> NDArray[np.int64]:
        """A worker's windows of a step, `(batch, size)`."""
        windows: NDArray[np.int64] = self._windows[self._trained[draw.samples(shard)]]
        return windows


class NextTokens(Windows, Batches):
    """Windows of which each token is to be told from those before it in the window.

    Nothing is carried from one window to the next: the state of an LSTM is zero before each.

    Parameters
    ----------
    tokens
        The text, `(tokens,)`, int64.
    time
        Tokens of a window that are predicted.
    holds_out
        Whether a part is held out.
    tested_tokens
        Tokens that are predicted in a test, at most (one window at least).
    """

    def __init__(
        self, tokens: NDArray[np.int64], time: int, holds_out: bool, tested_tokens: int = TESTED_TOKENS
    ) -> None:
        super().__init__(tokens, time + 1, holds_out, max(1, tested_tokens // time))
        self._time = time

    def batch(self, shard: NDArray[np.int64], draw: Draw) -> tuple[tuple[Tensor, ...], Tensor]:
        """Tokens, and the token after each, both `(batch, time)` int64."""
        windows = torch.from_numpy(self.drawn(shard, draw))
        return (windows[:, :-1],), windows[:, 1:]

    def losses(self, module: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of each target."""
        return functional.cross_entropy(module(tokens).flatten(0, 1), targets.flatten(), reduction="none")

    def perplexity(self, module: nn.Module) -> float:
        """Of held-out text: e to the mean cross entropy of a token; less is better."""
        parts = torch.split(torch.from_numpy(self.tested), max(1, _TOKENS_AT_ONCE // self._time))
        losses = [self.losses(module, part[:, :-1], part[:, 1:]) for part in parts]
        return perplexity(torch.cat(losses).double().mean().item())


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of all tokens, of logits `(batch, time, vocabulary)`."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def no_tokens(*shape: int) -> Tensor:
    """Tokens of any value, of a shape."""
    return torch.zeros(shape, dtype=torch.int64)


def check_heads(heads: int, width: int) -> None:
    """Require heads that divide the width.

    Raises
    ------
    ValueError
        They do not; a hint is on the second line.
    """
    if width % heads:
        raise ValueError(f"{heads} heads do not divide the width {width}\nuse a multiple of {heads}")


def attend(
    parts: tuple[Tensor, Tensor, Tensor], heads: int, dropout: float, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of queries, keys and values, each `(batch, time, width)`, as one of them.

    A. Vaswani et al., Attention Is All You Need, NIPS 2017, §3.2; `dropout` is that of the weights. With
    `is_causal` a query attends to its own place and those before it. It is written out as matrix products,
    because PyTorch counts no FLOPs of its fused operator on CPUs.
    """
    queries, keys, values = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = functional.dropout(scores.softmax(3), dropout)
    mixed: Tensor = (weights @ values).transpose(1, 2).flatten(2)
    return mixed
