"""What a switch can do, as data: the fields of a profile, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netfold.homomorphic.codec import Merge

FORWARDING, MEMORY, PIPELINE, FIXED = "forwarding", "memory", "pipeline", "fixed"
KINDS = {
    FORWARDING: "adds nothing up",
    MEMORY: "runs any program that its memory holds",
    PIPELINE: "a packet passes stages of stateful ALUs, each with memory of its own",
    FIXED: "adds up along trees (program tree), and runs nothing else",
}
SUMS = {"wrap": "wrap around", "saturate": "saturate", "sticky": "stick at the limit"}  # that leave int32
OVERFLOWS = tuple(SUMS)  # what becomes of them


def _limit(meaning: str, default: Any = 0) -> Any:
    """A field that profiles of one's own may set: `meaning` is what a scenario's key says of it."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Profile:
    """One kind of switch. A number that is 0 means that there is none of it, or that it has no limit.

    A packet takes `pass_latency_ps` through the switch once; further passes go through loopback ports.
    `sources` says of every field below `kind` that is not 0, empty or false where it comes from; "assumed"
    marks what nobody publishes.
    """

    name: str
    summary: str
    kind: str  # one of KINDS

    # what can be done to words
    merges: frozenset[Merge] = _limit("What it can do to words.", frozenset())
    overflows: tuple[str, ...] = _limit(
        "What can become of a sum that leaves int32; a switch that adds up has one at least, "
        "and the first is what it does by default.",
        (),
    )
    has_timers: bool = _limit("Whether slots can answer when a time is over.", False)
    is_lossless: bool = _limit("Whether its network can wait for credits instead of dropping packets.", False)
    bitmap_bits: int = _limit("Workers that one read of a slot's bitmap can tell apart.")

    # ports and passes
    port_rate_bps: int = _limit("Rate of the fastest port.")
    pipes: int = _limit("Pipelines side by side, through which packets of many words pass in a row.")
    ports_per_pipe: int = 0
    pass_latency_ps: int = _limit("What one pass through the switch takes.")
    loopback_ports: int = _limit("Ports for packets that need a further pass.")
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
    spare_blocks: int = _limit("SRAM blocks that every register array needs besides.")
    phv_bits: int = _limit("Packet header vector: what a pass can see of a packet.")
    parser_limit_bytes: int = _limit("Headers in front of the words.")

    # buffer
    buffer_bytes: int = 0
    cell_bytes: int = 0
    ecn_threshold_cells: int = 0

    # other kinds
    memory_bytes: int = _limit("Memory for slots, where there are no stages.")
    groups: int = _limit("Jobs at a time.")
    operations: int = _limit("Outstanding operations: packets that can be in the making, one slot each.")
    operation_payload_bytes: int = _limit("Payload of one of them.")

    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_programmable(self) -> bool:
        """Whether it runs any program that adds up."""
        return self.kind != FORWARDING

    @property
    def salus(self) -> int:
        """Stateful ALUs of one pipeline."""
        return self.stages * self.salus_per_stage


class ProfileError(ValueError):
    """A profile that cannot be: at which key, what was found, what is allowed."""

    def __init__(self, key: str, message: str, hint: str) -> None:
        super().__init__(key, message, hint)
        self.key = key
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.key}: {self.message}; {self.hint}"
