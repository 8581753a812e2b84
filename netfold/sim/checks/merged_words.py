"""Merged words against the words that were sent, by kind of merge: `check_message` picks the check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Request, Server
from netfold.homomorphic.error_bounds import PART_ELEMENTS, add_counted, addition_error, with_counts
from netfold.homomorphic.merge import (
    CODE_BITS,
    SUMS,
    WORD_BITS,
    Holders,
    HostHop,
    Merge,
    Merged,
    Words,
    replay,
    unchanged_by,
)
from netfold.homomorphic.message import EXPONENT_MIN, Message, Tensor
from netfold.kernels.bits import count_differing, identity
from netfold.sim.checks import error_metrics
from netfold.sim.checks.round_findings import (
    AtHosts,
    MessagePlace,
    RecordedOperation,
    Result,
    Slice,
    Tallies,
    Tally,
    by_holders,
    complete,
    distinct,
    holds,
    slices,
)
from netfold.sim.engine.engine_data import MEMBERS_MAX, Overflow


def check_floats(place: MessagePlace, sent: Mapping[int, Words], results: Sequence[Result]) -> None:
    """Compare float32 sums with the float64 sum of the words sent, by rank; see `addition_error`."""
    size = next(iter(sent.values())).size
    for holders, group in by_holders(complete(place, results, size, "wrong_floats")):
        for span in slices(size):
            added = [result for result in group if _is_added(result.merged, span)]
            if added:
                sums = _FloatSums.of(sent, span, holders)
            for result in added:
                _compare(place, sums, span, result)


def _is_added(merged: Merged, span: Slice) -> bool:
    return merged.is_float is None or bool(merged.is_float[span.merged].any())


class _FloatSums(NamedTuple):
    """The float64 sum of a slice, and the largest error of its float32 sum."""

    total: NDArray[np.float64]
    magnitude: NDArray[np.float64]
    """Σ|x| of the words that are finite."""
    allowed: NDArray[np.float64]

    @classmethod
    def of(cls, sent: Mapping[int, Words], span: Slice, holders: Holders | None) -> _FloatSums:
        """Sums over the workers that the result holds."""
        total, magnitude = np.zeros((2, span.last - span.first))
        additions: int | NDArray[np.float64] = len(sent) - 1
        if holders is not None:
            counts = np.bitwise_count(holders.bitmaps[np.arange(span.first, span.last) // holders.unit_words])
            additions = np.maximum(counts.astype(np.float64) - 1, 0)
        counted = with_counts(sent.values()) if holders is None else [(words, 1) for words in sent.values()]
        for rank, (words, count) in zip(sent, counted, strict=False):
            values = words[span.first : span.last]
            if holders is not None:
                values = np.where(holds(holders, span, rank), values, np.float32(0))
            add_counted(values, count, total, magnitude)
        if not np.isfinite(magnitude.max(initial=0.0)):
            magnitude = _finite_magnitude(sent, span, holders)
        return cls(total, magnitude, addition_error(additions, magnitude))


def _finite_magnitude(sent: Mapping[int, Words], span: Slice, holders: Holders | None) -> NDArray[np.float64]:
    """Σ|x| of the words that are finite."""
    magnitude = np.zeros(span.last - span.first)
    for rank, words in sent.items():
        values = words[span.first : span.last]
        counts = np.isfinite(values)
        if holders is not None:
            counts &= holds(holders, span, rank).astype(np.bool_)
        magnitude += np.abs(np.where(counts, values, np.float32(0)), dtype=np.float64)
    return magnitude


def _compare(place: MessagePlace, sums: _FloatSums, span: Slice, result: Result) -> None:
    merged = result.merged
    floats = merged.words[span.merged].view(np.float32)
    words = np.arange(span.first, span.last)
    if merged.is_float is not None:
        chosen = np.flatnonzero(merged.is_float[span.merged])
        floats, words = floats[chosen], words[chosen]
        sums = _FloatSums(*(column[chosen] for column in sums))
    count = error_metrics.count_beyond(floats, sums.total, sums.allowed, sums.magnitude)
    if not count:
        return
    for word in range(floats.size):
        row = slice(word, word + 1)
        columns = floats[row], sums.total[row], sums.allowed[row], sums.magnitude[row]
        if error_metrics.count_beyond(*columns):
            values = float(floats[word]), float(sums.total[word])
            first = result.wrong_word(place, int(words[word]), values, float(sums.allowed[word]))
            result.wrong_floats.add(count, first)
            return


# Merged integer words: the sum, union or maximum of those sent, bit for bit.


Lanes = NDArray[Any]  # integers of the width of a lane
_LANE_TYPES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16}  # others are added as words
_CODE_SHIFTS = np.arange(0, WORD_BITS, CODE_BITS, dtype=np.uint32)


def check_integers(
    place: MessagePlace, sent: Mapping[int, Message], results: Sequence[Result], overflow: Overflow
) -> None:
    """Sums, unions and maxima in 64 bits, modulo 2**32, against every result; and agreed exponents.

    Sums are compared lane by lane, modulo the lane's width. `sent` are the messages by rank.
    """
    integers = _Integers(sent)
    first = next(iter(sent.values()))
    size = first.words.size
    for holders, group in by_holders(complete(place, results, first.merged_size, "wrong")):
        for span in slices(size, integers.lanes, integers.merged_words):
            right = integers.unite(span, holders).astype(integers.lane)  # modulo the lane's width
            for result in group:
                _compare_integers(place, integers, result, span=span, right=right, overflow=overflow)
    for result in results:
        check_exponents(place, first, integers.exponents, result)


def _compare_integers(
    place: MessagePlace,
    integers: _Integers,
    result: Result,
    *,
    span: Slice,
    right: Lanes,
    overflow: Overflow,
) -> None:
    """Compare a slice of one result; words that were added as floats are not integers."""
    merged = result.merged
    lanes = merged.words[span.merged].view(integers.lane)
    if merged.is_float is not None and merged.is_float[span.merged].any():
        lanes = np.where(merged.is_float[span.merged], right, lanes)
    if not count_differing(lanes.view(np.int32), right.view(np.int32)):
        return
    is_wrong = lanes != right
    if overflow is not Overflow.WRAP and integers.are_added:
        is_clipped = is_wrong & integers.may_be_clipped(span, merged.holders, lanes, overflow)
        is_wrong &= ~is_clipped
        _add_to_tally(place, result, result.clipped, span=span, is_marked=is_clipped, lanes=(lanes, right))
    _add_to_tally(place, result, result.wrong, span=span, is_marked=is_wrong, lanes=(lanes, right))


def _add_to_tally(
    place: MessagePlace,
    result: Result,
    tally: Tally,
    *,
    span: Slice,
    is_marked: NDArray[np.bool_],
    lanes: tuple[Lanes, Lanes],
) -> None:
    count = int(np.count_nonzero(is_marked))
    if count:
        first = int(np.argmax(is_marked))
        word, lane = divmod(first, span.lanes // span.merged_words)
        wrong_word = result.wrong_word(
            place, span.merged.start + word, (int(lanes[0][first]), int(lanes[1][first]))
        )
        tally.add(count, wrong_word if span.lanes == span.merged_words else replace(wrong_word, lane=lane))


def check_exponents(
    place: MessagePlace, message: Message, right: NDArray[np.int8] | None, result: Result
) -> None:
    """Check that the agreed exponents are the largest of each block."""
    if right is None or message.scaling is None:
        return
    exponents = result.merged.exponents
    is_complete = exponents is not None and exponents.size == right.size
    differs = exponents != right if is_complete else np.ones(right.size, np.bool_)
    count = int(np.count_nonzero(differs))
    if count:
        word = int(np.argmax(differs)) * message.scaling.block_elements
        result.wrong.add(count, result.wrong_word(place, word, (None, None)))


class _Integers:
    """Sums, unions and maxima of the words that all workers sent, in 64 bits."""

    def __init__(self, sent: Mapping[int, Message]) -> None:
        self._sent = sent
        self._first_rank, first = next(iter(sent.items()))
        self.lane = _LANE_TYPES.get(first.lane_bits, np.int32)
        # Merged words, and lanes, of one word sent.
        self.merged_words = first.merged_words
        self.lanes = self.merged_words * (4 // np.dtype(self.lane).itemsize)
        self.are_added = first.merge in SUMS
        self._total = np.empty(self.lanes * min(PART_ELEMENTS, first.words.size), np.int64)
        exponents = [message.scaling.exponents for message in sent.values() if message.scaling is not None]
        self.exponents = np.maximum.reduce(exponents) if exponents else None
        self._scales = None if self.exponents is None else _scales(first, self.exponents)
        # Messages whose words are the same memory are added once, and multiplied.
        words = {identity(message.words): message for message in sent.values()}
        counts = with_counts(message.words for message in sent.values())
        self._counted = [(words[identity(array)], count) for array, count in counts]

    def unite(self, span: Slice, holders: Holders | None) -> NDArray[np.int64]:
        """Sum, union or maximum of a slice, of the workers held; the next call reuses the array."""
        total = self._total[: span.size]
        total.fill(0)
        if self.are_added and holders is None:
            for message, count in self._counted:
                if count == 1:
                    self._add(message, span, total)
                else:
                    total += count * self._values(message, span, 0, None)
            return total
        for rank, message in self._sent.items():
            values = self._values(message, span, rank, holders)
            if self.are_added:
                total += values
            elif message.merge is Merge.OR:
                total |= values
            elif rank != self._first_rank:
                np.maximum(total, values, out=total)
            else:
                np.copyto(total, values)
        return total

    def _add(self, message: Message, span: Slice, total: NDArray[np.int64]) -> None:
        words = message.words[span.first : span.last]
        if message.scaling is not None:
            assert self._scales is not None
            error_metrics.add_scaled(words, self._scales, span.first, message.scaling.block_elements, total)
        elif message.has_codes:
            error_metrics.add_integers(_lift(message, words), total)
        else:
            error_metrics.add_integers(words.view(self.lane), total)

    def _values(self, message: Message, span: Slice, rank: int, holders: Holders | None) -> NDArray[np.int64]:
        """One worker's integers of a slice; 0 where a result does not hold it."""
        values = np.zeros(span.size, np.int64)
        if self.are_added:
            self._add(message, span, values)
        else:
            values += message.words[span.first : span.last]
        return values if holders is None else np.where(holds(holders, span, rank), values, 0)

    def may_be_clipped(
        self, span: Slice, holders: Holders | None, lanes: Lanes, overflow: Overflow
    ) -> NDArray[np.bool_]:
        """Which lanes can be results of adders that saturate or stick, where a partial sum leaves the lane.

        With P and N the sums of the positive and the negative lanes, T of all: where P alone may leave it,
        the result lies between min(T, MAX + N) and min(T, MAX) for any order or tree; with adders that stick,
        up to MAX. The lower limit is the mirror image, but adders stick at −MAX already; where both may
        be left, any result is possible.
        """
        parts = [self._values(message, span, rank, holders) for rank, message in self._sent.items()]
        positive = sum(np.maximum(part, 0) for part in parts)
        negative = sum(np.minimum(part, 0) for part in parts)
        total = positive + negative
        sticks = overflow is Overflow.STICKY  # adders stick from ±largest on
        largest, smallest = int(np.iinfo(self.lane).max), int(np.iinfo(self.lane).min)
        above, below = positive > largest - sticks, negative < smallest + 2 * sticks
        least = smallest if sticks else np.maximum(total, smallest)
        most = largest if sticks else np.minimum(total, largest)
        low = np.where(above, np.minimum(total, largest + negative), least)
        high = np.where(above, most, np.maximum(total, smallest + sticks + positive))
        is_between = (low <= lanes) & (lanes <= high)
        return np.asarray((above & below) | ((above | below) & is_between))


def _lift(message: Message, words: Words) -> NDArray[np.int32]:
    """The table's value of each packed code."""
    assert message.table is not None, "table_add without a table"
    codes = words[:, np.newaxis] >> _CODE_SHIFTS & np.uint32(15)
    return np.ascontiguousarray(message.table[codes].reshape(-1), np.int32)


def _scales(message: Message, exponents: NDArray[np.int8]) -> NDArray[np.float32]:
    """Integers per unit of value of each block."""
    assert message.scaling is not None
    workers = message.scaling.workers
    full = np.float32(2**31 - 1 if workers <= 255 else 2**31 - 256 - workers)
    return np.asarray(full / np.ldexp(np.float32(workers), exponents.astype(np.int32)), np.float32)


# Who contributed to a message, as its results say, compared with who sent words.


def check_members(place: MessagePlace, sent: Sequence[Message], results: Sequence[Result], kind: str) -> None:
    """Count all words of a result as wrong, in the named tally, if it claims other contributors than sent.

    Unless it has wrong words already.
    """
    has_words = np.array([not message.is_absent for message in sent])
    for result in results:
        tally = getattr(result, kind)
        if not tally.count and (claim := _wrong_claim(result.merged, has_words)):
            wrong = result.wrong_word(place, 0, (None, None), claim=claim)
            tally.add(max(1, result.merged.words.size), wrong)


def _wrong_claim(merged: Merged, has_words: NDArray[np.bool_]) -> str:
    """What a result wrongly says of its contributors; empty if it is right."""
    if merged.is_mixed:
        return "parts of it claim different contributors"
    right = has_words
    if merged.holders is not None:
        claimed = int(np.bitwise_or.reduce(merged.holders.bitmaps, initial=np.uint32(0)))
        right = np.array([bool(claimed >> rank & 1) for rank in range(has_words.size)])
        if (right & ~has_words).any():
            return f"it claims words of {_list_workers(right & ~has_words)}, who sent none"
    if merged.workers != right.sum():
        return f"it claims {merged.workers} contributors, {right.sum()} sent words"
    if merged.present is None:
        return "" if right.all() or right.size > MEMBERS_MAX else "it does not say who contributed"
    if np.array_equal(merged.present, right):
        return ""
    return f"it claims words of {_list_workers(merged.present)}; they were sent by {_list_workers(right)}"


def _list_workers(workers: NDArray[np.bool_]) -> str:
    return "workers " + (", ".join(map(str, np.flatnonzero(workers))) or "none")


# Compare merged words with the words that were sent, message by message and slice by slice.
#
# Integers must equal the sum, union or maximum bit for bit; floats must be within the error of float32
# additions in any order. Workers that are absent do not count. A result that claims other contributors than
# those who sent words is wrong. An array that several workers share is examined once. Merges that a codec
# brings along (HOST) are judged by `HostReplay`, and SIGN by `SignCheck`.


def check_message(
    place: MessagePlace,
    sent: Sequence[Message],
    received: Sequence[Merged],
    overflow: Overflow,
    tallies: Tallies,
) -> None:
    """Compare the results of one message, `received[worker]`, with the words that all workers sent."""
    results = distinct(received)
    merge = sent[0].merge
    present = {rank: message for rank, message in enumerate(sent) if not message.is_absent}
    if merge is Merge.GATHER:
        for result in results:
            if result.merged.parts:
                _check_gathered(place, sent, result)
            else:  # a server answered: `HostReplay` compares that
                tallies.is_integer = False
    elif not present:
        _check_nothing(place, sent[0], results)
    elif merge in (Merge.SIGN, Merge.HOST):
        tallies.is_integer = False
    elif merge is Merge.FLOAT_ADD:
        check_floats(place, {rank: message.words for rank, message in present.items()}, results)
        tallies.float_words += len(received) * sent[0].size
        tallies.is_integer = False
    else:
        check_integers(place, present, results, overflow)
        tallies.integer_words += len(received) * sent[0].merged_size
        mixed = [result for result in results if _has_floats(result.merged)]
        for result in mixed:
            assert result.merged.is_float is not None
            tallies.float_words += len(result.workers) * int(np.count_nonzero(result.merged.is_float))
        if mixed:
            floats = {rank: message.floats for rank, message in present.items() if message.floats is not None}
            assert len(floats) == len(present), f"worker without floats of '{place.label}'"
            check_floats(place, floats, mixed)
            tallies.is_integer = False
    if merge is not Merge.GATHER:  # the parts of a gathered message say who contributed
        check_members(place, sent, results, "wrong_floats" if merge is Merge.FLOAT_ADD else "wrong")
    for name in ("wrong", "clipped", "wrong_floats"):
        result_tallies = [(result, getattr(result, name)) for result in results]
        count = sum(tally.count * len(result.workers) for result, tally in result_tallies)
        firsts = [tally.first for _, tally in result_tallies if tally.first is not None]
        getattr(tallies, name).add(count, min(firsts, key=lambda first: first.worker, default=None))


def _has_floats(merged: Merged) -> bool:
    return merged.is_float is not None and bool(merged.is_float.any())


def _check_nothing(place: MessagePlace, message: Message, results: Sequence[Result]) -> None:
    """Check the results of a message that nobody contributed to: words that change no others."""
    right = unchanged_by(message.merge, message.merged_size)
    for result in complete(place, results, right.size, "wrong"):
        words = result.merged.words
        if count := count_differing(words.view(np.int32), right.view(np.int32)):
            word = int(np.argmax(words != right))
            values = int(words.view(np.int32)[word]), int(right.view(np.int32)[word])
            result.wrong.add(count, result.wrong_word(place, word, values))
    if message.scaling is not None:
        blocks = -(-message.size // message.scaling.block_elements)
        for result in results:
            check_exponents(place, message, np.full(blocks, EXPONENT_MIN, np.int8), result)


def _check_gathered(place: MessagePlace, sent: Sequence[Message], result: Result) -> None:
    """Check that every worker's words arrived unchanged."""
    for message, part in zip(sent, result.merged.parts, strict=True):
        if identity(message.words) == identity(part):
            continue
        if message.words.size != part.size:
            word = min(message.words.size, part.size)
            result.wrong.add(max(message.words.size, part.size), result.wrong_word(place, word, (None, None)))
            continue
        for span in slices(part.size):
            words, right = part[span.merged].view(np.int32), message.words[span.merged].view(np.int32)
            count = count_differing(words, right)
            if count:
                word = int(np.argmax(words != right))
                values = int(words[word]), int(right[word])
                result.wrong.add(count, result.wrong_word(place, span.first + word, values))


# Compare what hosts merged by a codec's own functions with a replay from the words that were sent.
#
# The collective says in which order its hops merged; the replay merges in that order without a network. A
# codec's server part is replayed by a replica that lives as long as the job and sees its rounds in their
# order.


Orders = Mapping[tuple[int, int], Sequence[Sequence[HostHop]]]
"""Hops of HOST messages, by operation and message."""


class HostReplay:
    """Replays the host merges and server answers of one job, round by round."""

    def __init__(self, server: Server | None = None, tensors: Sequence[tuple[Tensor, ...]] = ()) -> None:
        # `server` is a replica of the codec's server part (None: it has none); `tensors` are those of each
        # bucket (empty: unknown).
        self.server, self._tensors = server, tensors

    def examine(
        self, place: tuple[int, int], operations: Sequence[RecordedOperation], orders: Orders
    ) -> AtHosts:
        """Compare the HOST and GATHER messages of a finished round; `place` is its step and bucket.

        `orders` are the hops of its HOST messages. Rounds of one bucket come in the order of their steps.
        """
        tally = AtHosts()
        for index, operation in enumerate(operations):
            workers = range(len(operation.sent))
            for part, message in enumerate(operation.sent[0]):
                if message.merge not in (Merge.HOST, Merge.GATHER):
                    continue
                sent = [operation.sent[worker][part] for worker in workers]
                results = distinct([operation.received[worker][part] for worker in workers])
                at = MessagePlace(index, part, message.label)
                if message.merge is Merge.HOST:
                    _check_merged(tally, at, sent, orders.get((index, part)), results)
                elif self.server is not None:
                    tensors = self._tensors[place[1]] if self._tensors else ()
                    request = Request(*place, index, message.label, tensors)
                    answer = self.server.merge([worker_message.words for worker_message in sent], request)
                    _compare_host_words(tally, f"the answer to {at}", answer, results)
                else:
                    _check_delivered(tally, at, sent, results)
        return tally


def _check_merged(
    tally: AtHosts,
    place: MessagePlace,
    sent: Sequence[Message],
    order: Sequence[Sequence[HostHop]] | None,
    results: Sequence[Result],
) -> None:
    """Check a message that hosts merged by the codec's function."""
    merge = sent[0].host_merge
    if merge is None or order is None:
        tally.add(1, f"{place}: the collective does not say how it was merged")
        return
    try:
        right = replay(merge, [message.words for message in sent], order)
    except ValueError as error:
        tally.add(1, f"{place}: {error}")
        return
    _compare_host_words(tally, str(place), right, results)


def _check_delivered(
    tally: AtHosts, place: MessagePlace, sent: Sequence[Message], results: Sequence[Result]
) -> None:
    """Check that every worker has a message of every worker; their words are compared elsewhere."""
    for result in results:
        tally.words += len(result.workers) * sum(message.words.size for message in sent)
        if len(result.merged.parts) != len(sent):
            shortfall = f"{len(result.merged.parts)} of {len(sent)} messages arrived"
            tally.add(1, f"{place}, worker {result.workers[0]}: {shortfall}")


def _compare_host_words(tally: AtHosts, what: str, right: Words, results: Sequence[Result]) -> None:
    """Compare the words of every worker with the right ones, bit for bit."""
    for result in results:
        words, workers = result.merged.words, result.workers
        tally.words += len(workers) * right.size
        if words.size != right.size:
            count = max(words.size, right.size)
            tally.add(
                len(workers) * count,
                f"{what}, worker {workers[0]}: {words.size} words, the replay has {right.size}",
            )
            continue
        bits, right_bits = words.view(np.uint32), right.view(np.uint32)
        if count := count_differing(bits.view(np.int32), right_bits.view(np.int32)):
            word = int(np.argmax(bits != right_bits))
            values = f"received {bits[word]:#010x}, the replay has {right_bits[word]:#010x}"
            tally.add(len(workers) * count, f"{what}, worker {workers[0]}, word {word} ({values})")
