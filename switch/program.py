"""Programs of a switch: all that is known of one, and what it asks of a switch for a given demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal

from netfold.homomorphic.codec import Merge
from netfold.spelling import names_hint
from netfold.switch.formats import FORMATS, Format

VALUES = "values"  # the registers that hold words


class Machine(IntEnum):
    """State machines that the packet engine has compiled."""

    SWITCHML = 0
    TREE = 1
    TIMED = 2
    ATP = 3


@dataclass(frozen=True)
class Demand:
    """What a switch is to hold, all jobs on it together."""

    workers: int  # of the largest job
    slots: int  # of all jobs
    words: int  # of a packet
    words_per_pass: int | None = None  # that one pass adds; None: as the released program does
    jobs: int = 1
    rate_bps: int | None = None  # of a worker's packets; None: of the switch's fastest port
    others_bps: int = 0  # that other jobs on the switch bring to its loopback ports
    header_bytes: int | None = None  # in front of the words; None: as the released program has them


@dataclass(frozen=True)
class Register:
    """`count` register arrays alike, each in a stateful ALU of its own.

    A pass touches one entry of each, and only in a stage behind those in `after`: what they say decides
    what happens to it.
    """

    name: str
    entries: int
    bits: int  # of an entry
    lanes: int = 1  # 32-bit words of an entry that a pass changes
    after: tuple[str, ...] = ()
    count: int = 1

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, without what the memory's geometry wastes."""
        return self.count * self.entries * self.bits // 8


@dataclass(frozen=True)
class Program:
    """A program with its demand worked in: what one pipeline must hold, and how often a packet comes by.

    A packet with more words than a pass adds goes through `pipes` pipelines in a row, each with the same
    registers, or `repeats` times through one.
    """

    spec: ProgramSpec
    demand: Demand
    registers: tuple[Register, ...]
    words_per_pass: int
    pipes: int = 1
    repeats: int = 1
    reply_passes: int = 0  # of a server's reply, which frees what the round held
    resubmits: bool = False  # only the packet that completes a slot repeats through a loopback port

    @property
    def name(self) -> str:
        """What it is called."""
        return self.spec.name

    @property
    def title(self) -> str:
        """What sentences call it."""
        return self.spec.title

    @property
    def header_bytes(self) -> int:
        """Bytes in front of the words, in the packet with the longest headers."""
        if self.demand.header_bytes is not None:
            return self.demand.header_bytes
        return max(frame.parsed_bytes for frame in self.spec.frames)

    @property
    def salus(self) -> int:
        """Stateful ALUs of one pipeline."""
        return sum(register.count for register in self.registers)

    @property
    def values(self) -> Register:
        """The registers that hold words."""
        return next(register for register in self.registers if register.name == VALUES)

    @property
    def header_vector_bits(self) -> int:
        """Bits of a packet that a pass sees: headers and the words it adds."""
        return 8 * self.header_bytes + 32 * self.words_per_pass

    @property
    def state_bytes(self) -> int:
        """Bytes of all registers in all pipelines."""
        return self.pipes * sum(register.size_bytes for register in self.registers)

    @property
    def values_bytes(self) -> int:
        """Bytes of the words alone: of every slot, in every version of it."""
        return self.pipes * self.values.size_bytes


@dataclass(frozen=True)
class Timeouts:
    """When workers send again; a full window's round trip may ask for more."""

    usual_ps: int
    first_ps: int = 0  # at least, for the first window of every exchange
    doubles: bool = True  # after many timeouts of a worker


@dataclass(frozen=True)
class Option:
    """A key of a scenario's `collective` that only some programs have."""

    name: str
    kind: Literal["time", "size", "count", "flag", "text"]
    default: str | int | bool | None  # as a scenario writes it; None: left out
    meaning: str
    missing: str = ""  # where it is required: what is said if it is left out, and below it a hint
    zero: str = ""  # where it may not be 0: the same


def has_begun(slot: Any) -> bool:
    """Whether a slot (a row of `switch.registers.SLOT`) has seen somebody."""
    return bool(slot.bitmap != 0)


@dataclass(frozen=True)
class ProgramSpec:
    """All that is known of a program; who needs to know something of it reads it here."""

    name: str
    title: str  # what sentences call it
    summary: str  # one clause
    machine: Machine | None  # None: the engine cannot run it, it can only be placed on a switch

    # what it takes of a switch
    layout: Callable[[ProgramSpec, Demand], Program]
    released: Demand  # what `netfold switch fit` takes unless told otherwise
    needs_lossless: bool = False  # it has no answer to lost packets
    fits_fixed: bool = False  # switches that run one program alone run this one
    has_timers: bool = False  # a slot that has waited too long answers with what it has
    merges: frozenset[Merge] | None = None  # None: all that a switch can
    overflow: str | None = None  # what becomes of sums that leave int32; None: the first that a switch can
    only_overflow: str = ""  # why nothing else may; empty: a scenario chooses

    # packets
    frames: tuple[Format, ...] = ()
    frame: str = ""  # the default
    more_words: tuple[int, ...] = ()  # of packets that no frame here has
    message_packets: int = 1  # by default, with frames that have messages; 1: it has none
    slots: int = 0  # packets that a worker may have outstanding, by default
    timeouts: Timeouts | None = None  # None: it sends everything once

    # slots, and what is in them
    may_be_tree: bool = False  # of switches, and its units may have several packets
    versions: int = 2  # of every slot: one may be read again while the other fills
    has_counter: bool = False  # beside the bitmap, from which it can part after a fault
    has_exponents_ahead: bool = False  # block exponents are agreed on one window ahead of the words
    has_server: bool = False  # hashed entries that jobs share, and a host for what collides
    is_waiting: Callable[[Any], bool] = has_begun  # whether a slot has begun and not ended
    reopened_by: frozenset[str] = frozenset()  # faults that leave slots waiting: duplicate, reorder, reboot

    options: tuple[Option, ...] = ()

    @property
    def words(self) -> tuple[int, ...]:
        """Words of a packet, as it is known to have them."""
        return tuple(sorted({*self.more_words, *(frame.words for frame in self.frames)}))

    @property
    def is_all_or_nothing(self) -> bool:
        """Whether slots wait for all workers, and results hold all of them."""
        return not (self.has_timers or self.has_server)


class UnknownProgramError(ValueError):
    """A program that is not registered; the message names it, its like, and all there are."""


_registry: dict[str, ProgramSpec] = {}


def register(spec: ProgramSpec) -> ProgramSpec:
    """Make a program known under its name."""
    _registry[spec.name] = spec
    return spec


def unregister(name: str) -> None:
    """Forget a program."""
    del _registry[name]


def programs() -> dict[str, ProgramSpec]:
    """All registered programs by name, in the order of the engine's state machines."""
    last = len(Machine)
    specs = sorted(_registry.values(), key=lambda one: last if one.machine is None else one.machine)
    return {spec.name: spec for spec in specs}


def runnable() -> dict[str, ProgramSpec]:
    """Programs that the engine can run; the first is the default."""
    return {name: spec for name, spec in programs().items() if spec.machine is not None}


def formats() -> dict[str, Format]:
    """All packet formats by name: those of hosts, and of every program that can run."""
    own = (frame for spec in runnable().values() for frame in spec.frames)
    return {frame.name: frame for frame in (*FORMATS, *own)}


def default_program() -> ProgramSpec:
    """The program of a scenario that names none."""
    return next(iter(runnable().values()))


def names_of(holds: Callable[[ProgramSpec], bool]) -> list[str]:
    """Names of the programs that can run and of which something holds."""
    return [name for name, spec in runnable().items() if holds(spec)]


def declare(name: str, demand: Demand, *, in_one_pass: bool = False) -> Program:
    """What a program asks for, for what it is to do.

    `in_one_pass` is for switches without stages: whatever `demand` says of words a pass, all words of a
    packet are added at once, so nothing is folded and nothing repeats.

    Raises
    ------
    UnknownProgramError
        Names the nearest program and all there are.
    """
    known = programs()
    if name not in known:
        raise UnknownProgramError(f"there is no program {name!r}; {names_hint(name, known)}")
    asked = replace(demand, words_per_pass=demand.words) if in_one_pass else demand
    return replace(known[name].layout(known[name], asked), demand=demand)
