"""One ATP job in plain Python: its workers, its server, and the switch between them.

The rules are the section "ATP" of sim/engine/README.md; what the switch keeps is in `atp.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from netfold.sim.engine.interface import Segment
from tests.reference.atp.atp_packet import KEY_COPY, Contribution, Reply, first_entries
from tests.reference.atp.atp_server import AtpServer
from tests.reference.atp.atp_worker import AtpWorker
from tests.reference.atp.switch import AtpReference, Verdict
from tests.reference.engine.chunk import JobNumber
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.link import Label, Packet

COUNTER = {
    Verdict.FORWARD_COMPLETE: "results",
    Verdict.FORWARD_EVICT: "evictions",
    Verdict.FORWARD_ANSWER: "answers",
    Verdict.DROPPED: "duplicates_dropped",
}


class AtpJob:
    """A job of ATP.

    `finished` is called with a worker's rank when its stream is done; `switch` holds the entries that all
    such jobs on the switch share.
    """

    def __init__(
        self, fabric: Fabric, job: JobNumber, finished: Callable[[int], None], switch: AtpReference
    ) -> None:
        assert job.job.server is not None, "a job of ATP has a server"
        self.fabric = fabric
        self.job = job
        self.switch = switch
        entries = first_entries(fabric, job)
        self.server = AtpServer(fabric, job, entries, self._acknowledge)
        self.workers = [
            AtpWorker(fabric, job, rank, entries, self._aggregate, partial(finished, rank))
            for rank in range(len(job.job.hosts))
        ]
        names = ["packets", *COUNTER.values(), "collisions", "overflowed_words", "forwarded", "acknowledged"]
        self._counters = dict.fromkeys(names, 0)

    def switch_counters(self) -> dict[str, int]:
        """What the switch and the server did; counters that are missing are 0."""
        return {**self._counters, **self.server.counters}

    def clear(self, switch: int) -> None:
        """Lose what the registers of a switch hold, if it is the job's: of all jobs on it."""
        if switch == self.job.job.switch:
            self.switch.clear()

    def open(self, worker: int, segments: Sequence[Segment]) -> None:
        """Start a worker's next exchange; raises ValueError as `AtpWorker.open`."""
        self.workers[worker].open(segments)

    def identity(self, stream: int, unit: int) -> int:
        """What an entry calls a unit: different for all units of all jobs, and never 0."""
        return (self.job.number << 128) + (stream << 64) + unit + 1

    def _aggregate(self, data: Contribution, packet: Packet) -> None:
        """The switch takes in a worker's packet."""
        self._counters["packets"] += 1
        if data.is_float:
            self._counters["forwarded"] += 1
            self._to_server(data, packet)
            return
        outcome = self.switch.data(
            data.entry,
            self.identity(data.stream, data.unit),
            data.bits,
            len(self.workers),
            data.is_resend,
            packet.is_marked,
            packet.words,
        )
        self._counters["overflowed_words"] += outcome.overflowed_words
        if outcome.verdict is Verdict.COLLIDED:
            if not data.is_resend:
                self.fabric.lost_ps = self.fabric.now_ps
            self._counters["collisions"] += not data.is_resend
            self._counters["forwarded"] += 1
            self._to_server(data._replace(has_collided=not data.is_resend), packet)
            return
        if outcome.verdict in COUNTER:
            self._counters[COUNTER[outcome.verdict]] += 1
        if outcome.verdict in (Verdict.CONSUMED, Verdict.DROPPED):
            return
        self._counters["forwarded"] += 1
        merged = data._replace(bits=outcome.bits)
        packet = replace(packet, words=outcome.words, is_marked=outcome.is_marked)
        if self.job.job.loopback_link < 0:
            self._to_server(merged, packet)
        else:
            pass_again = replace(packet, deliver=partial(self._to_server, merged))
            self.fabric.put(pass_again, self.job.job.loopback_link)

    def _to_server(self, data: Contribution, packet: Packet) -> None:
        """Send a packet on: the same one, so its key and hops go on."""
        server = self.server.server
        onward = replace(
            packet, target=server.host, route=server.route, deliver=partial(self.server.receive, data)
        )
        self.fabric.forward(onward, self.job.job.switch)

    def _acknowledge(self, reply: Reply, packet: Packet) -> None:
        """The switch takes in the server's packet: a result frees the entry, and every worker gets a copy."""
        self._counters["acknowledged"] += 1
        if not reply.is_request:
            self.switch.acknowledge(reply.entry, self.identity(reply.stream, reply.unit))
        for worker in self.workers:
            sender = 65536 * worker.rank + reply.worker
            identity = (self.job.number, sender, reply.stream, reply.unit, 0, reply.number)
            copy = Packet(
                target=self.job.job.hosts[worker.rank],
                route=self.job.job.routes[worker.rank],
                size_bytes=packet.size_bytes,
                key=self.fabric.key(KEY_COPY, *identity, copy=packet.copy),
                copy=packet.copy,
                label=Label(worker.timer.label.owner, reply.unit, 0, reply.number),
                deliver=partial(worker.receive, reply),
                words=packet.words,
                is_marked=packet.is_marked,
            )
            self.fabric.forward(copy, self.job.job.switch)
