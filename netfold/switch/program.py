"""Programs of a switch: their specification, and the resources they need for a given demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal

from netfold.errors import names_hint
from netfold.homomorphic.merge import CODE_BITS, COUNTER_BITS, WORD_BITS, Merge
from netfold.kinds import family, registered
from netfold.switch.profiles import ADDER_BITS

# Packet formats: the words of a packet, and the headers and trailers around them.
#
# SwitchML's formats are those of the released program (p4lang/p4app-switchML, `headers.p4`, `parsers.p4`,
# `rdma_sender.p4`):
#
#     UDP       Ethernet 14, IPv4 20, UDP 8, SwitchML 8, payload, exponents 2
#     RoCEv2    Ethernet 14, IPv4 20, UDP 8, BTH 12, payload, ICRC 4;
#               RETH 16 on a message's first packet, immediate 4 on its last
#
# The released parser takes UDP payloads of 256 bytes only (two halves of 128, then the exponents): `udp-1024`
# is netfold's own, the same headers around 1024 bytes. Sizes count the exponents among the headers.
#
# A job whose workers may have nothing to contribute (absence is netfold's own extension) has four more bytes
# in every packet: a bitmap of the workers whose words it holds, bit r for worker r, for jobs of 32 workers at
# most; for larger ones, their number. The packet of an absent worker ends after its headers.
#
# Acknowledgements: RoCE Ethernet 14, IPv4 20, UDP 8, BTH 12, AETH 4, ICRC 4; UDP fills a minimal frame.


WIRE_BYTES = 4 + 20  # frame check sequence, preamble and inter-packet gap
MEMBERS_BYTES = 4
"""Size of the record of who contributed, in every packet of jobs whose workers may be absent."""
MINIMAL_BYTES = 60 + WIRE_BYTES
"""Smallest frame on the wire."""


@dataclass(frozen=True)
class Format:
    """One packet format; sizes do not include Ethernet's frame check sequence, preamble and gap."""

    name: str
    words: int
    """32-bit words of a full packet."""
    header_bytes: int
    """Headers that every packet has."""
    first_bytes: int = 0
    """Further headers on the first packet of a message."""
    last_bytes: int = 0
    """Further headers on the last packet of a message."""
    check_bytes: int = 0
    """Trailer after the words."""
    ack_bytes: int = MINIMAL_BYTES
    """Size of an acknowledgement on the wire."""
    has_messages: bool = False
    """Whether a message can have more than one packet."""

    @property
    def overhead_bytes(self) -> int:
        # A packet in the middle of a message has neither its first nor its last headers.
        return self.header_bytes + self.check_bytes + WIRE_BYTES

    @property
    def parsed_bytes(self) -> int:
        return self.header_bytes + self.first_bytes + self.last_bytes


def _udp(name: str, words: int) -> Format:
    return Format(name, words, 14 + 20 + 8 + 8 + 2)


def _roce(name: str, words: int) -> Format:
    header_bytes, check_bytes, extended_bytes = 14 + 20 + 8 + 12, 4, 4
    ack_bytes = header_bytes + extended_bytes + check_bytes + WIRE_BYTES
    return Format(name, words, header_bytes, 16, 4, check_bytes, ack_bytes, has_messages=True)


UDP_256, UDP_1024 = _udp("udp-256", 64), _udp("udp-1024", 256)
ROCE_1024, ROCE_2048 = _roce("roce-1024", 256), _roce("roce-2048", 512)
FORMATS = (UDP_256, UDP_1024, ROCE_1024, ROCE_2048)
"""Formats that are not specific to one program."""


VALUES = "values"  # the registers that hold words
BITMAP_BITS = 32
"""Children that a word of a bitmap tells apart. A packet sets a bit of one, and reads if others are 0."""


class Machine(IntEnum):
    """Compiled state machines of the packet engine."""

    SWITCHML = 0
    TREE = 1
    TIMED = 2
    ATP = 3


@dataclass(frozen=True)
class Demand:
    """The load of all jobs on a switch together."""

    workers: int
    """Workers of the largest job."""
    slots: int
    """Slots of all jobs."""
    words: int
    """Words of a packet."""
    words_per_pass: int | None = None
    """Words that one pass adds; None: as in the released program."""
    jobs: int = 1
    rate_bps: int | None = None
    """Rate of a worker's packets; None: that of the switch's fastest port."""
    others_bps: int = 0
    """Rate of other jobs on the switch, through its loopback ports."""
    header_bytes: int | None = None
    """Headers before the words; None: as in the released program."""
    lane_bits: int = WORD_BITS
    """Width of the lanes of sums that words are packed with."""
    is_lifted: bool = False  # words are 4-bit codes, which a table lifts to lanes
    may_be_absent: bool = False  # workers may have nothing to contribute: slots and packets say who did

    @property
    def adder_bits(self) -> int:
        # Counters are packed in words, which adders of words add.
        return WORD_BITS if self.lane_bits == COUNTER_BITS else self.lane_bits

    @property
    def values_per_word(self) -> int:
        return WORD_BITS // (CODE_BITS if self.is_lifted else self.adder_bits)


@dataclass(frozen=True)
class Register:
    """`count` equal register arrays, each with its own stateful ALU.

    A pass touches one entry of each, only in a later stage than the registers in `after`, whose contents
    decide about it.
    """

    name: str
    entries: int
    bits: int
    """Width of an entry."""
    lanes: int = 1
    """Words, or narrower values, of an entry that a pass changes."""
    after: tuple[str, ...] = ()
    count: int = 1

    @property
    def size_bytes(self) -> int:
        return self.count * self.entries * self.bits // 8


@dataclass(frozen=True)
class Program:
    """A program laid out for a demand: the registers of one pipeline, and the passes of a packet.

    A packet with more words than a pass adds goes through `pipes` pipelines in a row, each with the same
    registers, or `repeats` times through one.
    """

    spec: ProgramSpec
    demand: Demand
    registers: tuple[Register, ...]
    words_per_pass: int
    pipes: int = 1
    repeats: int = 1
    reply_passes: int = 0
    """Passes of a server's reply, which frees the slot."""
    resubmits: bool = False  # only the packet that completes a slot repeats through a loopback port

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def title(self) -> str:
        return self.spec.title

    @property
    def header_bytes(self) -> int:
        """Bytes before the words, in the packet with the longest headers."""
        members_bytes = MEMBERS_BYTES if self.demand.may_be_absent else 0
        if self.demand.header_bytes is not None:
            return self.demand.header_bytes + members_bytes
        return max(frame.parsed_bytes for frame in self.spec.frames) + members_bytes

    @property
    def salus(self) -> int:
        return sum(register.count for register in self.registers)

    @property
    def values(self) -> Register:
        return next(register for register in self.registers if register.name == VALUES)

    @property
    def values_per_pass(self) -> int:
        return self.words_per_pass * self.demand.values_per_word

    @property
    def header_vector_bits(self) -> int:
        """Bits of a packet that a pass sees: headers, the words it adds, and what a table makes of them."""
        lifted_bits = self.values_per_pass * self.demand.adder_bits if self.demand.is_lifted else 0
        return 8 * self.header_bytes + 32 * self.words_per_pass + lifted_bits

    @property
    def state_bytes(self) -> int:
        return self.pipes * sum(register.size_bytes for register in self.registers)

    @property
    def values_bytes(self) -> int:
        return self.pipes * self.values.size_bytes


def pairs_of_values(demand: Demand, per_pass: int, entries: int, after: tuple[str, ...]) -> Register:
    """Registers for the values of `per_pass` words: two values an entry, each with its own adder."""
    values = per_pass * demand.values_per_word
    return Register(VALUES, entries, 2 * demand.adder_bits, lanes=2, after=after, count=-(-values // 2))


def contributors(demand: Demand, rows: int, after: str) -> tuple[Register, ...]:
    # Of the workers whose words each row holds, where some may be absent. They decide whether a packet's
    # words overwrite the values, and come before them.
    return (Register("contributors", rows, 32, after=(after,)),) if demand.may_be_absent else ()


def bitmap_words(demand: Demand) -> int:
    return -(-demand.workers // BITMAP_BITS)


@dataclass(frozen=True)
class Timeouts:
    """Retransmission timeouts of the released client; a full window's round trip may require longer ones."""

    usual_ps: int
    first_ps: int = 0
    """Shortest timeout of the first window of every exchange."""
    doubles: bool = True
    """Whether the timeout doubles after many timeouts of a worker."""


@dataclass(frozen=True)
class ProgramOption:
    """A key of a scenario's `collective` that only some programs have."""

    name: str
    kind: Literal["time", "size", "count", "flag", "text"]
    default: str | int | bool | None
    """Value as written in a scenario; None: no default."""
    meaning: str
    missing: str = ""
    """Error where the key is required and missing."""
    example: str = ""
    """Example of a value where the key is required."""
    zero: str = ""
    """Error and hint where the value may not be 0."""


def has_begun(slots: Any) -> Any:
    # Slots (rows of `switch.registers.SLOT`) that have seen any child.
    return slots.bitmap != 0


@family("switch_programs", "netfold.switch.programs")
@dataclass(frozen=True)
class ProgramSpec:
    """The full specification of a program; all other modules read it from here."""

    name: str
    title: str  # its name in sentences
    summary: str  # one clause
    machine: Machine | None  # None: the engine cannot run it; it can only be fitted to a switch

    # resources
    layout: Callable[[ProgramSpec, Demand], Program]
    released: Demand  # the default of `netfold switch fit`
    needs_lossless: bool = False  # it does not recover from lost packets
    fits_fixed: bool = False  # switches of kind "fixed" run this program
    has_timers: bool = False  # a slot that has waited too long answers with a partial sum
    merges: frozenset[Merge] | None = None  # None: all that the switch supports
    adder_bits: tuple[int, ...] = ADDER_BITS  # widths of lanes that its registers can have
    overflow: str | None = None  # policy for sums that leave int32; None: the first that the switch supports
    only_overflow: str = ""  # why no other policy is allowed; empty: a scenario chooses

    # packets
    frames: tuple[Format, ...] = ()
    frame: str = ""
    """Name of the default format."""
    more_words: tuple[int, ...] = ()  # packet sizes that are in no frame here
    message_packets: int = 1
    """Packets of a message by default, with frames that have messages; 1: no messages."""
    timeouts: Timeouts | None = None  # None: it sends everything once

    # slots
    may_be_tree: bool = False  # it may run on a tree of switches, with units of several packets
    children_max: int = BITMAP_BITS  # workers and switches below that one switch can tell apart
    versions: int = 2
    """Versions of every slot: one can be read while the other fills."""
    has_counter: bool = False
    """Whether there is a counter beside the bitmap; after a fault the two can disagree."""
    has_exponents_ahead: bool = False  # block exponents are agreed one window ahead of the words
    has_server: bool = False  # hashed entries that jobs share, and a server host for collisions
    carries_absence: bool = True  # it counts headers without words, of workers that contribute nothing
    is_waiting: Callable[[Any], Any] = has_begun
    """Tells which slots are partly filled, of many rows at once."""
    reopened_by: frozenset[str] = frozenset()  # faults that leave slots waiting: duplicate, reorder, reboot

    options: tuple[ProgramOption, ...] = ()

    @property
    def words(self) -> tuple[int, ...]:
        # Those that a packet can have.
        return tuple(sorted({*self.more_words, *(frame.words for frame in self.frames)}))

    @property
    def is_all_or_nothing(self) -> bool:
        # Slots wait for all workers, and results contain all of them.
        return not (self.has_timers or self.has_server)


def programs() -> dict[str, ProgramSpec]:
    """All registered programs by name, in the order of the engine's state machines."""
    last = len(Machine)
    specs: list[ProgramSpec] = list(registered(ProgramSpec).values())
    specs.sort(key=lambda spec: last if spec.machine is None else spec.machine)
    return {spec.name: spec for spec in specs}


def runnable() -> dict[str, ProgramSpec]:
    return {name: spec for name, spec in programs().items() if spec.machine is not None}


def formats() -> dict[str, Format]:
    """All packet formats by name: the general ones, and those of every program that can run."""
    frames = (frame for spec in runnable().values() for frame in spec.frames)
    return {frame.name: frame for frame in (*FORMATS, *frames)}


def default_program() -> ProgramSpec:
    return next(iter(runnable().values()))


def names_of(holds: Callable[[ProgramSpec], bool]) -> list[str]:
    return [name for name, spec in runnable().items() if holds(spec)]


def declare(name: str, demand: Demand, *, in_one_pass: bool = False) -> Program:
    """Lay out a program for a demand; raises ValueError where there is no such program."""
    # `in_one_pass` is for switches without stages: regardless of `demand.words_per_pass`, all words of a
    # packet are added in one pass, without folding or repeats.
    specs = programs()
    if name not in specs:
        raise ValueError(f"there is no program {name!r}; {names_hint(name, specs)}")
    wanted = replace(demand, words_per_pass=demand.words) if in_one_pass else demand
    return replace(specs[name].layout(specs[name], wanted), demand=demand)


# Memory sizes in readable units.


_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def binary_size(size_bytes: int) -> str:
    """A size in KiB, MiB, GiB or TiB with three digits, or in whole bytes: "4.28 MiB", "954 B"."""
    for factor, unit in _UNITS:
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{size_bytes} B"


# Folding: packets of many words pass several pipelines of a chip in a row.


FOLDED_WORDS, FOLDED_PIPES = 256, 4


def fold_rows(demand: Demand) -> tuple[int, int]:
    """Words per pass and pipelines in a row, as in SwitchML's `next_step_selector.py`."""
    if demand.words_per_pass is not None:
        per_pass = min(demand.words_per_pass, demand.words)
        return per_pass, -(-demand.words // per_pass)
    if demand.words == FOLDED_WORDS:
        return FOLDED_WORDS // FOLDED_PIPES, FOLDED_PIPES
    return demand.words, 1
