"""What a program asks of a switch: register arrays that wait for each other, headers, passes."""

from __future__ import annotations

from dataclasses import dataclass

VALUES = "values"  # the registers that hold words


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

    name: str
    title: str
    demand: Demand
    registers: tuple[Register, ...]
    header_bytes: int  # in front of the words
    words_per_pass: int
    pipes: int = 1
    repeats: int = 1
    reply_passes: int = 0  # of a server's reply, which frees what the round held
    needs_timers: bool = False
    overflow: str | None = None  # what must become of sums that leave int32; None: whatever the switch can
    resubmits: bool = False  # only the packet that completes a slot repeats through a loopback port

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
