"""What a switch can do, as data: the fields of a profile, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    merges: frozenset[Merge] = frozenset()
    overflows: tuple[str, ...] = ()  # of OVERFLOWS; the first is what it does unless told otherwise
    has_timers: bool = False  # can answer without being asked
    is_lossless: bool = False  # its network can wait for credits instead of dropping
    bitmap_bits: int = 0  # workers that one read of a slot's bitmap can tell apart

    # ports and passes
    port_rate_bps: int = 0  # of the fastest port
    pipes: int = 0  # pipelines side by side, each with ports and registers of its own
    ports_per_pipe: int = 0
    pass_latency_ps: int = 0
    loopback_ports: int = 0
    loopback_rate_bps: int = 0  # of one

    # a pipeline
    stages: int = 0
    salus_per_stage: int = 0  # stateful ALUs: each owns a register array, of which a pass can touch one entry
    salu_lanes: int = 0  # 32-bit words of an entry that one pass can change
    words_out: int = 0  # words of an entry that one pass can read out
    sram_blocks_per_stage: int = 0
    map_rams_per_stage: int = 0  # a register array needs as many as SRAM blocks
    block_rows: int = 0
    block_row_bits: int = 0
    spare_blocks: int = 0  # that every register array needs besides
    phv_bits: int = 0  # packet header vector: what a pass can see of a packet
    parser_limit_bytes: int = 0  # headers in front of the words

    # buffer
    buffer_bytes: int = 0
    cell_bytes: int = 0
    ecn_threshold_cells: int = 0

    # other kinds
    memory_bytes: int = 0
    groups: int = 0  # jobs at a time
    operations: int = 0  # outstanding: packets that can be in the making, one slot each
    operation_payload_bytes: int = 0

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
    """A profile that cannot be read: where, at which key, what was found, what is allowed."""

    def __init__(self, where: str, key: str, message: str, hint: str) -> None:
        super().__init__(where, key, message, hint)
        self.where = where
        self.key = key
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.message}; {self.hint}"
