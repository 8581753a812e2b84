"""ATP's parameter server in plain Python: completes what the switch could not, and acknowledges.

The rules are the section "ATP" of sim/engine/README.md. Source: in-ATP/ATP, server/ParameterServer.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from netfold.homomorphic.message import Merge
from tests.reference.atp.atp_packet import (
    KEY_PROPOSAL,
    KEY_REPLY,
    NO_PROPOSAL,
    Contribution,
    Reply,
    full_bytes,
)
from tests.reference.atp.switch import add_sticky, is_stuck
from tests.reference.engine.chunk import JobNumber
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.link import Label, Packet
from tests.reference.switch.merging import merged_word

PROPOSAL_TRIES = 64


@dataclass
class Gathering:
    """What the server knows of one unit."""

    words: list[int]  # the sum of the workers in `bits`
    bits: int = 0
    is_marked: bool = False
    has_collided: bool = False
    has_asked_for_entry: bool = False  # a proposal was made, or none was found
    is_float: bool = False
    is_done: bool = False
    proposal: int = NO_PROPOSAL
    replies: int = 0


class AtpServer:
    """The server of one job."""

    def __init__(
        self,
        fabric: Fabric,
        job: JobNumber,
        first_entries: Sequence[int],
        to_switch: Callable[[Reply, Packet], None],
    ) -> None:
        assert job.job.server is not None
        self.fabric = fabric
        self.job = job
        self.server = job.job.server
        self.to_switch = to_switch
        self.all_bits = (1 << len(job.job.hosts)) - 1
        self.used_entries = set(first_entries)
        self.tries = 0  # at a proposal
        self.gatherings: dict[tuple[int, int], Gathering] = {}  # by stream and unit
        self.newest_stream = 0
        self.counters = {"server_packets": 0, "requests": 0}

    def receive(self, data: Contribution, packet: Packet) -> None:
        """Take in one data packet; what completes or repeats a unit is answered."""
        self.counters["server_packets"] += 1
        if data.stream < self.newest_stream - 1:
            return
        self._forget_before(data.stream - 1)
        unit = self.gatherings.setdefault((data.stream, data.unit), Gathering([0] * len(packet.words)))
        unit.is_marked |= packet.is_marked
        unit.has_collided |= data.has_collided
        if unit.is_done:
            self._reply(unit, data)
            return
        if data.is_float != unit.is_float:
            self._request(unit, data)
            if not data.is_float:
                return
        if data.is_float:
            self._add_floats(unit, data, packet.words)
        else:
            self._add(unit, data, packet.words)
        if unit.bits == self.all_bits:
            self._complete(unit, data)

    def _forget_before(self, stream: int) -> None:
        """Forget streams that every worker has ended."""
        if stream + 1 > self.newest_stream:
            self.newest_stream = stream + 1
            self.gatherings = {key: unit for key, unit in self.gatherings.items() if key[0] >= stream}

    def _add(self, unit: Gathering, data: Contribution, words: list[int]) -> None:
        """Take all of a packet's words, or none: those of single workers cannot be separated."""
        if data.bits != self.all_bits and data.bits & unit.bits:
            return
        if data.bits == self.all_bits or unit.bits == 0:
            unit.words = words
        else:
            unit.words = [add_sticky(old, new) for old, new in zip(unit.words, words, strict=True)]
        unit.bits |= data.bits

    def _add_floats(self, unit: Gathering, data: Contribution, words: list[int]) -> None:
        if data.bits & unit.bits:
            return
        unit.words = add_floats(unit.words, words) if unit.bits else words
        unit.bits |= data.bits

    def _complete(self, unit: Gathering, data: Contribution) -> None:
        """Answer with the sum, or ask for floats if it may be wrong."""
        if not data.is_float and data.can_be_float and any(map(is_stuck, unit.words)):
            self._request(unit, data)
            return
        unit.is_done = True
        self._reply(unit, data)

    def _request(self, unit: Gathering, data: Contribution) -> None:
        """Ask every worker for floats; from the first time on, ints do not count."""
        if not unit.is_float:
            unit.is_float = True
            unit.bits = 0
        self.counters["requests"] += 1
        self._reply(unit, data)

    def propose(self) -> int:
        """An entry that the job has not used yet, if one is found soon."""
        for _ in range(PROPOSAL_TRIES):
            entry = self.fabric.key(KEY_PROPOSAL, self.job.number, self.tries) % self.server.entries
            self.tries += 1
            if entry not in self.used_entries:
                self.used_entries.add(entry)
                return entry
        return NO_PROPOSAL

    def _reply(self, unit: Gathering, data: Contribution) -> None:
        """Put an acknowledgement on the way to the switch: a request until the unit is done."""
        if unit.is_done and unit.has_collided and not unit.has_asked_for_entry:
            unit.has_asked_for_entry = True
            unit.proposal = self.propose()
        worker = (data.bits & -data.bits).bit_length() - 1
        reply = Reply(
            worker=worker,
            stream=data.stream,
            unit=data.unit,
            number=unit.replies,
            entry=data.entry,
            is_float=unit.is_float,
            is_request=not unit.is_done,
            proposal=unit.proposal,
        )
        unit.replies += 1
        identity = (self.job.number, worker, data.stream, data.unit, 0, reply.number)
        packet = Packet(
            target=self.job.job.switch,
            route=self.server.route,
            size_bytes=full_bytes(self.job),
            key=self.fabric.key(KEY_REPLY, *identity),
            label=Label(self.job.owner(worker), data.unit, 0, reply.number),
            deliver=partial(self.to_switch, reply),
            words=unit.words,
            starts_message=True,
            is_marked=unit.is_marked,
        )
        self.fabric.forward(packet, self.server.host)


def add_floats(old: list[int], new: list[int]) -> list[int]:
    """Sums of float32 words given as bits."""
    return [merged_word(Merge.FLOAT_ADD, a, b) for a, b in zip(old, new, strict=True)]
