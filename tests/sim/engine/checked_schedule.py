"""An all-reduce's schedule, checked transfer by transfer in plain Python."""

from __future__ import annotations

from netfold.sim.engine.engine_data import NONE, Schedule


def check_schedule(schedule: Schedule) -> None:
    """Check that a schedule is an all-reduce whose cells are used as the module says.

    It takes some microseconds per transfer.

    Raises
    ------
    ValueError
        Says which transfer breaks which rule: an index outside, a transfer that waits for a later one or for
        one that does not end at its source, one that may leave before its source has received what it sends,
        a cell that is sent or merged into after it was merged away, contributions that are merged twice, a
        final transfer of a cell that lacks a worker's contribution, two transfers from one worker or to one
        worker with the same step, a lane of several pairs, or a worker that lacks a final cell at the end.
    """
    checked = _Checked(schedule)
    for number in range(schedule.transfers):
        checked.transfer(number)
    for worker in range(schedule.workers):
        for chunk in range(schedule.chunks):
            if checked.held[worker, chunk] != checked.everyone:
                holds = checked.held[worker, chunk] or "nobody"
                raise ValueError(f"worker {worker} ends with chunk {chunk} of {holds}")


class _Checked:
    """What the transfers so far have done."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, workers = schedule, range(schedule.workers)
        self.everyone = set(workers)
        self.held = {(worker, chunk): {worker} for worker in workers for chunk in range(schedule.chunks)}
        self._keys: set[tuple[str, int, int]] = set()
        self._lanes: dict[int, tuple[int, int]] = {}
        self._received: dict[tuple[int, int], int] = {}  # by worker and chunk: transfers, as bits
        self._known: list[int] = []  # transfers that are processed once a transfer is, as bits

    def transfer(self, number: int) -> None:
        schedule = self._schedule
        source, target = int(schedule.source[number]), int(schedule.target[number])
        at = f"transfer {number} from {source} to {target}"
        if source == target or not {source, target} <= self.everyone:
            raise ValueError(f"{at}: there are workers 0 to {schedule.workers - 1}, and the two must differ")
        before = self._processed_before(number, at)
        self._check_names(number, (source, target), at)
        chunks = range(int(schedule.first[number]), int(schedule.first[number] + schedule.count[number]))
        if not chunks or chunks.start < 0 or chunks.stop > schedule.chunks:
            raise ValueError(f"{at}: carries chunks {chunks}, there are {schedule.chunks}")
        for chunk in chunks:
            if missed := self._received.get((source, chunk), 0) & ~before:
                late = missed.bit_length() - 1
                raise ValueError(f"{at}: may leave before transfer {late} has brought chunk {chunk}")
            received = self._received.get((target, chunk), 0)
            self._received[target, chunk] = received | 1 << number
            self._move((source, chunk), (target, chunk), bool(schedule.merges[number]), at)

    def _move(self, source: tuple[int, int], target: tuple[int, int], merges: bool, at: str) -> None:
        held, chunk = self.held, source[1]
        if not held[source]:
            raise ValueError(f"{at}: worker {source[0]} has merged chunk {chunk} away")
        if not merges:
            if held[source] != self.everyone:
                raise ValueError(f"{at}: chunk {chunk} is not final: it holds {held[source]}")
            held[target] = self.everyone
            return
        if not held[target]:
            raise ValueError(f"{at}: worker {target[0]} has merged chunk {chunk} away")
        if held[source] & held[target]:
            raise ValueError(f"{at}: chunk {chunk} would hold a contribution twice")
        held[target] = held[source] | held[target]
        held[source] = set()

    def _check_names(self, number: int, pair: tuple[int, int], at: str) -> None:
        """Check the step and the lane of a transfer."""
        step, lane = int(self._schedule.step[number]), int(self._schedule.lane[number])
        for way, worker in zip(("from", "to"), pair, strict=True):
            if (way, worker, step) in self._keys:
                raise ValueError(f"{at}: there are two transfers {way} worker {worker} with step {step}")
            self._keys.add((way, worker, step))
        if lane != NONE and self._lanes.setdefault(lane, pair) != pair:
            raise ValueError(f"{at}: lane {lane} is that of {self._lanes[lane]}")

    def _processed_before(self, number: int, at: str) -> int:
        """Check what a transfer waits for and follows; those processed when it is sent, as bits."""
        schedule, known, before = self._schedule, self._known, 0
        begin, end = int(schedule.waits_first[number]), int(schedule.waits_first[number + 1])
        for other in schedule.waits_for[begin:end].tolist():
            if not 0 <= other < number or schedule.target[other] != schedule.source[number]:
                raise ValueError(f"{at}: waits for transfer {other}, which is no earlier one to its source")
            before |= known[other]
        other = int(schedule.follows[number])
        if other != NONE and (not 0 <= other < number or schedule.target[other] != schedule.target[number]):
            raise ValueError(f"{at}: follows transfer {other}, which is no earlier one to its target")
        known.append(before | 1 << number | (known[other] if other != NONE else 0))
        return before
