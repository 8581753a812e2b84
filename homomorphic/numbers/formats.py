"""How float32 becomes words that can be added: the number formats, apart from where the words go.

| values | words | merge | agreed first, per block | the sum |
|---|---|---|---|---|
| block_exponent | one int32 | ADD | the largest exponent | to a step of its block, see `block_exponent` |
| float32 | one float32 | FLOAT_ADD | nothing | rounded wherever two meet |
| exact | K int32 digits | ADD | highest and lowest bit in use | rounded once, see `exact` |

A format sees compact arrays: the values of some elements (all, or the members of an index) in ascending
order, cut where the blocks of the gradient are. With `starts` (blocks + 1,), block b's values begin at
`starts[b] - starts[0]`, so a slice of starts goes with a slice of values.

Words lie in groups of `group_blocks` blocks. A group of m values has K · m words, where K is the most digits
that one of its blocks needs: the lowest digits of all values, then all the next ones. Digits that a block
does not need are zero. A part that begins with a group is coded by itself, so threads may share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.codec import Gradient, Merge, Merged, Message, Round, Words
from netfold.homomorphic.numbers.block_exponent import BlockExponent
from netfold.homomorphic.numbers.compact import Compact
from netfold.homomorphic.numbers.exact import Exact

Values = Literal["block_exponent", "float32", "exact"]
Starts = NDArray[np.int64]  # (blocks + 1,)


class Agreed(Protocol):
    """What all workers know about a round's numbers."""

    @property
    def digits(self) -> NDArray[np.int64]:
        """Words per value, `(blocks,)`."""
        ...

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        """Write the words of one worker's values, as many as `word_starts` says."""
        ...

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Write the values of merged words; return how many finite sums are infinite in float32."""
        ...

    def part(self, first_block: int, last_block: int) -> Self:
        """What is agreed about blocks `first_block` to `last_block − 1`."""
        ...

    def covers(self, actual: Self) -> NDArray[np.bool_]:
        """Whether words made with this, a forecast, are right given what turned out, `(blocks,)`.

        Words of blocks that are not covered mean nothing.
        """
        ...


A = TypeVar("A", bound=Agreed)


class NumberFormat(Protocol[A]):
    """A way to write numbers; it keeps no state."""

    merge: ClassVar[Merge]  # of its words
    dtype: ClassVar[type[np.generic]]  # of its words
    label: ClassVar[str]  # of the message it announces, if any

    @property
    def block_elements(self) -> int:
        """Elements that agree on something together."""
        ...

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """What the workers must agree on first, merged by MAX; one message or none.

        What is left out of `nonzeros` must be zero.

        Raises
        ------
        EncodeError
            An element that the format cannot carry.
        """
        ...

    def agree(self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round) -> A:
        """What follows from the merged announcements; `sent` are this worker's own.

        Raises
        ------
        DecodeError
            What was merged contradicts what was sent.
        """
        ...

    def forecast(self, history: Sequence[A]) -> A:
        """What will do for the next round of a bucket, from earlier ones (at least one)."""
        ...

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        """Largest `|decoded − Σ gradients|`, for the sum taken in float64."""
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
    """Merges of its messages."""
    return frozenset({Merge.FLOAT_ADD}) if values == "float32" else frozenset({Merge.MAX, Merge.ADD})


def word_starts(agreed: Agreed, starts: Starts, group_blocks: int) -> NDArray[np.int64]:
    """Where the words of each group begin, and last how many there are: `(groups + 1,)`."""
    blocks = agreed.digits.size
    if blocks == 0:
        return np.zeros(1, np.int64)
    firsts = np.arange(0, blocks, group_blocks)
    members = np.diff(np.append(starts[firsts], starts[blocks]))
    counts = members * np.maximum.reduceat(agreed.digits, firsts)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@dataclass(frozen=True)
class AgreedNothing:
    """Floats need no agreement."""

    blocks: int

    @property
    def digits(self) -> NDArray[np.int64]:
        """One word per value."""
        return np.ones(self.blocks, np.int64)

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        """Copy the values; groups make no difference to single words."""
        np.copyto(words, values)

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Copy the sums; infinite ones are what the network added up, and not counted."""
        np.copyto(values, words)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedNothing:
        """Some blocks."""
        return AgreedNothing(last_block - first_block)

    def covers(self, actual: AgreedNothing) -> NDArray[np.bool_]:
        """Every block: there is nothing that could turn out otherwise."""
        return np.ones(self.blocks, np.bool_)


@dataclass(frozen=True)
class Float32:
    """The values themselves; NaN and infinity go where float32 addition takes them."""

    merge: ClassVar[Merge] = Merge.FLOAT_ADD
    dtype: ClassVar[type[np.generic]] = np.float32
    label: ClassVar[str] = ""

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """Nothing."""
        return ()

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedNothing:
        """Nothing but the number of blocks."""
        return AgreedNothing(-(-elements // self.block_elements))

    def forecast(self, history: Sequence[AgreedNothing]) -> AgreedNothing:
        """As ever."""
        return history[-1]

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        """That of float32 additions in any order."""
        return FloatAddBound(len(gradients))
