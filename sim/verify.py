"""Is the result what it should be? Every round is held against sums taken another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from homomorphic.codec import Codec, Gradient, Holders, Merge, Merged, Message, Words
from homomorphic.fold import check_lock_step, merged_reference
from homomorphic.merge import ORDER_FREE

T = TypeVar("T", bound=np.generic)
_CHUNK = 1 << 20


@dataclass
class Operation:
    """One network operation as it was seen: what each worker sent and what it received."""

    sent: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    received: dict[int, tuple[Merged, ...]] = field(default_factory=dict)
    number: int = 0  # of its workers' operations over the whole run


@dataclass(frozen=True)
class WrongWord:
    """A merged word that is not the sum in integers, or whose exponent is not the largest."""

    operation: int  # its number
    part: int  # message of the operation
    label: str
    worker: int
    word: int
    received: int | None  # None where there is none, or it is the exponent that is wrong
    right: int | None
    place: str = ""  # where it was merged

    def __str__(self) -> str:
        values = "" if self.received is None else f" (received {self.received}, the sum is {self.right})"
        return f"worker {self.worker}, word {self.word} of '{self.label}'{values}: {self.place}"


@dataclass(frozen=True)
class Findings:
    """What a round came to."""

    wrong_words: int  # merged words, over all workers, that are not the sum in integers
    is_integer: bool  # all its messages merge in integers, so `wrong_words` says all there is to say
    replicas_agree: bool
    max_abs_error: float
    max_error_over_bound: float
    worst_element: int  # where the error is largest relative to its bound
    nonzeros: int
    union_nonzeros: int
    workers_held_min: int
    workers_held_mean: float
    first_wrong: WrongWord | None = None

    @property
    def is_exact(self) -> bool:
        """Every merged word, at every worker, is the integer sum."""
        return self.is_integer and self.wrong_words == 0


def examine(
    codec: Codec,
    gradients: Sequence[Gradient],
    decoded: Sequence[Gradient],
    operations: Sequence[Operation],
) -> Findings:
    """Compare what workers received and decoded with integer and float64 sums of what they put in.

    A result that holds some of the workers only is compared with the sum of theirs.
    """
    workers = range(len(gradients))
    wrong_words, is_integer = 0, True
    first_wrong: WrongWord | None = None
    for operation in operations:
        check_lock_step([operation.sent[worker] for worker in workers])
        for part, message in enumerate(operation.sent[0]):
            received = [operation.received[worker][part] for worker in workers]
            is_integer &= message.merge in ORDER_FREE or message.merge is Merge.GATHER
            is_integer &= not any(
                merged.is_float is not None and merged.is_float.any() for merged in received
            )
            if message.merge in ORDER_FREE or message.merge is Merge.GATHER:
                right = _right([operation.sent[worker][part] for worker in workers], received)
                wrong = [_wrong_words(*pair) for pair in zip(received, right, strict=True)]
                wrong_words += sum(wrong)
                if first_wrong is None and any(wrong):
                    worker = next(worker for worker in workers if wrong[worker])
                    where = (operation.number, part, worker)
                    first_wrong = _first_wrong(where, message, received[worker], right[worker])
    held = _held(operations, len(gradients))
    max_abs_error, over_bound, worst = _worst_errors(codec, gradients, decoded, operations)
    live = np.zeros(gradients[0].size, np.bool_)
    for gradient in gradients:
        live |= gradient != 0
    return Findings(
        wrong_words=wrong_words,
        is_integer=is_integer,
        replicas_agree=all(_same_bits(decoded[0], other) for other in decoded[1:]),
        max_abs_error=max_abs_error,
        max_error_over_bound=over_bound,
        worst_element=worst,
        nonzeros=int(np.count_nonzero(gradients[0])),
        union_nonzeros=int(np.count_nonzero(live)),
        workers_held_min=held.fewest,
        workers_held_mean=held.mean,
        first_wrong=first_wrong,
    )


class _Held(NamedTuple):
    """How many workers the results of a round hold."""

    fewest: int
    mean: float


def _worst_errors(
    codec: Codec,
    gradients: Sequence[Gradient],
    decoded: Sequence[Gradient],
    operations: Sequence[Operation],
) -> tuple[float, float, int]:
    """Largest errors over all workers; those that decoded the same as worker 0 err the same."""
    largest, over_bound, worst = 0.0, 0.0, 0
    for worker, own in enumerate(decoded):
        holders = operations[0].received[worker][0].holders if operations else None
        if worker > 0 and holders is None and _same_bits(decoded[0], own):
            continue
        summed = gradients if holders is None else _only_held(gradients, holders)
        error, relative, element = _errors(codec, summed, own)
        largest = max(largest, error)
        if relative > over_bound:
            over_bound, worst = relative, element
    return largest, over_bound, worst


def _held(operations: Sequence[Operation], workers: int) -> _Held:
    """Only linear codecs, whose round is one message, meet results that do not hold all workers."""
    found = [
        merged.holders
        for operation in operations
        for received in operation.received.values()
        for merged in received
        if merged.holders is not None
    ]
    counts = (
        np.concatenate([np.bitwise_count(one.bitmaps) for one in found]) if found else np.empty(0, np.uint8)
    )
    if counts.size == 0:
        return _Held(workers, float(workers))
    return _Held(int(counts.min()), float(counts.mean()))


def _only_held(arrays: Sequence[NDArray[T]], holders: Holders) -> list[NDArray[T]]:
    """Every worker's array with zeros where the result does not hold the worker."""
    bitmaps = np.repeat(holders.bitmaps, holders.unit_words)[: arrays[0].size]
    return [
        np.where((bitmaps >> np.uint32(rank)) & np.uint32(1), array, array.dtype.type(0))
        for rank, array in enumerate(arrays)
    ]


def _right(sent: list[Message], received: list[Merged]) -> list[Merged]:
    """What each worker should have: the integer sum of the workers that its result holds."""
    all_held = merged_reference(sent).merged
    right = []
    for merged in received:
        if merged.holders is None:
            right.append(all_held)
            continue
        parts = _only_held([message.words for message in sent], merged.holders)
        own = [replace(message, words=part) for message, part in zip(sent, parts, strict=True)]
        right.append(merged_reference(own).merged)
    return right


def _wrong_words(merged: Merged, right: Merged) -> int:
    """Words and exponents that differ from the integer sum."""
    wrong = sum(_differing(found, wanted) for found, wanted in _pairs(merged, right))
    if right.exponents is not None:
        wrong += int(np.count_nonzero(merged.exponents != right.exponents))
    return wrong


def _pairs(merged: Merged, right: Merged) -> list[tuple[Words, Words]]:
    """What is to be compared, as received and as it should be; words that were added as floats are right."""
    words = merged.words if merged.is_float is None else np.where(merged.is_float, right.words, merged.words)
    return [(words, right.words), *zip(merged.parts, right.parts, strict=True)]


def _first_wrong(where: tuple[int, int, int], message: Message, merged: Merged, right: Merged) -> WrongWord:
    """The first word that differs; `where` is the operation's number, the message's part and the worker."""
    operation, part, worker = where
    for found, wanted in _pairs(merged, right):
        if not _differing(found, wanted):
            continue
        if found.size != wanted.size:
            word = min(found.size, wanted.size)
            return WrongWord(operation, part, message.label, worker, word, None, None)
        word = int(np.argmax(found != wanted))
        return WrongWord(operation, part, message.label, worker, word, int(found[word]), int(wanted[word]))
    assert message.scaling is not None, "nothing differs"
    block = int(np.argmax(merged.exponents != right.exponents))
    word = block * message.scaling.block_elements
    return WrongWord(operation, part, message.label, worker, word, None, None)


def _differing(words: Words, right: Words) -> int:
    """How many words differ; all of them if there are too few or too many."""
    return int(np.count_nonzero(words != right)) if words.size == right.size else max(words.size, right.size)


def _errors(codec: Codec, gradients: Sequence[Gradient], decoded: Gradient) -> tuple[float, float, int]:
    """Largest absolute error, largest error relative to its bound, and the element where that is."""
    bound = codec.error_bound(gradients)
    largest, over_bound, worst = 0.0, 0.0, 0
    for start in range(0, decoded.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        total = np.zeros(decoded[part].size)
        for gradient in gradients:
            total += gradient[part]
        error = np.abs(decoded[part] - total)
        error[np.isnan(error)] = np.inf
        largest = max(largest, float(error.max()))
        relative = _relative(error, bound[part])
        relative[np.isnan(decoded[part])] = np.inf
        index = int(np.argmax(relative))
        if relative[index] > over_bound:
            over_bound, worst = float(relative[index]), start + index
    return largest, over_bound, worst


def _relative(error: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """error / bound; 0 where there is no error, or where the bound allows any."""
    is_bounded = (bound > 0) & (bound < np.inf)
    relative: NDArray[np.float64] = np.divide(error, bound, out=np.full(error.size, np.inf), where=is_bounded)
    relative[(error == 0) | np.isinf(bound)] = 0.0
    return relative


def _same_bits(one: Gradient, other: Gradient) -> bool:
    return bool(np.array_equal(one.view(np.int32), other.view(np.int32)))
