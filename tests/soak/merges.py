"""Which merged words are wrong, by plain NumPy, for every merge that has a meaning outside of a codec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import Merge

LANES: dict[int, Any] = {8: np.int8, 16: np.int16}  # others are sums of whole words


def has_wrong_words(operation: Any) -> bool:
    """Whether a merged word at some worker is not the merge of those sent; of floats, to n · 2⁻²⁴ · Σ|x|.

    Blocks with exponents are sent as other words than the codec's, and are judged by the total alone.
    """
    workers = range(len(operation.sent))
    return any(
        is_wrong_at(message, [operation.sent[one][part] for one in workers], operation.received[worker][part])
        for part, message in enumerate(operation.sent[0])
        if message.scaling is None
        for worker in workers
    )


def is_wrong_at(message: Any, sent: Sequence[Any], merged: Any) -> bool:
    """Whether the words that one worker received are wrong; `message` is of any worker, `sent` of all."""
    match message.merge:
        case Merge.ADD | Merge.FLOAT_ADD:
            return _are_wrong_sums(message, sent, merged)
        case Merge.GATHER:
            pairs = zip(merged.parts, (one.words for one in sent), strict=True) if merged.parts else ()
            return any(not np.array_equal(part, words) for part, words in pairs)
        case Merge.OR | Merge.MAX | Merge.SIGN:
            held = [words for words, is_held in zip(*_held(sent, merged), strict=True) if is_held]
            if not held or merged.holders is not None:
                return False
            if message.merge is Merge.MAX:
                return not np.array_equal(merged.words, np.maximum.reduce(held))
            some, every = np.bitwise_or.reduce(held), np.bitwise_and.reduce(held)
            if message.merge is Merge.OR:
                return not np.array_equal(merged.words, some)
            return bool((merged.words & ~some).any() or (every & ~merged.words).any())
    return False


def _are_wrong_sums(message: Any, sent: Sequence[Any], merged: Any) -> bool:
    is_float = merged.is_float
    if is_float is None:
        is_float = np.full(merged.words.size, message.merge is Merge.FLOAT_ADD)
    words = [one.words if one.words.size else np.zeros(one.size, one.words.dtype) for one in sent]
    integers = held_words(words, merged)
    if message.merge is Merge.ADD:
        lane: Any = LANES.get(message.lane_bits, np.int32)
        lanes = np.array([one.astype(np.int32).view(lane) for one in integers.astype(np.int64)])
        right = lanes.astype(np.int64).sum(axis=0).astype(lane).view(np.int32)
        if (merged.words != right)[~is_float].any():
            return True
    if is_float.any():
        floats = sent if message.floats is not None else None
        wide = integers if floats is None else held_words([one.floats for one in floats], merged)
        limit = len(sent) * 2.0**-24 * np.abs(wide).sum(axis=0) + len(sent) * 2.0**-149
        is_near = np.abs(merged.words.view(np.float32) - wide.sum(axis=0)) <= limit
        return not is_near[is_float].all()
    return False


def _held(sent: Sequence[Any], merged: Any) -> tuple[list[Any], list[bool]]:
    """Every worker's words, and whether they are in the result: those of absent workers are not."""
    return [one.words for one in sent], [
        not one.is_absent and one.words.size == merged.words.size for one in sent
    ]


def held_words(words: list[NDArray[Any]], merged: Any) -> NDArray[np.float64]:
    """Each worker's words in float64, `(workers, words)`; zeros where the result does not hold the worker."""
    wide = np.array(words, np.float64)
    if merged.holders is not None:
        bitmaps = np.repeat(merged.holders.bitmaps, merged.holders.unit_words)[: wide.shape[1]]
        wide *= [(bitmaps >> np.uint32(rank)) & 1 for rank in range(len(words))]
    return wide
