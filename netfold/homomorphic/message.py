"""What a codec sends, and what it knows when it does: messages, rounds, steps, and notes on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import (
    CODE_BITS,
    WORD_BITS,
    HostMerge,
    Merge,
    Merged,
    Words,
    Work,
    merge_all,
    unchanged_by,
    words_per_word,
)
from netfold.kernels.bits import identity

Gradient = NDArray[np.float32]
Result = TypeVar("Result", bound=tuple[Any, ...])
EXPONENT_MIN = -128  # the smallest int8
NO_WORK = Work()


@dataclass(frozen=True)
class Scaling:
    """Block floating point whose exponents the network agrees on: float32 words become int32 block by block.

    Each worker announces the exponent of each block (MAX over workers); a block is quantised with the agreed
    exponent just before it is sent (`block_floating_point.quantize_block`). Some networks pipeline the two
    (SwitchML sends exponents one window ahead); `homomorphic.codec_driver` splits them for others.
    A worker that is absent has no say in an exponent; if all are, it is `EXPONENT_MIN`.
    """

    exponents: NDArray[np.int8]  # (blocks,); of an absent worker: any
    block_elements: int
    workers: int


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
    work: Work = NO_WORK
    scaling: Scaling | None = None  # words are float32 to be sent as scaled int32
    table: NDArray[np.int32] | None = None  # TABLE_ADD: the value of each code, shared by all workers
    decode_work: Work = NO_WORK
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
        return self.absent_words > 0 or (self.merge is Merge.GATHER and self.words.size == 0)

    @property
    def merged_by(self) -> Merge | HostMerge:
        return self.merge if self.host_merge is None else self.host_merge

    @property
    def size(self) -> int:
        return self.absent_words or int(self.words.size)

    @property
    def has_codes(self) -> bool:
        return self.merge is Merge.TABLE_ADD and self.words.dtype != np.int32

    @property
    def lanes_per_word(self) -> int:
        return WORD_BITS // (CODE_BITS if self.has_codes else self.lane_bits)

    @property
    def merged_words(self) -> int:
        return words_per_word(self.merge, self.lane_bits) if self.has_codes else 1

    @property
    def merged_size(self) -> int:
        # That of GATHER and HOST is not known before they are merged.
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


def merged_message(messages: Sequence[Message], key: int = 0) -> Merged:
    """The messages of all workers merged, first to last; `key` decides random bits."""
    first = messages[0]
    present = np.array([not message.is_absent for message in messages])
    words = [message.words for message in messages if not message.is_absent]
    if not words:
        return Merged(unchanged_by(first.merge, first.merged_size), 0, present=present)
    merged = merge_all(first.merged_by, words, key, first.table, first.lane_bits)
    return Merged(merged, len(words), present=None if present.all() else present)


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
        return math.prod(self.shape)  # unlike NumPy's product, it cannot overflow

    @property
    def place(self) -> slice:
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
        return decode() if self.decodings is None else self.decodings.once(what, received, known, decode)

    def tensors_of(self, gradient: Gradient) -> tuple[Tensor, ...]:
        # If they are unknown, the whole gradient is one vector.
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
