"""What a job asks of the switches of a tree, and what it gets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from netfold.homomorphic.message import WORD_BITS, Merge
from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.keys.location import Location
from netfold.switch.fit import Fit
from netfold.switch.program import Demand


@dataclass(frozen=True)
class SlotAllocation:
    """The allocation of a job: slots from `slot_base` on, and a loopback link or −1, at every point."""

    slot_base: int
    loopback_links: tuple[int, ...]
    fit: Fit  # at the root


class Lanes(NamedTuple):
    """How a job's registers are divided: the fields of `Demand` of the same names."""

    lane_bits: int
    is_lifted: bool


@dataclass(frozen=True)
class Request:
    """What a job needs of every switch of its tree."""

    location: Location
    section: InNetworkSection
    words: int  # of a packet
    merges: Collection[Merge]
    overflow: str  # one of `switch.limits.OVERFLOWS`
    stream_bps: int  # of every worker's packets, limited by the job's busiest link
    slots: int  # of one tree
    header_bytes: int | None = None  # of a custom frame
    lane_bits: int = WORD_BITS  # of sums
    may_be_absent: bool = False  # workers, from messages that merge
    instead: str = ""  # a codec for switches that cannot merge this one's words

    @property
    def lanes(self) -> Lanes:
        """How its registers are divided."""
        return Lanes(self.lane_bits, Merge.TABLE_ADD in self.merges)


def slot_bits(lanes: Lanes) -> int:
    """Bits of registers for each word of a packet."""
    demand = Demand(workers=1, slots=1, words=1, **lanes._asdict())
    return demand.values_per_word * demand.adder_bits


def of_lanes(lanes: Lanes) -> str:
    """What errors call registers that are divided so."""
    return f"{'codes lifted to ' if lanes.is_lifted else ''}lanes of {lanes.lane_bits} bits"


def entries(section: InNetworkSection) -> int | None:
    """Entries of a switch, if all jobs share them; None if each job has its own slots."""
    return int(section.option("entries")) if section.spec.has_server else None
