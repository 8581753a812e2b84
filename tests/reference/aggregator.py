"""The switch around the state machine in plain Python: front end, results, loopback, replication.

The rules are the section "Aggregation streams (SwitchML)" of sim/engine/README.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.reference.fabric import Fabric, Label, Packet
from tests.reference.stream import Contribution, JobNumber, Result, full_bytes
from tests.reference.switchml import SwitchmlReference, Verdict
from tests.reference.worker import Worker

KEY_RESULT, KEY_LOOPBACK = 2, 5

Connection = tuple[int, int]  # worker and window slot


class Aggregator:
    """What a switch keeps for one job."""

    def __init__(self, fabric: Fabric, job: JobNumber) -> None:
        self.fabric = fabric
        self.job = job.job
        self.number = job.number
        self.workers: list[Worker] = []  # by rank
        self.state = SwitchmlReference(len(job.job.hosts), job.job.slots_count)  # its slot 0 is `slot_base`
        self.expected_psn: dict[Connection, int] = {}  # none after a gap
        self.next_psn: Counter[Connection] = Counter()  # of results
        self.counters = {"packets": 0, "results": 0, "answers": 0, "duplicates_dropped": 0, "discarded": 0}

    def receive(self, packet: Contribution) -> None:
        """Process one packet from a worker."""
        self.counters["packets"] += 1
        if not self._in_sequence(packet):
            self.counters["discarded"] += 1
            return
        slot = packet.window_slot * self.job.unit_packets + packet.part
        verdict = self.state.packet(
            packet.worker, slot, packet.version, packet.words, packet.merge, packet.exponent
        )
        if verdict is Verdict.DROPPED:
            self.counters["duplicates_dropped"] += 1
        if verdict is Verdict.COMPLETE:
            self.counters["results"] += 1
            self._answer(packet, slot, self.workers)
        if verdict is Verdict.ANSWER:
            self.counters["answers"] += 1
            self._answer(packet, slot, [self.workers[packet.worker]])

    def _in_sequence(self, packet: Contribution) -> bool:
        """Front end: after a gap nothing passes until the next part 0, which always does."""
        connection = packet.worker, packet.window_slot
        if packet.part == 0 or packet.psn == self.expected_psn.get(connection):
            self.expected_psn[connection] = packet.psn + 1
            return True
        self.expected_psn.pop(connection, None)
        return False

    def _answer(self, cause: Contribution, slot: int, receivers: Sequence[Worker]) -> None:
        """Send the slot's content to the receivers, through the loopback link if there is one."""
        words, exponent = self.state.read(slot, cause.version, len(cause.words))
        result = cause._replace(words=words, exponent=exponent)
        if self.job.loopback_link < 0:
            self._replicate(result, receivers)
            return
        identity = (cause.stream, cause.unit, cause.part, cause.attempt)
        pass_again = Packet(
            target=self.job.switch,
            route=0,
            size_bytes=full_bytes(self.job.frame, cause.part, self.job.unit_packets),
            key=self.fabric.key(KEY_LOOPBACK, self.number, cause.worker, *identity),
            label=Label(self.workers[cause.worker].timer.owner, cause.unit, cause.part, cause.attempt),
            deliver=partial(self._replicate, result, receivers),
        )
        self.fabric.put(pass_again, self.job.loopback_link)

    def _replicate(self, result: Contribution, receivers: Sequence[Worker]) -> None:
        """Send one copy of a result to each receiver, in the order of ranks."""
        for worker in receivers:
            connection = worker.rank, result.window_slot
            copy = Result(
                result.stream,
                result.unit,
                result.part,
                self.next_psn[connection],
                result.words,
                result.exponent,
            )
            self.next_psn[connection] += 1
            identity = (result.stream, result.unit, result.part, result.attempt)
            packet = Packet(
                target=self.job.hosts[worker.rank],
                route=self.job.routes[worker.rank],
                size_bytes=full_bytes(self.job.frame, result.part, self.job.unit_packets),
                key=self.fabric.key(KEY_RESULT, self.number, 65536 * worker.rank + result.worker, *identity),
                label=Label(worker.timer.owner, result.unit, result.part, result.attempt),
                deliver=partial(worker.receive, copy),
            )
            self.fabric.forward(packet, self.job.switch)
