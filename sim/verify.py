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
from sim.notes import NOTHING_EXEMPT, Exempt

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
    max_bounded_error: float  # of elements that are held to the codec's bound
    max_estimate_error: float  # of those that are not
    max_error_over_bound: float
    worst_element: int  # where the error is largest relative to its bound
    nonzeros: int
    union_nonzeros: int
    workers_held_min: int
    workers_held_mean: float
    first_wrong: WrongWord | None = None

    @property
    def max_abs_error(self) -> float:
        """Largest error of all elements; infinities that are right have none."""
        return max(self.max_bounded_error, self.max_estimate_error)

    @property
    def is_exact(self) -> bool:
        """Every merged word, at every worker, is the integer sum."""
        return self.is_integer and self.wrong_words == 0


def examine(
    codec: Codec,
    gradients: Sequence[Gradient],
    decoded: Sequence[Gradient],
    operations: Sequence[Operation],
    exempt: Exempt = NOTHING_EXEMPT,
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
    errors = _worst_errors(codec, gradients, decoded, operations, exempt)
    live = np.zeros(gradients[0].size, np.bool_)
    for gradient in gradients:
        live |= gradient != 0
    return Findings(
        wrong_words=wrong_words,
        is_integer=is_integer,
        replicas_agree=all(_same_bits(decoded[0], other) for other in decoded[1:]),
        max_bounded_error=errors.bounded,
        max_estimate_error=errors.estimated,
        max_error_over_bound=errors.over_bound,
        worst_element=errors.worst_element,
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


class _Errors(NamedTuple):
    """Largest errors of a decoded sum."""

    bounded: float = 0.0  # of elements that are held to the codec's bound
    estimated: float = 0.0
    over_bound: float = 0.0  # relative to the bound
    worst_element: int = 0  # where that is

    def joined(self, other: _Errors) -> _Errors:
        """The larger ones of both."""
        worst = other if other.over_bound > self.over_bound else self
        bounded, estimated = max(self.bounded, other.bounded), max(self.estimated, other.estimated)
        return _Errors(bounded, estimated, worst.over_bound, worst.worst_element)


def _worst_errors(
    codec: Codec,
    gradients: Sequence[Gradient],
    decoded: Sequence[Gradient],
    operations: Sequence[Operation],
    exempt: Exempt,
) -> _Errors:
    """Largest errors over all workers; those that decoded the same as worker 0 err the same."""
    errors = _Errors()
    for worker, own in enumerate(decoded):
        holders = operations[0].received[worker][0].holders if operations else None
        if worker > 0 and holders is None and _same_bits(decoded[0], own):
            continue
        summed = gradients if holders is None else _only_held(gradients, holders)
        errors = errors.joined(_errors(codec, summed, own, exempt))
    return errors


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


def _errors(codec: Codec, gradients: Sequence[Gradient], decoded: Gradient, exempt: Exempt) -> _Errors:
    """Errors of one worker's decoded sum, looked at part by part."""
    bound = codec.error_bound(gradients)
    errors = _Errors()
    for start in range(0, decoded.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        total = np.zeros(decoded[part].size)
        for gradient in gradients:
            total += gradient[part]
        own = Exempt(*(_within(elements, start, total.size) for elements in exempt))
        found = _part_errors(decoded[part], total, bound[part], own)
        errors = errors.joined(found._replace(worst_element=start + found.worst_element))
    return errors


def _within(elements: NDArray[np.int64], start: int, count: int) -> NDArray[np.int64]:
    """Those of some ascending elements that lie in a part, counted from its start."""
    first, end = np.searchsorted(elements, (start, start + count))
    return elements[first:end] - start


def _part_errors(
    decoded: Gradient, total: NDArray[np.float64], bound: NDArray[np.float64], exempt: Exempt
) -> _Errors:
    """Errors against the float64 sum; estimates have no bound, and infinities none where they are right."""
    error = np.abs(decoded - total)
    error[np.isnan(error)] = np.inf
    is_right = _are_infinite(decoded, total, bound, exempt.infinities)
    error[exempt.infinities[is_right]] = 0.0
    estimated = float(error[exempt.estimates].max(initial=0.0))
    relative = _relative(error, bound)
    error[exempt.estimates] = relative[exempt.estimates] = 0.0
    relative[np.isnan(decoded)] = relative[exempt.infinities[~is_right]] = np.inf
    worst = int(np.argmax(relative))
    return _Errors(float(error.max()), estimated, float(relative[worst]), worst)


def _are_infinite(
    decoded: Gradient, total: NDArray[np.float64], bound: NDArray[np.float64], elements: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which of some elements are rightly an infinity: a value within the bound rounds to it in float32."""
    with np.errstate(over="ignore"):
        largest = (np.abs(total[elements]) + bound[elements]).astype(np.float32)
    are_infinite: NDArray[np.bool_] = decoded[elements] == np.copysign(np.inf, total[elements])
    return are_infinite & np.isinf(largest)


def _relative(error: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """error / bound; 0 where there is no error, or where the bound allows any."""
    is_bounded = (bound > 0) & (bound < np.inf)
    relative: NDArray[np.float64] = np.divide(error, bound, out=np.full(error.size, np.inf), where=is_bounded)
    relative[(error == 0) | np.isinf(bound)] = 0.0
    return relative


def _same_bits(one: Gradient, other: Gradient) -> bool:
    return bool(np.array_equal(one.view(np.int32), other.view(np.int32)))
