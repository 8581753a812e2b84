"""The capabilities of a switch as data: the fields of a profile, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netfold.homomorphic.message import Merge

FORWARDING, MEMORY, PIPELINE, FIXED = "forwarding", "memory", "pipeline", "fixed"
KINDS = {
    FORWARDING: "adds nothing up",
    MEMORY: "runs any program that its memory holds",
    PIPELINE: "a packet passes stages of stateful ALUs, each with its own memory",
    FIXED: "aggregates in trees (program tree), and runs no other program",
}
SUMS = {"wrap": "wrap around", "saturate": "saturate", "sticky": "stick at the limit"}  # beyond int32
OVERFLOWS = tuple(SUMS)
ADDER_BITS = (8, 16, 32)  # possible widths of adders


def _limit(meaning: str, default: Any = 0) -> Any:
    """A field that custom profiles may set: `meaning` describes the scenario's key."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Profile:
    """One kind of switch. A number that is 0 means that there is none, or that there is no limit.

    A packet takes `pass_latency_ps` through the switch once; further passes go through loopback ports.
    `sources` has the origin of every field below `kind` that is not 0, empty or false; "assumed" marks
    unpublished numbers.
    """

    name: str
    summary: str
    kind: str  # one of KINDS

    # arithmetic
    merges: frozenset[Merge] = _limit("Merges of words that it supports.", frozenset())
    overflows: tuple[str, ...] = _limit(
        "Policies for sums that leave int32; a switch that aggregates has at least one, "
        "and the first is the default.",
        (),
    )
    adder_bits: tuple[int, ...] = _limit(
        "Widths of the integers that it adds; sums in lanes of 8 or 16 bits need adders of that width.", ()
    )
    has_timers: bool = _limit("Whether slots can answer when a timer expires.", False)
    is_lossless: bool = _limit("Whether its network waits for credits instead of dropping packets.", False)
    multicast: bool = _limit(
        "Whether it copies results of other switches to several of its ports (packet replication).", False
    )
    bitmap_bits: int = _limit("Workers that one read of a slot's bitmap can distinguish.")

    # ports and passes
    port_rate_bps: int = _limit("Rate of the fastest port.")
    pipes: int = _limit("Pipelines side by side, through which packets of many words pass in a row.")
    ports_per_pipe: int = 0
    pass_latency_ps: int = _limit("Time of one pass through the switch.")
    loopback_ports: int = _limit("Ports for packets that need another pass.")
    loopback_rate_bps: int = _limit("Rate of one of them.")

    # a pipeline
    stages: int = _limit("Stages of a pipeline.")
    salus_per_stage: int = _limit(
        "Stateful ALUs: each owns a register array, of which a pass can touch one entry."
    )
    salu_lanes: int = _limit("32-bit words of an entry that one pass can change.")
    words_out: int = _limit("Words of an entry that one pass can read out.")
    sram_blocks_per_stage: int = _limit("SRAM blocks of a stage.")
    map_rams_per_stage: int = _limit("Map RAMs of a stage; a register array needs as many as SRAM blocks.")
    block_rows: int = _limit("Rows of an SRAM block.")
    block_row_bits: int = _limit("Bits of a row.")
    spare_blocks: int = _limit("Extra SRAM blocks that every register array needs.")
    phv_bits: int = _limit("Packet header vector: the bits of a packet that a pass can use.")
    parser_limit_bytes: int = _limit("Headers before the words.")

    # buffer
    buffer_bytes: int = 0
    cell_bytes: int = 0
    ecn_threshold_cells: int = 0

    # other kinds
    memory_bytes: int = _limit("Memory for slots, where there are no stages.")
    groups: int = _limit("Jobs at a time.")
    operations: int = _limit("Outstanding operations: packets that can be in progress, one slot each.")
    operation_payload_bytes: int = _limit("Payload of one of them.")

    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_programmable(self) -> bool:
        """Whether it runs any program that aggregates."""
        return self.kind != FORWARDING

    @property
    def salus(self) -> int:
        """Stateful ALUs of one pipeline."""
        return self.stages * self.salus_per_stage


class ProfileError(ValueError):
    """An invalid profile: the key, the value found, and the values allowed."""

    def __init__(self, key: str, message: str, hint: str) -> None:
        super().__init__(key, message, hint)
        self.key = key
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.key}: {self.message}; {self.hint}"
