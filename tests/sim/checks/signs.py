"""Rounds of sign bits, merged by plain NumPy: one draw of a worker for every bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge, Merged, Message, Words
from netfold.sim.checks.rounds import Operation
from netfold.sim.checks.rounds.merges.signs import Signs

Bits = NDArray[np.bool_]  # (workers, bits)


def words_of(bits: Bits) -> Words:
    """Packed bits `(…, bits)`, the first one lowest."""
    found: Words = np.packbits(bits, axis=-1, bitorder="little").view(np.uint32)
    return found


def correlated(random: np.random.Generator, workers: int, words: int, agreement: float) -> Bits:
    """Bits of which a share is the same at all workers, and the rest fair coins."""
    common = random.random(32 * words) < 0.5
    is_common = random.random((workers, 32 * words)) < agreement
    own = random.random((workers, 32 * words)) < 0.5
    return np.where(is_common, common, own)


def chosen(
    random: np.random.Generator, bits: Bits, weights: Sequence[float] | NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """A worker's bit at each position; `weights` are (workers,) or (positions, workers), by default equal."""
    workers, positions = bits.shape
    shares = np.full(workers, 1 / workers) if weights is None else np.asarray(weights)
    edges = np.cumsum(np.broadcast_to(shares, (positions, workers)), axis=1)
    worker = (random.random(positions)[:, np.newaxis] >= edges[:, :-1]).sum(axis=1)
    return np.take_along_axis(bits, worker[np.newaxis], axis=0)[0]


def examine(
    signs: Signs, sent: Sequence[Words | None], received: Sequence[Words], step: int = 0, bucket: int = 0
) -> None:
    """Examine a round of one message; None is an absent worker."""
    size = next(words.size for words in sent if words is not None)
    messages = [
        Message(np.empty(0, np.uint32), Merge.SIGN, "signs", absent_words=size)
        if words is None
        else Message(words, Merge.SIGN, "signs")
        for words in sent
    ]
    operation = Operation(
        {rank: (message,) for rank, message in enumerate(messages)},
        {rank: (Merged(words, len(sent)),) for rank, words in enumerate(received)},
        number=10 * step + bucket,
    )
    signs.examine(step, bucket, [operation], lambda *place: f"at {place}")
