"""The number formats: how a float32 becomes words that can be added.

| values | words | merge | agreed first, per block | the sum |
|---|---|---|---|---|
| block_exponent | one int32 | ADD | the largest exponent | to a step of its block, see `block_exponent` |
| float32 | one float32 | FLOAT_ADD | nothing | rounded at each addition |
| exact | K int32 digits | ADD | highest and lowest bit in use | rounded once, see `exact` |

A format reads compact arrays: the values of some elements (all, or the members of an index) in ascending
order, cut at the blocks of the gradient. With `starts` (blocks + 1,), block b's values begin at
`starts[b] - starts[0]`, so a slice of starts goes with a slice of values.

Words are in groups of `group_blocks` blocks. A group of m values has K · m words, where K is the most digits
that one of its blocks needs: the lowest digits of all values, then the next digits, and so on. Digits that a
block does not need are zero. Groups are coded independently, so threads may share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.codec import Promise
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Words
from netfold.homomorphic.numbers.block_exponent import BlockExponent
from netfold.homomorphic.numbers.compact import Compact
from netfold.homomorphic.numbers.exact import Exact
from netfold.homomorphic.round import Round

Values = Literal["block_exponent", "float32", "exact"]
Starts = NDArray[np.int64]  # (blocks + 1,)


class Agreed(Protocol):
    """The agreement of all workers on a round's numbers."""

    @property
    def digits(self) -> NDArray[np.int64]:
        """Words per value, `(blocks,)`."""
        ...

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        """Write the words of one worker's values, as many as `word_starts` says."""
        ...

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Write the values of merged words; return the number of finite sums that are infinite in float32."""
        ...

    def part(self, first_block: int, last_block: int) -> Self:
        """The agreement on blocks `first_block` to `last_block − 1`."""
        ...

    def covers(self, actual: Self) -> NDArray[np.bool_]:
        """Whether words made with this forecast are right for the actual numbers, `(blocks,)`.

        Words of blocks that are not covered are meaningless.
        """
        ...


A = TypeVar("A", bound=Agreed)


class NumberFormat(Protocol[A]):
    """A number format, without state."""

    merge: ClassVar[Merge]  # of its words
    dtype: ClassVar[type[np.generic]]  # of its words
    label: ClassVar[str]  # of the message it announces, if any

    @property
    def block_elements(self) -> int:
        """Elements of a block."""
        ...

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
        """Forecast the agreement of a bucket's next round from earlier ones (at least one)."""
        ...

    def record(self, agreed: A) -> NDArray[np.int32]:
        """An agreement as words, for `recall`."""
        ...

    def recall(self, words: NDArray[np.int32], workers: int) -> A:
        """The recorded agreement of some workers."""
        ...

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        """Largest `|decoded − Σ gradients|`, with the sum in float64."""
        ...


def number_format(values: Values, block_elements: int) -> NumberFormat[Any]:
    """The format of this name."""
    formats: dict[Values, Callable[[int], NumberFormat[Any]]] = {
        "block_exponent": BlockExponent,
        "float32": Float32,
        "exact": Exact,
    }
    return formats[values](block_elements)


def number_merges(values: Values) -> frozenset[Merge]:
    """Merges of a format's messages."""
    return frozenset({Merge.FLOAT_ADD}) if values == "float32" else frozenset({Merge.MAX, Merge.ADD})


def number_promise(values: Values) -> Promise:
    """What codecs of a format promise."""
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
        """One word per value."""
        return np.ones(self.blocks, np.int64)

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        """Copy the values; groups do not matter for single words."""
        np.copyto(words, values)

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Copy the sums; infinite ones come from the network and are not counted."""
        np.copyto(values, words)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedNothing:
        """A range of blocks."""
        return AgreedNothing(last_block - first_block)

    def covers(self, actual: AgreedNothing) -> NDArray[np.bool_]:
        """Every block: floats need no forecast."""
        return np.ones(self.blocks, np.bool_)


@dataclass(frozen=True)
class Float32:
    """The values themselves; NaN and infinity propagate as in float32 addition."""

    merge: ClassVar[Merge] = Merge.FLOAT_ADD
    dtype: ClassVar[type[np.generic]] = np.float32
    label: ClassVar[str] = ""

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """Announce nothing."""
        return ()

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedNothing:
        """Agree on the number of blocks only."""
        return AgreedNothing(-(-elements // self.block_elements))

    def forecast(self, history: Sequence[AgreedNothing]) -> AgreedNothing:
        """The same as before."""
        return history[-1]

    def record(self, agreed: AgreedNothing) -> NDArray[np.int32]:
        """The number of blocks."""
        return np.array([agreed.blocks], np.int32)

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedNothing:
        """That number of blocks."""
        return AgreedNothing(int(words[0]))

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        """The bound of float32 additions in any order."""
        return FloatAddBound(len(gradients))
