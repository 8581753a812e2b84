"""The critical path of a round: from its end, back to what each thing waited for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from netfold.sim.bounds.causes import Cause
from netfold.sim.results.breakdown import Counted, counted_rounds
from netfold.sim.results.records import PhaseRecord, RoundRecord

_COMPUTE_BUCKET = -1


class Piece(NamedTuple):
    """A part of the critical path; `cause` None: the network, whose samples say more."""

    start_ps: int
    end_ps: int
    cause: Cause | None = None
    worker: int = -1
    stage: str = ""


class _Worker:
    """The phases of one worker, to find what it did at some time."""

    def __init__(self, phases: Sequence[PhaseRecord]) -> None:
        self._phases = sorted(
            (one for one in phases if one.phase != "wait"), key=lambda one: (one.start_ps, one.end_ps)
        )
        self._starts = [one.start_ps for one in self._phases]
        self._longest_ps = max((one.end_ps - one.start_ps for one in self._phases), default=0)

    def during(self, start_ps: int, end_ps: int) -> Iterator[PhaseRecord]:
        """Phases that overlap an interval, those of its device first, each by their start."""
        last = bisect_right(self._starts, end_ps)
        first = bisect_right(self._starts, start_ps - self._longest_ps - 1)
        found = [one for one in self._phases[first:last] if one.end_ps > start_ps and one.start_ps < end_ps]
        return iter(sorted(found, key=lambda one: one.phase == "network"))


def critical_path(rounds: Sequence[RoundRecord], phases: Sequence[PhaseRecord]) -> list[Piece]:
    """Pieces that cover the time of some rounds once: the latest first within a round.

    They add up to the time in which some of the rounds was in progress.
    """
    by_round: dict[tuple[int, int], dict[int, list[PhaseRecord]]] = defaultdict(lambda: defaultdict(list))
    by_worker: dict[int, list[PhaseRecord]] = defaultdict(list)
    for phase in phases:
        by_worker[phase.worker].append(phase)
        if phase.bucket != _COMPUTE_BUCKET:
            by_round[phase.step, phase.bucket][phase.worker].append(phase)
    workers = {worker: _Worker(own) for worker, own in by_worker.items()}
    pieces = []
    for one in counted_rounds(rounds):
        walk = _Walk(one, by_round[one.step, one.bucket], workers)
        pieces += [piece for piece in walk.pieces() if piece.end_ps > piece.start_ps]
    return pieces


class _Walk:
    """One round, walked backwards."""

    def __init__(
        self, span: Counted, own: Mapping[int, list[PhaseRecord]], workers: Mapping[int, _Worker]
    ) -> None:
        self._start_ps, self._end_ps = span.start_ps, span.end_ps
        self._own, self._workers = own, workers
        self._operations = {
            worker: [index for index, one in enumerate(phases) if one.phase == "network"]
            for worker, phases in own.items()
        }

    def pieces(self) -> Iterator[Piece]:
        """Pieces from the end of the round to its start, or to the end of earlier rounds."""
        at_ps = self._end_ps
        if not self._own or at_ps <= self._start_ps:
            return
        worker = max(self._own, key=lambda one: (self._own[one][-1].end_ps, self._own[one][0].start_ps))
        index = len(self._own[worker]) - 1
        while at_ps > self._start_ps:
            if index < 0:
                yield from self._instead(worker, self._start_ps, at_ps, is_late=True)
                return
            phase = self._own[worker][index]
            if phase.end_ps < at_ps:
                yield from self._instead(worker, max(phase.end_ps, self._start_ps), at_ps, is_late=False)
                at_ps = phase.end_ps
            elif phase.phase == "network":
                begin_ps, worker, index = self._last_to_begin(worker, index, at_ps)
                yield Piece(max(begin_ps, self._start_ps), at_ps)
                at_ps, index = begin_ps, index - 1
            else:
                yield from self._on_device(worker, index, at_ps)
                at_ps, index = phase.start_ps, index - 1

    def _last_to_begin(self, worker: int, index: int, at_ps: int) -> tuple[int, int, int]:
        """When the last worker began an operation, which one, and the index of its phase.

        A worker that began after the operation was over somewhere was not waited for.
        """
        number = self._operations[worker].index(index)
        begun = [
            (self._own[other][places[number]].start_ps, other == worker, -other, places[number])
            for other, places in self._operations.items()
            if number < len(places)
        ]
        start_ps, _, other, place = max(one for one in begun if one[0] < at_ps or one[1])
        return start_ps, -other, place

    def _on_device(self, worker: int, index: int, at_ps: int) -> Iterator[Piece]:
        """What a worker does, or waits for, in a phase that is not the network's."""
        phase = self._own[worker][index]
        start_ps, end_ps = max(phase.start_ps, self._start_ps), at_ps
        if phase.phase == "wait":
            if phase.label == "network":
                yield Piece(start_ps, end_ps)
            else:
                yield from self._instead(worker, start_ps, end_ps, is_late=False)
            return
        usual_ps = phase.start_ps + self._median_ps(index, phase)
        middle_ps = min(max(usual_ps, start_ps), end_ps)
        yield Piece(middle_ps, end_ps, Cause.STRAGGLER, worker, phase.phase)
        yield Piece(start_ps, middle_ps, Cause.DEVICE, worker, phase.phase)

    def _median_ps(self, index: int, phase: PhaseRecord) -> int:
        """Median time of the workers in the same phase, after as many operations."""
        number = sum(place < index for place in self._operations[phase.worker])
        times_ps = []
        for worker, phases in self._own.items():
            places = self._operations[worker]
            first = places[number - 1] + 1 if number else 0
            last = places[number] if number < len(places) else len(phases)
            same = [one for one in phases[first:last] if one.phase == phase.phase]
            times_ps.append(sum(one.end_ps - one.start_ps for one in same))
        return int(median(times_ps))

    def _instead(self, worker: int, start_ps: int, end_ps: int, is_late: bool) -> Iterator[Piece]:
        """What a worker does while it is not in the round, or waits for its device."""
        left = [(start_ps, end_ps)]
        cause = Cause.STRAGGLER if is_late else Cause.DEVICE
        for phase in self._workers[worker].during(start_ps, end_ps):
            rest: list[tuple[int, int]] = []
            for begin_ps, until_ps in left:
                low, high = max(begin_ps, phase.start_ps), min(until_ps, phase.end_ps)
                if low >= high:
                    rest.append((begin_ps, until_ps))
                    continue
                if phase.phase == "network":
                    yield Piece(low, high)
                else:
                    yield Piece(low, high, cause, worker, phase.phase)
                rest += [(begin_ps, low), (high, until_ps)]
            left = [span for span in rest if span[0] < span[1]]
        for begin_ps, until_ps in left:
            yield Piece(begin_ps, until_ps, cause, worker, "idle")
