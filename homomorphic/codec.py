"""What an encoding is: a generator of mergeable messages.

A codec is found by its `kind` in a registry and makes one `Encoder` per worker. All workers' encoders run the
same generator in lock-step: each `yield` hands over the messages of one network operation and receives them
merged, and the generator returns the decoded **sum** over workers. One shape carries a max-exponent exchange
before the values, an index union before packed values, a second exact round after a sketch, a skip flag, or a
dense retry.

    merged = yield (Message(...), Message(...))     # sent at the same time, merged independently
    ...
    return decoded                                  # float32, the sum over workers, length of the gradient

In lock-step means: in every operation all workers send as many messages, with the same merges, labels and
lengths. Only GATHER messages may differ in length. A message may have no words: it completes at once and
nothing travels.

Who drives the generators does not matter to them: `homomorphic.fold.fold` in one process, a simulated
collective, or a communication hook over real process groups.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound

Words = NDArray[Any]  # 1-D; int32 (ADD, MAX), uint32 (OR, SIGN, TABLE_ADD) or float32 (FLOAT_ADD)
Gradient = NDArray[np.float32]
WORD_MAX = 2**31 - 1  # the largest int32

_PS_PER_S = 10**12


class Merge(Enum):
    """How two messages of one network operation combine, wherever they meet (see `homomorphic.merge`).

    Of each: its name in scenarios and reports, its number in compiled code, the types of words it takes.
    """

    number: int
    dtypes: tuple[type[np.generic], ...]

    def __new__(cls, name: str, number: int, *dtypes: type[np.generic]) -> Merge:
        """Known by its name: `Merge("add")`."""
        merge = object.__new__(cls)
        merge._value_, merge.number, merge.dtypes = name, number, dtypes
        return merge

    ADD = "add", 0, np.int32  # hosts wrap, a switch does what its profile says
    OR = "or", 1, np.uint32  # bitwise union
    MAX = "max", 2, np.int32  # the larger
    FLOAT_ADD = "float_add", 3, np.float32  # order-dependent
    SIGN = "sign", 4, np.uint32  # one random worker's bit survives per position; carries worker counts
    TABLE_ADD = "table_add", 5, np.uint32, np.int32  # 4-bit codes, which a table lifts to integers; or these
    GATHER = "gather", 6  # cannot be merged: every worker must receive every message

    @property
    def lanes(self) -> int:
        """Merged words for each word sent: TABLE_ADD lifts each of the 4-bit codes of a word to a word."""
        return 8 if self is Merge.TABLE_ADD else 1


MERGEABLE = frozenset(Merge) - {Merge.GATHER}  # by switches and hosts, on the way
ORDER_FREE = frozenset({Merge.ADD, Merge.OR, Merge.MAX, Merge.TABLE_ADD})  # same bits whatever the order


@dataclass(frozen=True)
class Work:
    """Memory traffic of producing a message or a decode, in bytes: what a device model charges for."""

    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(frozen=True)
class Scaling:
    """Block floating point agreed on the way: the message's float32 words become int32 block by block.

    Each worker announces the exponent of each block (MAX over workers); a block is quantised with the agreed
    exponent just before it is sent (`homomorphic.numbers.exponents.quantize_block`). A network that can
    pipeline the two does (SwitchML sends exponents one window ahead); `homomorphic.stage.stage` splits them
    for others.
    """

    exponents: NDArray[np.int8]  # (blocks,)
    block_elements: int
    workers: int


@dataclass(frozen=True)
class Message:
    """What one worker puts into one network operation."""

    words: Words
    merge: Merge
    label: str  # the name it has in reports: "index", "values", "redo" …
    work: Work = Work()
    scaling: Scaling | None = None  # words are float32 to be sent as scaled int32
    table: NDArray[np.int32] | None = None  # TABLE_ADD: the value of each code, shared by all workers
    decode_work: Work = Work()  # what digesting the merged message costs each worker, charged when it arrives
    floats: NDArray[np.float32] | None = None  # to be added in place of words whose sum leaves int32

    @property
    def kind(self) -> tuple[object, ...]:
        """What the messages of all workers must have in common to be merged."""
        size = None if self.merge is Merge.GATHER else self.words.size
        return self.label, self.merge, size, self.words.dtype, self.scaling is None, self.floats is None

    @property
    def size_bytes(self) -> int:
        """Bytes of payload the message announces: its words, and one byte per block exponent."""
        exponents = 0 if self.scaling is None else self.scaling.exponents.size
        return int(self.words.size) * self.words.itemsize + exponents


@dataclass(frozen=True)
class Holders:
    """The workers that are in each unit of merged words: bit r of `bitmaps` is worker r."""

    bitmaps: NDArray[np.uint32]  # (units,)
    unit_words: int  # the last unit may be shorter


@dataclass(frozen=True)
class Merged:
    """What came back: the merged words and how many workers they hold.

    The words may be shared with other workers: they are read, never written.
    """

    words: Words  # of TABLE_ADD: int32 lanes; of GATHER: empty
    workers: int
    exponents: NDArray[np.int8] | None = None  # of a scaled message: agreed exponents; its words are int32
    parts: tuple[Words, ...] = ()  # GATHER: every worker's words, in rank order
    is_float: NDArray[np.bool_] | None = None  # words whose bits are those of a float32 sum
    holders: Holders | None = None  # who is in it where that may not be all


class NoteKind(Enum):
    """What a note is about."""

    CHOICE = "choice"  # which encoding was taken, and why
    REDO = "redo"  # parts that could not be decoded and were sent again
    FORECAST = "forecast"  # parts sent on a forecast that did not suit, and sent again
    ESTIMATE = "estimate"  # elements of the decoded sum that are estimates
    INFINITE = "infinite"  # elements whose true sum is beyond float32 and became an infinity


@dataclass(frozen=True)
class Note:
    """What a reader of the results must be told of one round; all workers tell the same."""

    kind: NoteKind
    text: str  # a sentence without a full stop; of a choice its name first, then a colon
    count: int = 1  # of what it is about …
    total: int = 1  # … out of so many
    elements: NDArray[np.int64] | None = None  # estimates, infinities: which, in ascending order

    @property
    def name(self) -> str:
        """What was chosen."""
        return self.text.partition(":")[0]


def _untold(note: Note) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Round:
    """One aggregation of one bucket; the same for all workers."""

    step: int
    bucket: int
    workers: int
    seed: int
    takes_floats: bool = False  # the network adds a message's `floats` where its words overflow
    tell: Callable[[Note], None] = field(default=_untold, compare=False)


Exchange = Generator[tuple[Message, ...], tuple[Merged, ...], Gradient]


def advance(exchange: Exchange, answers: tuple[Merged, ...] | None) -> tuple[Message, ...] | Gradient:
    """Hand an exchange what came back, None at its start; its next messages, or its decoded sum."""
    try:
        return next(exchange) if answers is None else exchange.send(answers)
    except StopIteration as stop:
        decoded: Gradient = stop.value
        return decoded


class Encoder(Protocol):
    """One worker's side of a codec; owns its state (error feedback, stale model, …)."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Yield messages, receive them merged, return the decoded float32 sum over workers.

        The sum is the caller's to change, unless it is read-only: then other workers may share it.

        Raises
        ------
        EncodeError
            The gradient cannot be represented (says which element and why).
        DecodeError
            The merged messages contradict each other and no retry can help.
        """
        ...


class Codec(Protocol):
    """A frozen dataclass whose fields are the options a scenario may set.

    What only some codecs have is a protocol of its own: `Adaptable`, `Wrapping`, `Limited`.
    """

    kind: ClassVar[str]

    @property
    def exact(self) -> bool:
        """Whether the decoded sum has the same bits whatever the merge order."""
        ...

    @property
    def merges(self) -> frozenset[Merge]:
        """Merges of its messages: what a network must be able to do."""
        ...

    @property
    def is_linear(self) -> bool:
        """Whether a round is one message that, summed over some workers, decodes to their gradients' sum."""
        ...

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """Encoder of one worker."""
        ...

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Largest allowed `|decoded − Σ gradients|`, for the sum taken in float64, part by part."""
        ...


class MessageSize(NamedTuple):
    """What a network is asked to carry of one message."""

    words: int
    block_elements: int = 0  # of a scaled message: elements that share an exponent


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """How long a network takes for messages, and a worker to pass over memory.

    This one is for where nothing is known of the network: an operation takes a latency, and its words the
    time that a rate gives them. Simulated collectives have carriers of their own.
    """

    unit_elements: int = 256  # what the network sends and answers as one
    latency_ps: int = 10 * 10**6  # of an operation, beside the time that its words take at the rate
    rate_bps: int = 100 * 10**9  # of the words of messages, headers left out
    memory_bps: int | None = None  # at which workers pass over memory; None: nothing is charged for it

    def time_ps(self, operation: Sequence[MessageSize]) -> int:
        """Of messages sent at once; agreed exponents take an operation before them, as in `fold.stage`."""
        first = [-(-size.words // (size.block_elements or 1)) for size in operation]
        return self.plain_ps(first) + self.plain_ps([size.words for size in operation if size.block_elements])

    def plain_ps(self, messages: Sequence[int]) -> int:
        """Of messages of so many words sent at once, none of them scaled."""
        words = sum(messages)
        return self.latency_ps + self.words_ps(words) if words else 0

    def words_ps(self, words: int) -> int:
        """Of words that follow each other, at the rate."""
        return -(-32 * words * _PS_PER_S // self.rate_bps)

    def memory_ps(self, passed_bytes: int) -> int:
        """Of a worker that passes over so much memory."""
        return 0 if self.memory_bps is None else -(-8 * passed_bytes * _PS_PER_S // self.memory_bps)


@runtime_checkable
class Adaptable(Protocol):
    """A codec with options that are the network's where they are left out."""

    def carried_by(self, carrier: Carrier) -> Codec:
        """Return the codec with those options filled in."""
        ...


@runtime_checkable
class Wrapping(Protocol):
    """A codec whose sums may leave int32 on the way: nothing is lost if adders wrap."""

    @property
    def wrap_reason(self) -> str:
        """What may fail where adders do not wrap, and why; no full stop."""
        ...


class Refusal(NamedTuple):
    """Why a codec cannot be used."""

    option: str  # of the codec
    reason: str
    remedy: str  # options as they may be written instead


@runtime_checkable
class Limited(Protocol):
    """A codec whose sums have room for so many workers and no more."""

    def refusal(self, workers: int, overflow: str) -> Refusal | None:
        """Of so many workers; None if they fit. `overflow`: of int32 sums: wrap, saturate or sticky."""
        ...


class EncodeError(ValueError):
    """A gradient that this codec cannot carry."""


class DecodeError(RuntimeError):
    """Merged messages that cannot be decoded and cannot be redone."""


C = TypeVar("C", bound=type)
_registry: dict[str, type] = {}


def register(codec: C) -> C:
    """Class decorator: make a codec known under its `kind`."""
    _registry[codec.kind] = codec  # type: ignore[attr-defined]
    return codec


def codec_kinds() -> dict[str, Callable[..., Codec]]:
    """All registered codecs by kind, in alphabetical order."""
    return dict(sorted(_registry.items()))
