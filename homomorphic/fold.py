"""All workers of a codec in one process: the shortest driver, and an independent account of what is right.

`fold` runs the encoders in lock-step and merges their messages in a chosen order. `stage` turns an exchange
with scaled messages into one without, for drivers that do not pipeline exponents and values.
`merged_reference` says what a merge must give, from 64-bit sums and without the merge kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from homomorphic.codec import Encoder, Exchange, Gradient, Merge, Merged, Message, Round, Words
from homomorphic.factor import WORD_MAX
from homomorphic.fixed_point import quantize
from homomorphic.keyed import mix_plain
from homomorphic.merge import ORDER_FREE, merge_all

_CHUNK_WORDS = 1 << 18  # of the reference sums: small temporaries, whatever the message


class LockStepError(RuntimeError):
    """The workers of one round disagree about what is being sent."""


@dataclass(frozen=True)
class Folded:
    """What a round came to: every worker's decoded sum, and all messages by operation and worker."""

    decoded: list[Gradient]
    messages: list[list[tuple[Message, ...]]]

    def announced_bytes(self, worker: int) -> int:
        """Bytes of payload that one worker announced."""
        return sum(message.size_bytes for operation in self.messages for message in operation[worker])


def fold(
    encoders: Sequence[Encoder],
    gradients: Sequence[Gradient],
    round: Round,
    order: Sequence[int] | None = None,
) -> Folded:
    """Aggregate one bucket, merging worker after worker in `order` (by rank if left out).

    Raises
    ------
    LockStepError
        The workers sent different numbers, kinds or lengths of messages.
    ValueError
        Encoders, gradients, order and `round.workers` do not fit each other.
    """
    order = range(round.workers) if order is None else order
    if not len(encoders) == len(gradients) == round.workers or sorted(order) != list(range(round.workers)):
        raise ValueError(
            f"a round of {round.workers} workers needs as many encoders and gradients and an order that "
            f"names each rank once; got {len(encoders)}, {len(gradients)} and {list(order)}"
        )
    exchanges = [
        stage(encoder.exchange(gradient, round))
        for encoder, gradient in zip(encoders, gradients, strict=True)
    ]
    answers: tuple[Merged, ...] | None = None
    folded = Folded([], [])
    while True:
        sent = [_advance(exchange, answers) for exchange in exchanges]
        operation = [one for one in sent if isinstance(one, tuple)]
        if not operation:
            folded.decoded.extend(one for one in sent if not isinstance(one, tuple))
            return folded
        check_lock_step(sent)
        key = mix_plain(round.seed, round.step, round.bucket, len(folded.messages))
        folded.messages.append(operation)
        answers = tuple(
            _merged([messages[part] for messages in operation], order, mix_plain(key, part))
            for part in range(len(operation[0]))
        )


def _advance(exchange: Exchange, answers: tuple[Merged, ...] | None) -> tuple[Message, ...] | Gradient:
    """Next messages of one worker, or its decoded sum."""
    try:
        return next(exchange) if answers is None else exchange.send(answers)
    except StopIteration as stop:
        decoded: Gradient = stop.value
        return decoded


def check_lock_step(sent: Sequence[tuple[Message, ...] | Gradient]) -> None:
    """Check that all workers send the same kinds and lengths of messages; a decoded sum means "no more".

    Raises
    ------
    LockStepError
        Names the first worker that differs from worker 0, and both messages.
    """
    expected = _describe(sent[0])
    for rank, one in enumerate(sent):
        found = _describe(one)
        if found != expected:
            raise LockStepError(
                f"worker {rank} sends {found}, but worker 0 sends {expected}: all workers of a round must "
                "send the same messages; were they given different codecs, gradients or merged words?"
            )


def _describe(sent: tuple[Message, ...] | Gradient) -> str:
    if not isinstance(sent, tuple):
        return f"nothing more, having decoded {sent.size} elements"
    return " and ".join(
        f"{message.label!r} ({message.merge.value} of "
        + ("" if message.merge is Merge.GATHER else f"{message.words.size} ")
        + f"{message.words.dtype} words{'' if message.scaling is None else ', scaled'})"
        for message in sent
    )


def _merged(messages: Sequence[Message], order: Sequence[int], key: int) -> Merged:
    """One message of every worker, merged in this order."""
    first = messages[0]
    if first.merge is Merge.GATHER:
        parts = tuple(message.words for message in messages)
        return Merged(first.words[:0], len(messages), parts=parts)
    words = merge_all(first.merge, [messages[rank].words for rank in order], key, first.table)
    if first.floats is not None:
        return _with_floats([messages[rank] for rank in order], words)
    return Merged(words, len(messages))


def _with_floats(messages: Sequence[Message], words: Words) -> Merged:
    """Merged words, with float32 sums in the place of those that a worker's words or their sum overflow."""
    total = np.zeros(words.size, np.int64)
    is_float = np.zeros(words.size, np.bool_)
    for message in messages:
        total += message.words
        is_float |= np.abs(message.words.astype(np.int64)) >= WORD_MAX
    is_float |= np.abs(total) >= WORD_MAX
    floats = merge_all(
        Merge.FLOAT_ADD, [message.floats for message in messages if message.floats is not None]
    )
    words[is_float] = floats.view(np.int32)[is_float]
    return Merged(words, len(messages), is_float=is_float)


def stage(exchange: Exchange, is_left: Callable[[Message], bool] = lambda message: False) -> Exchange:
    """Exchange the exponents of scaled messages first, then send the quantised words as plain integers.

    Other messages of the same operation travel with the exponents. Exponents become int32 words (MAX), four
    times the bytes that a scaled message announces. An operation all of whose messages `is_left` goes
    on as it is: the network agrees on its exponents itself.
    """
    answers: tuple[Merged, ...] | None = None
    while True:
        sent = _advance(exchange, answers)
        if not isinstance(sent, tuple):
            return sent
        if all(is_left(message) for message in sent):
            answers = yield sent
            continue
        first = yield tuple(_exponents(message) for message in sent)
        scaled = tuple(
            quantized_message(message, merged.words.astype(np.int8))
            for message, merged in zip(sent, first, strict=True)
            if message.scaling is not None
        )
        second = iter((yield scaled) if scaled else ())
        answers = tuple(
            merged
            if message.scaling is None
            else replace(next(second), exponents=merged.words.astype(np.int8))
            for message, merged in zip(sent, first, strict=True)
        )


def _exponents(message: Message) -> Message:
    """The exponents of a scaled message as a message of their own; any other message as it is."""
    if message.scaling is None:
        return message
    words = message.scaling.exponents.astype(np.int32)
    return Message(words, Merge.MAX, f"{message.label} exponents")


def quantized_message(message: Message, exponents: NDArray[np.int8]) -> Message:
    """A scaled message as the integers that its agreed exponents make of it."""
    assert message.scaling is not None, f"message {message.label!r} is not scaled"
    words = np.empty(message.words.size, np.int32)
    quantize(message.words, exponents, message.scaling.block_elements, message.scaling.workers, words)
    return replace(message, words=words, scaling=None)


class Reference(NamedTuple):
    """What merging must give, and whether a true integer sum left int32 on the way."""

    merged: Merged
    has_left_int32: bool


def merged_reference(messages: Sequence[Message]) -> Reference:
    """Right result of merging one message of every worker (by rank), in any order: an oracle for checks.

    Plain NumPy on 64-bit integers, chunk by chunk; shares no code with the merge and quantisation kernels.
    Scaled messages are quantised with the largest of their exponents. Sums are modulo 2**32, as on hosts.

    Raises
    ------
    ValueError
        FLOAT_ADD and SIGN, whose results depend on the order or on chance.
    """
    first = messages[0]
    if first.merge is Merge.GATHER:
        parts = tuple(message.words for message in messages)
        return Reference(Merged(first.words[:0], len(messages), parts=parts), False)
    if first.merge not in ORDER_FREE:
        raise ValueError(
            f"{first.merge.value} has no single right result: it depends on the order or on chance; "
            f"only {', '.join(sorted(merge.value for merge in ORDER_FREE))} and gather have one"
        )
    unite = {Merge.OR: np.bitwise_or, Merge.MAX: np.maximum}.get(first.merge, np.add)
    exponents = _largest_exponents(messages)
    lanes = 8 if first.merge is Merge.TABLE_ADD and first.words.dtype == np.uint32 else 1
    words = np.empty(lanes * first.words.size, np.uint32 if first.merge is Merge.OR else np.int32)
    has_left_int32 = False
    for begin in range(0, first.words.size, _CHUNK_WORDS):
        chunk = slice(begin, min(begin + _CHUNK_WORDS, first.words.size))
        total = _integers(first, chunk, exponents)
        for message in messages[1:]:
            unite(total, _integers(message, chunk, exponents), out=total)
        words[lanes * chunk.start : lanes * chunk.stop] = total.astype(words.dtype)
        if first.merge is not Merge.OR:
            has_left_int32 |= bool(total.max() > 2**31 - 1 or total.min() < -(2**31))
    return Reference(Merged(words, len(messages), exponents), has_left_int32)


def _largest_exponents(messages: Sequence[Message]) -> NDArray[np.int8] | None:
    """Agreed exponents of scaled messages; None for others."""
    exponents = [message.scaling.exponents for message in messages if message.scaling is not None]
    return np.maximum.reduce(exponents) if exponents else None


def _integers(message: Message, chunk: slice, exponents: NDArray[np.int8] | None) -> NDArray[np.int64]:
    """What some words of a message stand for: themselves, scaled integers, or the table's values of codes."""
    words = message.words[chunk]
    if message.table is not None and words.dtype == np.uint32:
        codes = (words[:, np.newaxis] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
        words = message.table[codes].reshape(-1)
    if message.scaling is None or exponents is None:
        return np.array(words, np.int64)
    block_of_word = np.arange(chunk.start, chunk.stop) // message.scaling.block_elements
    workers = message.scaling.workers
    full = np.float32(2**31 - 1 if workers <= 255 else 2**31 - 256 - workers)
    scales = full / np.ldexp(np.float32(workers), exponents.astype(np.int32))
    return np.asarray(np.rint(words * scales[block_of_word]), np.int64)
