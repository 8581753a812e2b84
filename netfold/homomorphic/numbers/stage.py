"""Scaled messages in two steps, for networks that do not pipeline exponents and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded, Exchange, advance
from netfold.homomorphic.message import EXPONENT_MIN, Merge, Merged, Message
from netfold.homomorphic.numbers.compact import block_starts
from netfold.homomorphic.numbers.exponents import quantize, scales_of


def stage(exchange: Exchange, is_pipelined: Callable[[Message], bool] = lambda message: False) -> Exchange:
    """Exchange the exponents of scaled messages first, then send the quantised words as plain integers.

    Other messages of the same operation travel with the exponents. Exponents become int32 words (MAX), four
    times the bytes that a scaled message announces. An operation whose messages are all pipelined passes
    unchanged: the network agrees on its exponents itself.
    """
    answers: tuple[Merged, ...] | None = None
    while True:
        sent = advance(exchange, answers)
        if isinstance(sent, Decoded):
            return sent
        if all(is_pipelined(message) for message in sent):
            answers = yield sent
            continue
        first = yield tuple(_exponents(message) for message in sent)
        scaled = tuple(
            _quantized(message, _agreed(merged))
            for message, merged in zip(sent, first, strict=True)
            if message.scaling is not None
        )
        second = iter((yield scaled) if scaled else ())
        answers = tuple(
            merged if message.scaling is None else replace(next(second), exponents=_agreed(merged))
            for message, merged in zip(sent, first, strict=True)
        )


def _exponents(message: Message) -> Message:
    """The exponents of a scaled message as a separate message; other messages unchanged."""
    if message.scaling is None:
        return message
    label = f"{message.label} exponents"
    if message.is_absent:
        blocks = -(-message.size // message.scaling.block_elements)
        return Message(np.empty(0, np.int32), Merge.MAX, label, absent_words=blocks)
    return Message(message.scaling.exponents.astype(np.int32), Merge.MAX, label)


def _agreed(merged: Merged) -> NDArray[np.int8]:
    """Agreed exponents from their words; if nobody has announced any, the smallest."""
    if merged.workers == 0:
        return np.full(merged.words.size, EXPONENT_MIN, np.int8)
    return merged.words.astype(np.int8)


def _quantized(message: Message, exponents: NDArray[np.int8]) -> Message:
    """A scaled message as integers, by its agreed exponents."""
    assert message.scaling is not None, f"message {message.label!r} is not scaled"
    if message.is_absent:
        return replace(message, words=np.empty(0, np.int32), scaling=None)
    words = np.empty(message.words.size, np.int32)
    starts = block_starts(words.size, message.scaling.block_elements)
    quantize(message.words, starts, scales_of(exponents, message.scaling.workers), words)
    return replace(message, words=words, scaling=None)
