"""The number formats: how a float32 becomes words that can be added.

| values | words | merge | agreed first, per block | the sum |
|---|---|---|---|---|
| block_exponent | one int32 | ADD | the largest exponent | to a step of its block, see `exponents` |
| float32 | one float32 | FLOAT_ADD | nothing | rounded at each addition |
| exact | K int32 digits | ADD | highest and lowest bit in use | rounded once, see `exact_sums` |

A format reads compact arrays: the values of some elements (all, or the members of an index) in ascending
order, cut at the blocks of the gradient. With `starts` (blocks + 1,), block b's values begin at
`starts[b] - starts[0]`, so a slice of starts goes with a slice of values.

Words are in groups of `group_blocks` blocks. A group of m values has K · m words, where K is the most digits
that one of its blocks needs: the lowest digits of all values, then the next digits, and so on. Digits that a
block does not need are zero. Groups are coded independently, so threads may share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic import exponents
from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.codec import Decoded, Exchange, Promise, advance
from netfold.homomorphic.exact_sums import Exact
from netfold.homomorphic.exponents import (
    Compact,
    block_starts,
    check_maxima,
    largest_so_far,
    quantize,
    scales_of,
)
from netfold.homomorphic.message import EXPONENT_MIN, Gradient, Merge, Merged, Message, Round, Words, Work

# Block floating point on compact arrays: a float32 becomes an integer multiple of its block's agreed step.
#
# The arithmetic is in `exponents`. A block of zeros announces a special exponent. Steps may come from a
# forecast: they must be safe and may be a little too coarse.


SPARE_BITS = 3  # a forecast exponent may exceed the actual one by this much


@dataclass(frozen=True)
class AgreedExponents:
    """The largest exponent of each block over all workers."""

    exponents: NDArray[np.int32]  # (blocks,); `exponents.empty_exponent` where all values are zero
    workers: int

    @property
    def digits(self) -> NDArray[np.int64]:
        return np.ones(self.exponents.size, np.int64)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """Integers per unit of value, `(blocks,)`."""
        least = np.int32(exponents.smallest_exponent(self.workers))
        return exponents.scales_of(np.maximum(self.exponents, least), self.workers)

    def encode(self, values: Gradient, starts: NDArray[np.int64], group_blocks: int, words: Words) -> None:
        # Groups do not matter for single words.
        exponents.quantize(values, starts, self.scales, words)

    def decode(self, words: Words, starts: NDArray[np.int64], group_blocks: int, values: Gradient) -> int:
        """Multiply by steps; no sum is infinite."""
        exponents.dequantize(words, starts, self.scales, values)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedExponents:
        return AgreedExponents(self.exponents[first_block:last_block], self.workers)

    def covers(self, actual: AgreedExponents) -> NDArray[np.bool_]:
        """Blocks whose steps are neither too fine nor much too coarse, and blocks of zeros."""
        is_empty = actual.exponents == exponents.empty_exponent(self.workers)
        excess = self.exponents - actual.exponents
        return np.asarray(is_empty | ((excess >= 0) & (excess <= SPARE_BITS)))


@dataclass(frozen=True)
class BlockExponent:
    """Block floating point: values become integer multiples of their block's agreed step."""

    merge: ClassVar[Merge] = Merge.ADD
    dtype: ClassVar[type[np.generic]] = np.int32
    label: ClassVar[str] = "exponents"

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """Announce one exponent per block."""
        words = exponents.announced_exponents(nonzeros, round.workers)
        return (Message(words, Merge.MAX, self.label, Work(nonzeros.values.nbytes, words.nbytes)),)

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedExponents:
        """Take the largest exponents."""
        limit = exponents.largest_exponent(round.workers)
        check_maxima("exponent", sent[0].words, merged[0].words, limit)
        return AgreedExponents(merged[0].words, round.workers)

    def forecast(self, history: Sequence[AgreedExponents]) -> AgreedExponents:
        """One more than the largest exponent so far; for empty blocks, than that of their neighbours."""
        workers = history[-1].workers
        empty = exponents.empty_exponent(workers)
        largest = largest_so_far([one.exponents for one in history], empty)
        raised = np.minimum(largest + np.int32(1), np.int32(exponents.largest_exponent(workers)))
        return AgreedExponents(np.where(largest == empty, largest, raised), workers)

    def record(self, agreed: AgreedExponents) -> NDArray[np.int32]:
        return agreed.exponents

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedExponents:
        return AgreedExponents(words, workers)

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        return exponents.error_bound(gradients, self.block_elements, SPARE_BITS if is_forecast else 0)


Values = Literal["block_exponent", "float32", "exact"]
Starts = NDArray[np.int64]  # (blocks + 1,)


class Agreed(Protocol):
    """The agreement of all workers on a round's numbers."""

    @property
    def digits(self) -> NDArray[np.int64]:
        # Words per value, `(blocks,)`.
        ...

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        # Writes as many words as `word_starts` says.
        ...

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Write the values of merged words; return the number of finite sums that are infinite in float32."""
        ...

    def part(self, first_block: int, last_block: int) -> Self:
        # `last_block` itself is left out.
        ...

    def covers(self, actual: Self) -> NDArray[np.bool_]:
        """Whether words made with this forecast are right for the actual numbers, `(blocks,)`.

        Words of blocks that are not covered are meaningless.
        """
        ...


A = TypeVar("A", bound=Agreed)


class NumberFormat(Protocol[A]):
    """A number format, without state."""

    merge: ClassVar[Merge]
    """Merge of its words."""
    dtype: ClassVar[type[np.generic]]
    """Type of its words."""
    label: ClassVar[str]
    """Label of the message that it announces, if any."""

    @property
    def block_elements(self) -> int: ...

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """The message for the agreement, merged by MAX; or none.

        Elements that `nonzeros` omits must be zero.

        Raises
        ------
        EncodeError
            An element is out of the format's range.
        """
        ...

    def agree(self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round) -> A:
        """Make the agreement from the merged announcements; `sent` are this worker's.

        Raises
        ------
        DecodeError
            The merged announcements contradict the sent ones.
        """
        ...

    def forecast(self, history: Sequence[A]) -> A:
        # From at least one earlier round of the bucket, for its next.
        ...

    def record(self, agreed: A) -> NDArray[np.int32]: ...

    def recall(self, words: NDArray[np.int32], workers: int) -> A: ...

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound: ...


def number_format(values: Values, block_elements: int) -> NumberFormat[Any]:
    """The format of this name."""
    formats: dict[Values, Callable[[int], NumberFormat[Any]]] = {
        "block_exponent": BlockExponent,
        "float32": Float32,
        "exact": Exact,
    }
    return formats[values](block_elements)


def number_merges(values: Values) -> frozenset[Merge]:
    return frozenset({Merge.FLOAT_ADD}) if values == "float32" else frozenset({Merge.MAX, Merge.ADD})


def number_promise(values: Values) -> Promise:
    return Promise.EXACT if values == "exact" else Promise.BOUNDED


def word_starts(agreed: Agreed, starts: Starts, group_blocks: int) -> NDArray[np.int64]:
    """Start of each group's words, and the number of words as the last: `(groups + 1,)`."""
    blocks = agreed.digits.size
    if blocks == 0:
        return np.zeros(1, np.int64)
    firsts = np.arange(0, blocks, group_blocks)
    members = np.diff(np.append(starts[firsts], starts[blocks]))
    counts = members * np.maximum.reduceat(agreed.digits, firsts)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@dataclass(frozen=True)
class AgreedNothing:
    """The empty agreement of floats."""

    blocks: int

    @property
    def digits(self) -> NDArray[np.int64]:
        return np.ones(self.blocks, np.int64)

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        # Groups do not matter for single words.
        np.copyto(words, values)

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Copy the sums; infinite ones come from the network and are not counted."""
        np.copyto(values, words)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedNothing:
        return AgreedNothing(last_block - first_block)

    def covers(self, actual: AgreedNothing) -> NDArray[np.bool_]:
        # Floats need no forecast.
        return np.ones(self.blocks, np.bool_)


@dataclass(frozen=True)
class Float32:
    """The values themselves; NaN and infinity propagate as in float32 addition."""

    merge: ClassVar[Merge] = Merge.FLOAT_ADD
    dtype: ClassVar[type[np.generic]] = np.float32
    label: ClassVar[str] = ""

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        return ()

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedNothing:
        return AgreedNothing(-(-elements // self.block_elements))

    def forecast(self, history: Sequence[AgreedNothing]) -> AgreedNothing:
        return history[-1]

    def record(self, agreed: AgreedNothing) -> NDArray[np.int32]:
        return np.array([agreed.blocks], np.int32)

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedNothing:
        return AgreedNothing(int(words[0]))

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        return FloatAddBound(len(gradients))


# Scaled messages in two steps, for networks that do not pipeline exponents and values.


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
