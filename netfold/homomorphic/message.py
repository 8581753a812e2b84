"""Messages of codecs: their words, how two of them combine, and what comes back merged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.bits import identity

Words = NDArray[Any]  # 1-D; int32 (ADD, MAX), uint32 (OR, SIGN, TABLE_ADD, HOST) or float32 (FLOAT_ADD)
Gradient = NDArray[np.float32]
Result = TypeVar("Result", bound=tuple[Any, ...])
WORD_MAX = 2**31 - 1  # the largest int32
WORD_BITS = 32
EXPONENT_MIN = -128  # the smallest int8
LANE_BITS = (4, 8, 16, 32)  # possible widths of the lanes of sums
COUNTER_BITS = 4  # lanes of this width are unsigned, and adders of 32 bits that wrap add them
CODE_BITS = 4
"""Bits of a code of TABLE_ADD."""


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
    TABLE_ADD = "table_add", 5, np.uint32, np.int32  # 4-bit codes, which a table lifts to lanes; or these
    GATHER = "gather", 6  # cannot be merged: every worker must receive every message
    HOST = "host", 7, np.uint32  # merged by a function of the codec (`HostMerge`), on hosts only


MERGEABLE = frozenset(Merge) - {Merge.GATHER, Merge.HOST}
"""Merges that switches and hosts can do on the way."""
ORDER_FREE = frozenset({Merge.ADD, Merge.OR, Merge.MAX, Merge.TABLE_ADD})  # same bits in any order
SUMS = frozenset({Merge.ADD, Merge.TABLE_ADD})
"""Merges that add in lanes of integers."""


def words_per_word(merge: Merge, lane_bits: int) -> int:
    """Merged words for each word sent: TABLE_ADD turns each 4-bit code of a word into a lane."""
    return lane_bits // CODE_BITS if merge is Merge.TABLE_ADD else 1


def check_lanes(merge: Merge, lane_bits: int, table: NDArray[np.int32] | None = None) -> None:
    """Check that a merge has lanes of this width, and that the values of a table fit them.

    Raises
    ------
    ValueError
        What was found, and what is allowed.
    """
    allowed = LANE_BITS if merge is Merge.ADD else LANE_BITS[1:] if merge in SUMS else (WORD_BITS,)
    if lane_bits not in allowed:
        *others, last = map(str, allowed)
        widths = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{merge.value} merges lanes of {widths} bits, found {lane_bits}")
    if table is None:
        return
    if table.shape != (2**CODE_BITS,) or table.dtype != np.int32:
        raise ValueError(
            f"table_add needs a table of 16 int32 values, one per 4-bit code, "
            f"found {table.dtype} of shape {table.shape}"
        )
    most = 2 ** (lane_bits - 1) - 1
    if not -most - 1 <= int(table.min()) <= int(table.max()) <= most:
        raise ValueError(
            f"a table for lanes of {lane_bits} bits has values from {-most - 1} to {most}, "
            f"found {table.min()} to {table.max()}"
        )


@dataclass(frozen=True)
class Work:
    """Work of encoding or decoding a message; device models charge for it."""

    read_bytes: int = 0
    written_bytes: int = 0
    flops: int = 0
    launches: int = 1  # kernels of the device that start one after the other

    @property
    def is_free(self) -> bool:
        """Whether there is none: it takes no time, and starts no kernel."""
        return not (self.read_bytes or self.written_bytes or self.flops)


@dataclass(frozen=True)
class Scaling:
    """Block floating point whose exponents the network agrees on: float32 words become int32 block by block.

    Each worker announces the exponent of each block (MAX over workers); a block is quantised with the agreed
    exponent just before it is sent (`homomorphic.exponents.quantize_block`). Some networks pipeline
    the two (SwitchML sends exponents one window ahead); `homomorphic.drive` splits them for others.
    A worker that is absent has no say in an exponent; if all are, it is `EXPONENT_MIN`.
    """

    exponents: NDArray[np.int8]  # (blocks,); of an absent worker: any
    block_elements: int
    workers: int


class Hop(NamedTuple):
    """One merge on a host."""

    accumulated_workers: int
    arriving_workers: int
    key: int
    """Key of the random draws; every merge has its own."""


class HostMerge(Protocol):
    """A merge that only hosts can do, such as decode, add and encode again, or the union of sparse lists.

    A collective divides a message into parts, merges equal parts of several workers on the way, and joins the
    merged parts. A merged part may have another length than its operands.
    """

    def split(self, words: Words, count: int) -> list[Words]:
        """Divide one worker's words into `count` parts; part i of all workers has the same elements."""

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        """Merge two equal parts; neither is changed."""

    def join(self, parts: Sequence[Words]) -> Words:
        """The words of a whole message from its merged parts."""

    def work(self, accumulated: Words, arriving: Words) -> Work:
        """The work of one merge of such parts."""


@dataclass(frozen=True)
class Message:
    """One worker's message in one network operation.

    With `absent_words` a worker contributes nothing to a message that can be merged: `words` is empty (its
    type, and all else but the exponents, as at the others), and the messages of the others have this many
    words. A header that is counted travels in its place. In GATHER a message without words says the same;
    what one of HOST says is the codec's matter.
    """

    words: Words
    merge: Merge
    label: str  # its name in reports: "index", "values", "fallback" …
    work: Work = Work()
    scaling: Scaling | None = None  # words are float32 to be sent as scaled int32
    table: NDArray[np.int32] | None = None  # TABLE_ADD: the value of each code, shared by all workers
    decode_work: Work = Work()
    """Work of each worker for the merged message, charged when that arrives."""
    floats: NDArray[np.float32] | None = None  # added in place of words whose sum leaves int32
    lane_bits: int = WORD_BITS  # ADD, TABLE_ADD: width of the lanes that are added, packed in words
    absent_words: int = 0
    host_merge: HostMerge | None = None  # HOST
    digest: int = 0
    """Digest of what the words mean, such as a chosen support; workers must agree."""

    def __post_init__(self) -> None:
        """Raise ValueError if the message of an absent worker has words, or cannot be merged."""
        is_on_the_way = self.merge not in (Merge.GATHER, Merge.HOST)
        if self.absent_words and (self.words.size or not is_on_the_way or self.absent_words < 0):
            raise ValueError(
                f"message {self.label!r}: absent_words={self.absent_words} says that its worker contributes "
                f"nothing to a message that can be merged, found {self.words.size} by {self.merge.value}"
            )

    @property
    def is_absent(self) -> bool:
        """Whether the worker contributes nothing to this message."""
        return self.absent_words > 0 or (self.merge is Merge.GATHER and self.words.size == 0)

    @property
    def merged_by(self) -> Merge | HostMerge:
        """What merges two such messages: the function of a HOST message, or the merge."""
        return self.merge if self.host_merge is None else self.host_merge

    @property
    def size(self) -> int:
        """Words of the message, or of those of the others where its worker is absent."""
        return self.absent_words or int(self.words.size)

    @property
    def has_codes(self) -> bool:
        """Whether its words are codes that a table lifts to lanes."""
        return self.merge is Merge.TABLE_ADD and self.words.dtype != np.int32

    @property
    def lanes_per_word(self) -> int:
        """Values in each word sent: codes, or lanes of sums."""
        return WORD_BITS // (CODE_BITS if self.has_codes else self.lane_bits)

    @property
    def merged_words(self) -> int:
        """Words of the merged message for each word sent."""
        return words_per_word(self.merge, self.lane_bits) if self.has_codes else 1

    @property
    def merged_size(self) -> int:
        """Words of the merged message; of GATHER and HOST it is not known."""
        return self.size * self.merged_words

    @property
    def kind(self) -> tuple[object, ...]:
        """What the messages of all workers must have in common to be merged."""
        size = None if self.merge in (Merge.GATHER, Merge.HOST) else self.size
        block_elements = None if self.scaling is None else self.scaling.block_elements
        formats = self.words.dtype, block_elements, self.floats is None, self.lane_bits
        return self.label, self.merge, size, *formats, self.digest

    @property
    def size_bytes(self) -> int:
        """Payload bytes that the message announces: its words, and one byte per block exponent."""
        exponents = 0 if self.scaling is None or self.is_absent else self.scaling.exponents.size
        return int(self.words.size) * self.words.itemsize + exponents


@dataclass(frozen=True)
class Holders:
    """The workers that contributed to each unit of merged words: bit r of `bitmaps` is worker r.

    A worker that is absent is no holder, whether its header was in time or late.
    """

    bitmaps: NDArray[np.uint32]  # (units,)
    unit_words: int  # the last unit may be shorter


@dataclass(frozen=True)
class Merged:
    """A merged message: its words, and who contributed, as the packets say that carried it.

    Workers may share the words: do not write to them. Words that nobody contributed to are those that change
    no others (`homomorphic.merge.unchanged_by`): zeros, of MAX the smallest int32.
    """

    words: Words
    """Merged words; of TABLE_ADD packed lanes, of GATHER none, or a server's answer."""
    workers: int
    """Workers that contributed; with `holders`: to at least one unit."""
    exponents: NDArray[np.int8] | None = None
    """Agreed exponents of a scaled message, whose words are int32."""
    parts: tuple[Words, ...] = ()  # GATHER: every worker's words, in rank order
    is_float: NDArray[np.bool_] | None = None  # words that hold the bits of a float32 sum
    holders: Holders | None = None  # the contributors, where some may be missing
    present: NDArray[np.bool_] | None = None  # (workers,) who contributed; None: all, unknown, or see `parts`
    is_mixed: bool = False  # parts of it say that different workers contributed: something is wrong

    @property
    def size_bytes(self) -> int:
        """Payload bytes of the merged words, their exponents, and the parts of all workers."""
        exponents = 0 if self.exponents is None else self.exponents.size
        return self.words.nbytes + exponents + sum(part.nbytes for part in self.parts)


# What all workers know of a round, what one worker knows of a step, and notes on them.


class NoteKind(Enum):
    """The subject of a note."""

    CHOICE = "choice"  # the encoding that was chosen, and why
    FALLBACK = "fallback"  # parts that did not decode and were sent again
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
    elements: NDArray[np.int64] | None = None
    """Elements of estimates and infinities, in ascending order."""

    @property
    def name(self) -> str:
        """The name of the choice."""
        return self.text.partition(":")[0]


def _ignore_note(note: Note) -> None:
    """Default: notes are discarded."""


class Tensor(NamedTuple):
    """A tensor of a bucket. A layer's weight, bias and norm parameters are always in the same bucket."""

    name: str
    shape: tuple[int, ...]
    layer: str  # the name of its layer; "" if it is none's
    start: int = 0  # offset in the bucket, elements

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)  # unlike NumPy's product, it cannot overflow

    @property
    def place(self) -> slice:
        """Its elements in the bucket."""
        return slice(self.start, self.start + self.elements)


class Decodings:
    """What the workers of a round decoded. Workers that received the same memory share one array."""

    def __init__(self) -> None:
        self._made: list[tuple[str, Sequence[Words], Sequence[NDArray[Any]], object]] = []

    def once(
        self,
        what: str,
        received: Sequence[Words],
        known: Sequence[NDArray[Any]],
        decode: Callable[[], Result],
    ) -> Result:
        """What `decode` makes of received words and of what its worker knows; the first is a sum, read-only.

        It is called unless another worker has decoded the same memory, knowing equal arrays.
        """
        for label, memory, arrays, made in self._made:
            is_same = label == what and list(map(identity, memory)) == list(map(identity, received))
            if is_same and all(map(np.array_equal, arrays, known)):
                return cast(Result, made)
        result = decode()
        result[0].flags.writeable = False  # workers share it
        self._made.append((what, received, known, result))  # its words stay, so no others get their memory
        return result

    def clear(self) -> None:
        """Let go of what was decoded, once the round has ended."""
        self._made.clear()


@dataclass(frozen=True)
class Round:
    """One aggregation of one bucket; the same for all workers."""

    step: int
    bucket: int
    workers: int
    seed: int
    takes_floats: bool = False  # the network adds a message's `floats` where its words overflow
    report: Callable[[Note], None] = field(default=_ignore_note, compare=False)
    tensors: tuple[Tensor, ...] = ()
    """Tensors of the bucket, in order, without gaps; empty: unknown."""
    decodings: Decodings | None = field(default=None, compare=False, repr=False)
    """Of all workers, where one process has several."""

    def once(
        self,
        what: str,
        received: Sequence[Words],
        known: Sequence[NDArray[Any]],
        decode: Callable[[], Result],
    ) -> Result:
        """What `decode` returns, a sum first; see `Decodings.once`."""
        return decode() if self.decodings is None else self.decodings.once(what, received, known, decode)

    def tensors_of(self, gradient: Gradient) -> tuple[Tensor, ...]:
        """The tensors of the bucket; the whole gradient as one vector if they are unknown."""
        return self.tensors or (Tensor("", gradient.shape, ""),)


class StepFact(Enum):
    """A fact about a step that not every driver knows."""

    LEARNING_RATE = "the learning rate"
    UPDATE_NORM = "the norm of the last update"
    ALL_BUCKETS = "the gradients of all buckets before the first is sent"
    KEPT_WEIGHTS = "gradients at weights that a worker has kept"


def _no_kept_gradients() -> Sequence[Gradient]:
    raise RuntimeError("this driver keeps no weights: name StepFact.KEPT_WEIGHTS in the codec's `needs`")


def _keep_nothing() -> None:
    """Default: no weights are kept."""


@dataclass(frozen=True)
class Step:
    """One worker's view of a step before its first bucket."""

    number: int
    learning_rate: float | None = None
    """Learning rate of the sum's mean: weights −= learning_rate · sum / workers."""
    update_norm: float | None = None  # L2 norm of the last update of all weights; None before the first
    gradients: Sequence[Gradient] = ()
    """This worker's gradients of every bucket; only with ALL_BUCKETS."""
    kept_gradients: Callable[[], Sequence[Gradient]] = _no_kept_gradients
    """Gradients of the same batch at the kept weights."""
    keep_weights: Callable[[], None] = _keep_nothing  # keep the weights of this step from now on
