"""Runs aggregation in switches: every worker streams its words to a switch and receives the sums."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Server
from netfold.homomorphic.message import EXPONENT_MIN, WORD_MAX, Holders, Merge, Merged, Message, Words
from netfold.sim.collectives.collective import MergeOrders, OperationPlace, Wait
from netfold.sim.collectives.in_network.places import Places
from netfold.sim.collectives.in_network.results import Results
from netfold.sim.collectives.in_network.shares import Shares
from netfold.sim.engine import interface as model
from netfold.sim.engine.interface import MEMBERS_MAX, SEGMENTS_MAX, Scaled, Segment, all_members

if TYPE_CHECKING:
    import simpy

    from netfold.sim.network.fabric import Fabric


class Tree(NamedTuple):
    """One aggregation tree of a job."""

    job: int  # of the engine
    places: Places


class InNetwork:
    """One job on its switches.

    With several trees, each carries a share of every message, by whole units, on a stream of its own.

    The plain messages of an operation share one stream; a scaled message has a stream of its own, with its
    exponents one window ahead.
    """

    servers: tuple[Server, ...] = ()
    is_serial = True  # a worker has one stream at a time, and all workers open theirs in the same order

    def __init__(
        self, fabric: Fabric, trees: Sequence[model.Job], owner: int = 0, ranks: tuple[int, ...] = ()
    ) -> None:
        self._fabric = fabric
        job = self._plan = trees[0]
        self._unit_words = job.unit_packets * job.frame.elements
        self._workers = len(job.hosts)
        self._trees = tuple(Tree(fabric.add_job(tree, owner, ranks), Places(tree)) for tree in trees)
        self._shares = Shares(len(trees), self._workers, job.unit_packets, job.frame.elements)
        self._results = Results(self._workers, self._unit_words, job.unit_packets)

    @property
    def takes_floats(self) -> bool:
        """A parameter server adds floats where integers overflow."""
        return self._plan.program.has_server

    @property
    def overflow(self) -> model.Overflow:
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

    def exchange(self, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        """Stream one worker's messages to its switches, and return the merged messages."""
        merged: list[Merged | None] = [None] * len(messages)
        plain = [index for index, message in enumerate(messages) if message.scaling is None]
        segments = [self._segment(messages[index], place, index) for index in plain]
        carried = [pair for pair in zip(plain, segments, strict=True) if pair[1].size]
        for first in range(0, len(carried), SEGMENTS_MAX):
            yield from self._stream(worker, place, carried[first : first + SEGMENTS_MAX])
        for index, segment in zip(plain, segments, strict=True):
            merged[index] = self._merged(segment, self._results.take(worker, (place, index), segment))
        for index, message in enumerate(messages):
            if message.scaling is None:
                continue
            segment = self._segment(message, place, index)
            exponents = message.scaling.exponents
            if message.is_absent:
                exponents = np.full(-(-segment.size // self._unit_words), EXPONENT_MIN, np.int8)
            scaled = Scaled(exponents, np.empty_like(exponents))
            if segment.size:
                yield from self._stream(worker, place, [(index, segment)], scaled)
            words = self._results.take(worker, (place, index), segment)
            merged[index] = replace(self._merged(segment, words), exponents=scaled.agreed)
        return tuple(one for one in merged if one is not None)

    def _stream(
        self,
        worker: int,
        place: OperationPlace,
        carried: Sequence[tuple[int, Segment]],
        scaled: Scaled | None = None,
    ) -> Generator[simpy.Event, Any, None]:
        """Open a worker's streams of messages (part, segment), one on each tree with words, and await all."""
        shares = [self._shares.of(worker, place, part, segment) for part, segment in carried]
        events = []
        for number, (job, places) in enumerate(self._trees):
            own = [
                (part, segment, share[number])
                for (part, segment), share in zip(carried, shares, strict=True)
                if share[number].size
            ]
            if not own:
                continue
            parts, chosen, exponents = [], [], scaled
            for part, segment, units in own:
                parts.append(part)
                chosen.append(self._shares.piece(segment, units))
                if scaled is not None:
                    exponents = Scaled(scaled.exponents[units.as_slice], scaled.agreed[units.as_slice])
            places.open(worker, place, parts, chosen, is_scaled=scaled is not None)
            events.append(self._fabric.stream(job, worker, chosen, exponents))
        yield from events

    def _segment(self, message: Message, place: OperationPlace, part: int) -> Segment:
        words, size = message.words, message.size
        is_lifted = message.merge is Merge.TABLE_ADD
        dtype = np.int32 if message.scaling is not None or is_lifted else words.dtype
        units = -(-size // self._unit_words)
        packets = units * self._plan.unit_packets
        buffer = self._results.allocate((place, part), units, message.merged_size, dtype)
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

    def _merged(self, segment: Segment, words: Words) -> Merged:
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
        for job, _ in self._trees:
            points = engine.point_counters(job)
            splits = [{**dict.fromkeys(points[0], 0), "split": count} for count in engine.split_counters(job)]
            counters += [*points, *splits]
        return counters

    def leaks(self) -> list[str]:
        """Slots and entries that still hold words at the end of a run."""
        return [str(leak) for job, _ in self._trees for leak in self._fabric.engine.leaks(job)]

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """Slot, version and unit in which a word was merged, and its tree if there are several."""
        number, word = self._shares.locate(place, part, word)
        found = self._trees[number].places.locate(place, part, word)
        return f"tree {number}, {found}" if len(self._trees) > 1 else found

    def share(self) -> float:
        """Share of the units of open streams that are answered."""
        shares = [self._fabric.engine.streams_share(job) for job, _ in self._trees]
        return sum(shares) / len(shares)

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers."""
        return sum(
            self._fabric.engine.worker_counters(job, worker)["retransmitted_packets"]
            for job, _ in self._trees
            for worker in range(self._workers)
        )
