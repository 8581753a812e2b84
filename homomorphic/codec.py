"""What an encoding is: a generator of mergeable messages.

The registry finds a codec by its `kind`. A codec makes one `Encoder` per worker. All workers' encoders run
the same generator in lock-step: each `yield` sends the messages of one network operation and receives them
merged, and the generator returns the decoded **sum** over workers. This covers a max-exponent exchange before
the values, an index union before packed values, a second exact round after a sketch, a skip flag, or a dense
retry.

    merged = yield (Message(...), Message(...))     # sent at the same time, merged independently
    ...
    return decoded                                  # float32, the sum over workers, length of the gradient

Lock-step means: in every operation all workers send the same number of messages, with the same merges, labels
and lengths. Only GATHER messages may differ in length. A message may have no words: it completes at once and
nothing is sent.

Any driver can run the generators: `homomorphic.fold.fold` in one process, a simulated collective, or a
communication hook over real process groups.
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
    """How two messages of one network operation combine (see `homomorphic.merge`).

    Each has a name in scenarios and reports, a number in compiled code, and the types of words it takes.
    """

    number: int
    dtypes: tuple[type[np.generic], ...]

    def __new__(cls, name: str, number: int, *dtypes: type[np.generic]) -> Merge:
        """Make the name the value: `Merge("add")`."""
        merge = object.__new__(cls)
        merge._value_, merge.number, merge.dtypes = name, number, dtypes
        return merge

    ADD = "add", 0, np.int32  # hosts wrap; a switch does what its profile says
    OR = "or", 1, np.uint32  # bitwise union
    MAX = "max", 2, np.int32  # the larger
    FLOAT_ADD = "float_add", 3, np.float32  # order-dependent
    SIGN = "sign", 4, np.uint32  # one random worker's bit survives per position; carries worker counts
    TABLE_ADD = "table_add", 5, np.uint32, np.int32  # 4-bit codes, which a table lifts to integers; or these
    GATHER = "gather", 6  # cannot be merged: every worker must receive every message

    @property
    def lanes(self) -> int:
        """Merged words for each word sent: TABLE_ADD turns each 4-bit code of a word into a word."""
        return 8 if self is Merge.TABLE_ADD else 1


MERGEABLE = frozenset(Merge) - {Merge.GATHER}  # by switches and hosts, on the way
ORDER_FREE = frozenset({Merge.ADD, Merge.OR, Merge.MAX, Merge.TABLE_ADD})  # same bits in any order


@dataclass(frozen=True)
class Work:
    """Memory traffic of encoding or decoding a message, in bytes; device models charge for it."""

    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(frozen=True)
class Scaling:
    """Block floating point whose exponents the network agrees on: float32 words become int32 block by block.

    Each worker announces the exponent of each block (MAX over workers); a block is quantised with the agreed
    exponent just before it is sent (`homomorphic.numbers.exponents.quantize_block`). Some networks pipeline
    the two (SwitchML sends exponents one window ahead); `homomorphic.stage.stage` splits them for the others.
    """

    exponents: NDArray[np.int8]  # (blocks,)
    block_elements: int
    workers: int


@dataclass(frozen=True)
class Message:
    """One worker's message in one network operation."""

    words: Words
    merge: Merge
    label: str  # its name in reports: "index", "values", "redo" …
    work: Work = Work()
    scaling: Scaling | None = None  # words are float32 to be sent as scaled int32
    table: NDArray[np.int32] | None = None  # TABLE_ADD: the value of each code, shared by all workers
    decode_work: Work = Work()  # of each worker for the merged message, charged when it arrives
    floats: NDArray[np.float32] | None = None  # added in place of words whose sum leaves int32

    @property
    def kind(self) -> tuple[object, ...]:
        """What the messages of all workers must have in common to be merged."""
        size = None if self.merge is Merge.GATHER else self.words.size
        return self.label, self.merge, size, self.words.dtype, self.scaling is None, self.floats is None

    @property
    def size_bytes(self) -> int:
        """Payload bytes that the message announces: its words, and one byte per block exponent."""
        exponents = 0 if self.scaling is None else self.scaling.exponents.size
        return int(self.words.size) * self.words.itemsize + exponents


@dataclass(frozen=True)
class Holders:
    """The workers that contributed to each unit of merged words: bit r of `bitmaps` is worker r."""

    bitmaps: NDArray[np.uint32]  # (units,)
    unit_words: int  # the last unit may be shorter


@dataclass(frozen=True)
class Merged:
    """A merged message: its words, and how many workers contributed.

    Workers may share the words: do not write to them.
    """

    words: Words  # of TABLE_ADD: int32 lanes; of GATHER: empty
    workers: int
    exponents: NDArray[np.int8] | None = None  # of a scaled message: agreed exponents; its words are int32
    parts: tuple[Words, ...] = ()  # GATHER: every worker's words, in rank order
    is_float: NDArray[np.bool_] | None = None  # words that hold the bits of a float32 sum
    holders: Holders | None = None  # the contributors, where some may be missing


class NoteKind(Enum):
    """The subject of a note."""

    CHOICE = "choice"  # the encoding that was chosen, and why
    REDO = "redo"  # parts that did not decode and were sent again
    FORECAST = "forecast"  # parts that differed from the forecast and were sent again
    ESTIMATE = "estimate"  # elements of the decoded sum that are estimates
    INFINITE = "infinite"  # elements whose true sum is beyond float32 and became an infinity


@dataclass(frozen=True)
class Note:
    """What a codec reports of one round; all workers report the same."""

    kind: NoteKind
    text: str  # a sentence without a full stop; for a choice: its name, a colon, the reason
    count: int = 1  # affected items
    total: int = 1  # all items
    elements: NDArray[np.int64] | None = None  # for estimates and infinities: their elements, ascending

    @property
    def name(self) -> str:
        """The name of the choice."""
        return self.text.partition(":")[0]


def _ignore_note(note: Note) -> None:
    """Default: notes are discarded."""


@dataclass(frozen=True)
class Round:
    """One aggregation of one bucket; the same for all workers."""

    step: int
    bucket: int
    workers: int
    seed: int
    takes_floats: bool = False  # the network adds a message's `floats` where its words overflow
    report: Callable[[Note], None] = field(default=_ignore_note, compare=False)


Exchange = Generator[tuple[Message, ...], tuple[Merged, ...], Gradient]


def advance(exchange: Exchange, answers: tuple[Merged, ...] | None) -> tuple[Message, ...] | Gradient:
    """Send merged messages (None at the start) into an exchange; return its next messages or decoded sum."""
    try:
        return next(exchange) if answers is None else exchange.send(answers)
    except StopIteration as stop:
        decoded: Gradient = stop.value
        return decoded


class Encoder(Protocol):
    """One worker's side of a codec, with its state (error feedback, stale model, …)."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Yield messages, receive them merged, return the decoded float32 sum over workers.

        The caller may change the sum, unless it is read-only: then other workers may share it.

        Raises
        ------
        EncodeError
            The gradient cannot be represented; the message names the element and the reason.
        DecodeError
            The merged messages contradict each other and no retry can help.
        """
        ...


class Codec(Protocol):
    """A frozen dataclass whose fields are the options a scenario may set.

    Optional abilities are separate protocols: `Adaptable`, `Wrapping`, `Limited`.
    """

    kind: ClassVar[str]

    @property
    def exact(self) -> bool:
        """Whether the decoded sum has the same bits in any merge order."""
        ...

    @property
    def merges(self) -> frozenset[Merge]:
        """Merges of its messages; the network must support them."""
        ...

    @property
    def is_linear(self) -> bool:
        """Whether a round is one message that, summed over some workers, decodes to their gradients' sum."""
        ...

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """Make the encoder of one worker."""
        ...

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Largest allowed `|decoded − Σ gradients|`, with the sum in float64, part by part."""
        ...


class MessageSize(NamedTuple):
    """Size of one message."""

    words: int
    block_elements: int = 0  # elements that share an exponent; 0: not scaled


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """A model of the network's time for messages and of a worker's time for memory traffic.

    This one serves where the network is unknown: an operation takes a latency, and its words take the time
    that a rate gives them. Simulated collectives have other carriers.
    """

    unit_elements: int = 256  # what the network sends, answers and retransmits as one
    latency_ps: int = 10 * 10**6  # of an operation, in addition to its words at the rate
    rate_bps: int = 100 * 10**9  # of the words of messages, without headers
    memory_bps: int | None = None  # of a worker's memory traffic; None: not charged

    def time_ps(self, operation: Sequence[MessageSize]) -> int:
        """Time of messages sent at once; exponents take an operation before them, as in `stage.stage`."""
        first = [-(-size.words // (size.block_elements or 1)) for size in operation]
        return self.plain_ps(first) + self.plain_ps([size.words for size in operation if size.block_elements])

    def plain_ps(self, messages: Sequence[int]) -> int:
        """Time of unscaled messages of these numbers of words, sent at once."""
        words = sum(messages)
        return self.latency_ps + self.words_ps(words) if words else 0

    def words_ps(self, words: int) -> int:
        """Time of consecutive words at the rate."""
        return -(-32 * words * _PS_PER_S // self.rate_bps)

    def memory_ps(self, passed_bytes: int) -> int:
        """Time of a worker's memory traffic."""
        return 0 if self.memory_bps is None else -(-8 * passed_bytes * _PS_PER_S // self.memory_bps)


@runtime_checkable
class Adaptable(Protocol):
    """A codec with options that default to the network's values."""

    def carried_by(self, carrier: Carrier) -> Codec:
        """Return the codec with these options filled in."""
        ...


@runtime_checkable
class Wrapping(Protocol):
    """A codec whose partial sums may leave int32: the result is right if adders wrap."""

    @property
    def wrap_reason(self) -> str:
        """What may fail if adders do not wrap, and why; no full stop."""
        ...


class CodecRefusal(NamedTuple):
    """Why a codec cannot be used."""

    option: str  # the codec's option that is at fault
    reason: str
    remedy: str  # what to write instead


@runtime_checkable
class Limited(Protocol):
    """A codec with a limit on workers."""

    def refusal(self, workers: int, overflow: str) -> CodecRefusal | None:
        """Why it cannot serve these workers, or None. `overflow` of int32 sums: wrap, saturate or sticky."""
        ...


class EncodeError(ValueError):
    """A gradient that this codec cannot carry."""


class DecodeError(RuntimeError):
    """Merged messages that cannot be decoded and cannot be redone."""


C = TypeVar("C", bound=type)
_registry: dict[str, type] = {}


def register(codec: C) -> C:
    """Class decorator: add a codec to the registry under its `kind`."""
    _registry[codec.kind] = codec  # type: ignore[attr-defined]
    return codec


def codec_kinds() -> dict[str, Callable[..., Codec]]:
    """All registered codecs by kind, in alphabetical order."""
    return dict(sorted(_registry.items()))
