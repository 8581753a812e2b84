"""Aggregation in switches as it runs: a job's streams, their results, and the slot of a merged word."""

from __future__ import annotations

import mmap
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Server
from netfold.homomorphic.merge import WORD_MAX, Holders, Merge, Merged, Words, words_per_word
from netfold.homomorphic.message import EXPONENT_MIN, Message
from netfold.sim.collectives.collective import MergeOrders, OperationId, Wait
from netfold.sim.engine import engine_data
from netfold.sim.engine.engine_data import (
    MEMBERS_MAX,
    SEGMENTS_MAX,
    Job,
    Scaled,
    Segment,
    Shared,
    all_members,
)

if TYPE_CHECKING:
    import simpy

    from netfold.sim.network.fabric import Fabric


class _Stream(NamedTuple):
    """How one stream used the window's slots, the same for all workers."""

    number: int
    parts: tuple[int, ...]  # messages of the operation that it carried
    first_units: tuple[int, ...]
    """The first unit of each message, counted without the lead."""
    words_per_word: tuple[int, ...]
    """Words received per word sent, for each message."""
    lead: int  # units ahead of the first word
    window: int  # units
    generations: NDArray[np.int64]  # (window,) units that each window slot had carried before


class Places:
    """The operations of a job's latest step, stream by stream; the first to open a stream records it.

    All workers open the same streams in the same order, whatever operations they belong to.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._unit_words = job.unit_packets * job.frame.elements
        self._opened = [0] * len(job.hosts)  # streams of each worker
        self._operations: dict[OperationId, list[_Stream]] = {}
        self._step = -1
        self._streams_count = 0
        self._generations = np.zeros(job.slots_count // job.unit_packets, np.int64)

    def open(
        self,
        worker: int,
        operation_id: OperationId,
        parts: Sequence[int],
        segments: Sequence[Segment],
        is_scaled: bool = False,
    ) -> None:
        """Record that a worker opens a stream of an operation for these of its messages."""
        self._opened[worker] += 1
        if self._opened[worker] <= self._streams_count:
            return
        units = [-(-segment.size // self._unit_words) for segment in segments]
        lead = min(self._generations.size, units[0]) if is_scaled else 0
        window = lead or self._generations.size
        widths = tuple(words_per_word(segment.merge, segment.lane_bits) for segment in segments)
        first_units = np.cumsum([0, *units[:-1]]).tolist()
        generations = self._generations[:window].copy()
        if operation_id.step != self._step:
            self._step = operation_id.step
            self._operations.clear()
        self._operations.setdefault(operation_id, []).append(
            _Stream(self._streams_count, tuple(parts), tuple(first_units), widths, lead, window, generations)
        )
        self._streams_count += 1
        self._generations[:window] += (sum(units) + lead - np.arange(window) + window - 1) // window

    def locate(self, operation_id: OperationId, part: int, word: int) -> str:
        """Slot, version and unit of a word; all workers use the same slot for the same word."""
        job = self._job
        stream = next(candidate for candidate in self._operations[operation_id] if part in candidate.parts)
        index = stream.parts.index(part)
        first_unit, word = stream.first_units[index], word // stream.words_per_word[index]
        unit = stream.lead + first_unit + word // self._unit_words
        where = f"unit {unit} of stream {stream.number}"
        if job.program.has_server:  # collisions move units from slot to slot, and to the server
            return f"{where}, in a slot that changes with collisions, or at the server"
        window_slot = unit % stream.window
        generation = int(stream.generations[window_slot]) + unit // stream.window
        packet = word % self._unit_words // job.frame.elements
        slot = job.slot_base + window_slot * job.unit_packets + packet
        version = generation % job.program.versions
        return f"slot {slot}, version {version}, {where}"


# Results of aggregation, stored once for all workers with equal words.


# From this size on, memory is mapped and stays untouched until written.
_RESERVED_BYTES = 1 << 20

MessageKey = tuple[OperationId, int]  # a message of an operation


@dataclass
class _SharedResult:
    """The shared result of one message of an operation."""

    shared: Shared
    served: set[int] = field(default_factory=set)  # workers that have their words


class Results:
    """Allocates buffers for the results of one job's messages, and returns each worker's words.

    A result is stored once, and packets in which a worker got other words than the first are stored again.
    Words that are returned are never written again.
    """

    def __init__(self, workers: int, unit_words: int, unit_packets: int) -> None:
        self._workers, self._unit_words, self._unit_packets = workers, unit_words, unit_packets
        self._results: dict[MessageKey, _SharedResult] = {}

    def allocate(self, key: MessageKey, units: int, words: int, dtype: Any) -> ResultBuffer:
        """Allocate the buffer of a worker's result of a message: `words` words in `units` units."""
        packets = units * self._unit_packets
        if key not in self._results:
            self._results[key] = _SharedResult(Shared(np.empty(words, dtype), np.zeros(packets, np.uint8)))
        shared = self._results[key].shared
        if (shared.words.size, shared.words.dtype) != (words, np.dtype(dtype)):
            return ResultBuffer(np.empty(words, dtype), None, None)  # the engine reports the difference
        return ResultBuffer(_reserve(words, dtype), shared, np.zeros(packets, np.uint8))

    def take(self, worker: int, key: MessageKey, segment: Segment) -> Words:
        """Return a worker's words of a complete result, shared with other workers if equal."""
        shared, private_marks = segment.shared, segment.own
        if shared is None or private_marks is None:
            return segment.result
        result = self._results[key]
        result.served.add(worker)
        if len(result.served) == self._workers:
            del self._results[key]
        if not private_marks.any():
            return shared.words
        words = shared.words.copy()
        for packet in np.flatnonzero(private_marks):
            span = self._words_of(int(packet), segment)
            words[span] = segment.result[span]
        return words

    def _words_of(self, packet: int, segment: Segment) -> slice:
        """The words of a result that one of its packets carries."""
        width = words_per_word(segment.merge, segment.lane_bits)
        size = width * self._unit_words // self._unit_packets
        return slice(packet * size, (packet + 1) * size)


@dataclass(frozen=True)
class ResultBuffer:
    """The arrays that the engine writes a worker's result to; see `Segment`."""

    result: NDArray[Any]
    shared: Shared | None
    own: NDArray[np.uint8] | None


def _reserve(count: int, dtype: Any) -> NDArray[Any]:
    """An array whose pages are allocated on the first write."""
    size_bytes = count * np.dtype(dtype).itemsize
    if size_bytes < _RESERVED_BYTES:
        return np.empty(count, dtype)
    return np.frombuffer(mmap.mmap(-1, size_bytes), dtype)


# How the words of a message are divided among the parallel trees of a job.
#
# Every message is divided, so that one large bucket uses all trees (as SHARP and NCCL divide by channels),
# into contiguous runs of whole units whose numbers differ by one at most. The first tree rotates from
# message to message, so that messages with fewer units than trees use all trees too.


class Units(NamedTuple):
    """A run of a message's units."""

    first: int
    size: int

    @property
    def as_slice(self) -> slice:
        """The same as a slice."""
        return slice(self.first, self.first + self.size)


class Shares:
    """The shares of the messages of a job's latest step; all workers divide a message alike."""

    def __init__(self, trees: int, workers: int, unit_packets: int, packet_words: int) -> None:
        self._trees, self._unit_packets, self._packet_words = trees, unit_packets, packet_words
        self._unit_words = unit_packets * packet_words
        self._opened = [0] * workers  # messages of each worker, over the run
        self._step = -1
        # The units of each tree, and how many words of the result come of each that is sent.
        self._found: dict[tuple[OperationId, int], tuple[tuple[Units, ...], int]] = {}

    def of(self, worker: int, operation_id: OperationId, part: int, segment: Segment) -> tuple[Units, ...]:
        """The share of each tree in the message that a worker sends next: all workers send the same ones."""
        number = self._opened[worker]
        self._opened[worker] += 1
        if operation_id.step != self._step:
            self._step = operation_id.step
            self._found.clear()
        if (operation_id, part) not in self._found:
            units = divide_units(-(-segment.size // self._unit_words), self._trees, number)
            self._found[operation_id, part] = units, words_per_word(segment.merge, segment.lane_bits)
        return self._found[operation_id, part][0]

    def locate(self, operation_id: OperationId, part: int, word: int) -> tuple[int, int]:
        """The tree that carried a word of a result, and the word's number in that tree's share."""
        if self._trees == 1:
            return 0, word
        units, width = self._found[operation_id, part]
        unit = word // width // self._unit_words
        tree = next(tree for tree, run in enumerate(units) if run.first <= unit < run.first + run.size)
        return tree, word - units[tree].first * self._unit_words * width

    def piece(self, segment: Segment, units: Units) -> Segment:
        """The units of a segment that one tree carries, in the same memory."""
        first, last = units.first * self._unit_words, (units.first + units.size) * self._unit_words
        if first == 0 and last >= segment.size:
            return segment
        last = min(last, segment.size)
        width = words_per_word(segment.merge, segment.lane_bits)
        of_result = slice(width * first, width * last)
        packets = slice(units.first * self._unit_packets, (units.first + units.size) * self._unit_packets)
        shared, private_marks, members = segment.shared, segment.own, segment.members
        return replace(
            segment,
            words=segment.words[first:last],
            result=segment.result[of_result],
            shared=None if shared is None else Shared(shared.words[of_result], shared.seen[packets]),
            own=None if private_marks is None else private_marks[packets],
            absent_words=last - first if segment.is_absent else 0,
            members=None if members is None else members[packets],
        )


def divide_units(units: int, trees: int, number: int) -> tuple[Units, ...]:
    """The units of each tree for the `number`-th message; tree `number` mod `trees` has the first ones."""
    least, more = divmod(units, trees)
    runs = [Units(run * least + min(run, more), least + (run < more)) for run in range(trees)]
    return tuple(runs[(tree - number) % trees] for tree in range(trees))


# Runs aggregation in switches: every worker streams its words to a switch and receives the sums.


class InNetwork:
    """One job on its switches.

    With several trees, each carries a share of every message, by whole units, on a stream of its own.

    The plain messages of an operation share one stream; a scaled message has a stream of its own, with its
    exponents one window ahead.
    """

    servers: tuple[Server, ...] = ()
    is_serial = True  # a worker has one stream at a time, and all workers open theirs in the same order

    def __init__(
        self,
        fabric: Fabric,
        trees: Sequence[engine_data.Job],
        owner: int = 0,
        ranks: tuple[int, ...] = (),
        standby: Mapping[int, tuple[engine_data.Job, ...]] = MappingProxyType({}),
    ) -> None:
        self._fabric = fabric
        job = self._plan = trees[0]
        self._unit_words = job.unit_packets * job.frame.elements
        self._workers = len(job.hosts)
        # Each with the number that the engine gives it.
        self._trees = tuple((fabric.add_job(tree, owner, ranks), Places(tree)) for tree in trees)
        rebuilt = {
            time_ps: [fabric.add_job(tree, owner, ranks) for tree in others]
            for time_ps, others in standby.items()
        }
        for index, (number, _) in enumerate(self._trees if standby else ()):
            fabric.stand_by(number, {time_ps: numbers[index] for time_ps, numbers in rebuilt.items()})
        self._numbers = [*(number for number, _ in self._trees), *chain.from_iterable(rebuilt.values())]
        self._shares = Shares(len(trees), self._workers, job.unit_packets, job.frame.elements)
        self._results = Results(self._workers, self._unit_words, job.unit_packets)

    @property
    def takes_floats(self) -> bool:
        """A parameter server adds floats where integers overflow."""
        return self._plan.program.has_server

    @property
    def overflow(self) -> engine_data.Overflow:
        """The overflow policy of its switches."""
        return self._plan.overflow

    def pipelines(self, message: Message) -> bool:
        """Whether exponents go one window ahead: only if a block is exactly one unit."""
        return (
            self._plan.program.has_exponents_ahead
            and message.scaling is not None
            and message.scaling.block_elements == self._unit_words
        )

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        """Return none: switches cannot run a codec's function."""
        return {}

    def exchange(self, worker: int, messages: tuple[Message, ...], operation_id: OperationId) -> Wait:
        """Stream one worker's messages to its switches, and return the merged messages."""
        merged: list[Merged | None] = [None] * len(messages)
        plain = [index for index, message in enumerate(messages) if message.scaling is None]
        segments = [self._segment(messages[index], operation_id, index) for index in plain]
        carried = [pair for pair in zip(plain, segments, strict=True) if pair[1].size]
        for first in range(0, len(carried), SEGMENTS_MAX):
            yield from self._stream(worker, operation_id, carried[first : first + SEGMENTS_MAX])
        for index, segment in zip(plain, segments, strict=True):
            merged[index] = self._merge(segment, self._results.take(worker, (operation_id, index), segment))
        for index, message in enumerate(messages):
            if message.scaling is None:
                continue
            segment = self._segment(message, operation_id, index)
            exponents = message.scaling.exponents
            if message.is_absent:
                exponents = np.full(-(-segment.size // self._unit_words), EXPONENT_MIN, np.int8)
            scaled = Scaled(exponents, np.empty_like(exponents))
            if segment.size:
                yield from self._stream(worker, operation_id, [(index, segment)], scaled)
            words = self._results.take(worker, (operation_id, index), segment)
            merged[index] = replace(self._merge(segment, words), exponents=scaled.agreed)
        return tuple(merged_part for merged_part in merged if merged_part is not None)

    def _stream(
        self,
        worker: int,
        operation_id: OperationId,
        carried: Sequence[tuple[int, Segment]],
        scaled: Scaled | None = None,
    ) -> Generator[simpy.Event, Any, None]:
        """Open a worker's streams of messages (part, segment), one on each tree with words, and await all."""
        shares = [self._shares.of(worker, operation_id, part, segment) for part, segment in carried]
        events = []
        for number, (job, places) in enumerate(self._trees):
            pieces = [
                (part, segment, share[number])
                for (part, segment), share in zip(carried, shares, strict=True)
                if share[number].size
            ]
            if not pieces:
                continue
            parts, chosen, exponents = [], [], scaled
            for part, segment, units in pieces:
                parts.append(part)
                chosen.append(self._shares.piece(segment, units))
                if scaled is not None:
                    exponents = Scaled(scaled.exponents[units.as_slice], scaled.agreed[units.as_slice])
            places.open(worker, operation_id, parts, chosen, is_scaled=scaled is not None)
            events.append(self._fabric.stream(job, worker, chosen, exponents))
        yield from events

    def _segment(self, message: Message, operation_id: OperationId, part: int) -> Segment:
        words, size = message.words, message.size
        is_lifted = message.merge is Merge.TABLE_ADD
        dtype = np.int32 if message.scaling is not None or is_lifted else words.dtype
        units = -(-size // self._unit_words)
        packets = units * self._plan.unit_packets
        buffer = self._results.allocate((operation_id, part), units, message.merged_size, dtype)
        return Segment(
            np.ascontiguousarray(words),
            buffer.result,
            message.merge,
            table=message.table,
            holders=np.zeros(units, np.uint32) if self._plan.program.has_timers else None,
            floats=message.floats,
            is_float=self._overflowed_units(words, units) if message.floats is not None else None,
            shared=buffer.shared,
            own=buffer.own,
            lane_bits=message.lane_bits,
            absent_words=message.absent_words,
            members=all_members(packets, self._workers) if self._plan.program.carries_absence else None,
        )

    def _overflowed_units(self, words: Words, units: int) -> NDArray[np.uint8]:
        """Flags of units with a word that the codec clipped; they are sent as floats from the start."""
        is_clipped = np.zeros(units * self._unit_words, np.bool_)
        is_clipped[: words.size] = np.abs(words.astype(np.int64)) >= WORD_MAX
        return np.asarray(is_clipped.reshape(units, self._unit_words).any(axis=1), np.uint8)

    def _merge(self, segment: Segment, words: Words) -> Merged:
        """A worker's merged words, who contributed, and which of its units are floats or partial sums."""
        is_float, holders = None, None
        if segment.is_float is not None:
            is_float = np.repeat(segment.is_float != 0, self._unit_words)[: segment.size]
        if segment.holders is not None:
            holders = Holders(segment.holders, self._unit_words)
        merged = Merged(words, self._workers, is_float=is_float, holders=holders)
        if segment.members is None or not segment.size:
            return merged
        members = segment.members[: -(-segment.size // self._plan.frame.elements)]
        first = members[0]
        if holders is not None:
            bitmap = np.bitwise_or.reduce(members[:, 1])
            return self._with_members(merged, int(np.bitwise_count(bitmap)), bitmap)
        merged = replace(merged, is_mixed=bool((members != first).any()))
        return self._with_members(merged, int(first[0]), first[1])

    def _with_members(self, merged: Merged, workers: int, bitmap: np.uint32) -> Merged:
        """A merged message with its contributors, where the packets' bitmap has room for all workers."""
        present = (bitmap >> np.arange(min(self._workers, MEMBERS_MAX), dtype=np.uint32) & 1).astype(np.bool_)
        is_all = workers == self._workers and bool(present.all())
        is_named = self._workers <= MEMBERS_MAX and not is_all
        return replace(merged, workers=workers, present=present if is_named else None)

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of its switches, tree by tree: points, root first, and the splits of results."""
        engine, counters = self._fabric.engine, []
        for job in self._numbers:
            points = engine.point_counters(job)
            splits = [{**dict.fromkeys(points[0], 0), "split": count} for count in engine.split_counters(job)]
            counters += [*points, *splits]
        return counters

    def leaks(self) -> list[str]:
        """Slots and entries that still hold words at the end of a run."""
        current = [self._fabric.current(job) for job, _ in self._trees]
        return [str(leak) for job in current for leak in self._fabric.engine.leaks(job)]

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """Slot, version and unit in which a word was merged, and its tree if there are several."""
        number, word = self._shares.locate(operation_id, part, word)
        location = self._trees[number][1].locate(operation_id, part, word)
        return f"tree {number}, {location}" if len(self._trees) > 1 else location

    def share(self) -> float:
        """Share of the units of open streams that are answered."""
        shares = [self._fabric.engine.streams_share(self._fabric.current(job)) for job, _ in self._trees]
        return sum(shares) / len(shares)

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers."""
        return sum(
            self._fabric.engine.worker_counters(job, worker)["retransmitted_packets"]
            for job in self._numbers
            for worker in range(self._workers)
        )
