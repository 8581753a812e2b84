"""Aggregation in a switch: every worker streams its words to one switch and receives the sums."""

from __future__ import annotations

import numpy as np

from homomorphic.codec import Merge, Merged, Message
from sim.collectives.collective import Wait
from sim.collectives.places import Places
from sim.engine import model
from sim.engine.model import Scaled, Segment
from sim.engine.state import SEGMENTS_MAX
from sim.fabric import Fabric

SWITCH_MERGES = {Merge.ADD: model.Merge.ADD, Merge.OR: model.Merge.OR, Merge.MAX: model.Merge.MAX}


class InNetwork:
    """One job on one switch.

    The plain messages of an operation share one stream; a scaled message has a stream of its own, with its
    exponents one window ahead.
    """

    merges = frozenset(SWITCH_MERGES)

    def __init__(self, fabric: Fabric, job: model.Job) -> None:
        self._fabric = fabric
        self._unit_words = job.unit_packets * job.frame.elements
        self._workers = len(job.hosts)
        self._job = fabric.add_job(job)
        self._places = Places(job)

    def pipelines(self, message: Message) -> bool:
        """SwitchML sends exponents one window ahead, where a block is just what one unit carries."""
        return message.scaling is not None and message.scaling.block_elements == self._unit_words

    def exchange(self, worker: int, messages: tuple[Message, ...]) -> Wait:
        """See `Collective`."""
        self._places.begin(worker)
        merged: list[Merged | None] = [None] * len(messages)
        plain = [index for index, message in enumerate(messages) if message.scaling is None]
        segments = [self._segment(messages[index]) for index in plain]
        carried = [pair for pair in zip(plain, segments, strict=True) if pair[1].words.size]
        for first in range(0, len(carried), SEGMENTS_MAX):
            parts, chosen = zip(*carried[first : first + SEGMENTS_MAX], strict=True)
            self._places.open(worker, parts, chosen)
            yield self._fabric.stream(self._job, worker, list(chosen))
        for index, segment in zip(plain, segments, strict=True):
            merged[index] = Merged(segment.result, self._workers)
        for index, message in enumerate(messages):
            if message.scaling is None:
                continue
            exponents = message.scaling.exponents
            segment, scaled = self._segment(message), Scaled(exponents, np.empty_like(exponents))
            if message.words.size:
                self._places.open(worker, [index], [segment], is_scaled=True)
                yield self._fabric.stream(self._job, worker, [segment], scaled)
            merged[index] = Merged(segment.result, self._workers, scaled.agreed)
        return tuple(one for one in merged if one is not None)

    def _segment(self, message: Message) -> Segment:
        dtype = np.int32 if message.scaling is not None else message.words.dtype
        result = np.empty(message.words.size, dtype)
        return Segment(np.ascontiguousarray(message.words), result, SWITCH_MERGES[message.merge])

    def switch_counters(self) -> dict[str, int]:
        """See `Collective`."""
        return self._fabric.engine.switch_counters(self._job)

    def leaks(self) -> list[str]:
        """See `Collective`."""
        return [str(leak) for leak in self._fabric.engine.leaks(self._job)]

    def locate(self, worker: int, operation: int, part: int, word: int) -> str:
        """See `Collective`."""
        return self._places.locate(operation, part, word)

    def retransmitted_packets(self) -> int:
        """See `Collective`."""
        return sum(self._counter(worker, "retransmitted_packets") for worker in range(self._workers))

    def _counter(self, worker: int, name: str) -> int:
        return self._fabric.engine.worker_counters(self._job, worker)[name]
