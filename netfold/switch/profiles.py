"""The known switch profiles, every number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from netfold.errors import OptionError, names_hint
from netfold.homomorphic.merge import MERGEABLE, Merge

# The capabilities of a switch as data: the fields of a profile, each number with its source.


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
    # Custom profiles may set such a field; `meaning` describes its key in scenarios.
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
    def can_aggregate(self) -> bool:
        return self.kind != FORWARDING

    @property
    def salus(self) -> int:
        # Those of one pipeline.
        return self.stages * self.salus_per_stage


__all__ = ["PROFILES", "Profile"]

_P4C = "p4lang/p4c, bf-p4c"  # backends/tofino/bf-p4c
_DEVICE = f"{_P4C}/specs/device.h"
_ALU = f"{_P4C}/specs/device.cpp"
_REGISTERS = f"{_P4C}/mau"
_STUDIO = "p4lang/open-p4studio"
_TNA = "TNA document (Open-Tofino)"
_SHARP = "NVIDIA SHARP documentation"
_QUANTUM = "NVIDIA Quantum QM8700: 40 ports of 200 Gb/s"
_DEFINITION = "by definition: for bounds and comparisons"

_INTEGERS = frozenset({Merge.ADD, Merge.OR, Merge.MAX})


def _profile(name: str, summary: str, kind: str, **facts: tuple[Any, str]) -> Profile:
    """A profile from facts: field = (value, source)."""
    values = {field: value for field, (value, _) in facts.items()}
    return Profile(name, summary, kind, **values, sources={field: text for field, (_, text) in facts.items()})


_PLAIN = _profile(
    "plain",
    "forwards, adds nothing up",
    FORWARDING,
    multicast=(True, "IEEE 802.1Q, clause 8.8: a bridge forwards a group address to every registered port"),
)

_IDEAL = _profile(
    "ideal",
    "adds up at no cost",
    MEMORY,
    merges=(MERGEABLE, _DEFINITION),
    overflows=(OVERFLOWS, _DEFINITION),
    adder_bits=(ADDER_BITS, _DEFINITION),
    has_timers=(True, _DEFINITION),
    is_lossless=(True, _DEFINITION),
    multicast=(True, _DEFINITION),
)

_TOFINO1 = _profile(
    "tofino1",
    "Intel Tofino, 6.4 Tb/s",
    PIPELINE,
    merges=(_INTEGERS, f"{_REGISTERS}: no multiplication, no float"),
    overflows=(OVERFLOWS, f"{_REGISTERS}: saturating add; sticky: in-ATP/ATP, common.p4"),
    adder_bits=(ADDER_BITS, f"{_REGISTERS}: entries of 8, 16 or 32 bits, or of two of these"),
    multicast=(True, f"{_TNA}: a packet replication engine of two levels, packets are stored once"),
    bitmap_bits=(32, f"{_REGISTERS}: one 32-bit word is read out"),
    port_rate_bps=(100 * 10**9, _TNA),
    pipes=(4, _DEVICE),
    ports_per_pipe=(16, _TNA),
    pass_latency_ps=(600_000, "assumed: 0.4 to 0.8 us port to port, unpublished"),
    loopback_ports=(56, f"{_TNA}: 2 inside each pipe, 16 outside three"),
    loopback_rate_bps=(100 * 10**9, _TNA),
    stages=(12, _DEVICE),
    salus_per_stage=(4, _DEVICE),
    salu_lanes=(2, f"{_ALU}: entries of 64 bits"),
    words_out=(1, _ALU),
    sram_blocks_per_stage=(80, _DEVICE),
    map_rams_per_stage=(48, _DEVICE),
    block_rows=(1024, _DEVICE),
    block_row_bits=(128, _DEVICE),
    spare_blocks=(1, _REGISTERS),
    phv_bits=(4096, f"{_P4C}/phv: 64 of 8, 96 of 16, 64 of 32 bits"),
    parser_limit_bytes=(160, f"{_P4C}: 65 to 160 bytes"),
    buffer_bytes=(280 * 1024 * 80, f"{_STUDIO}: 280 x 1024 cells"),
    cell_bytes=(80, _STUDIO),
    ecn_threshold_cells=(1000, "in-ATP/ATP, p4src: at start"),
)

_TOFINO2 = _profile(
    "tofino2",
    "Intel Tofino 2, 12.8 Tb/s",
    PIPELINE,
    merges=(
        _INTEGERS | {Merge.TABLE_ADD},
        "table in a stage before: SophiaLi06/CS243-INCA",
    ),
    overflows=(OVERFLOWS, f"{_REGISTERS}: as Tofino"),
    adder_bits=(ADDER_BITS, f"{_REGISTERS}: as Tofino"),
    multicast=(True, f"{_TNA}: as Tofino"),
    bitmap_bits=(32, "assumed as Tofino: programs read one 32-bit word"),
    port_rate_bps=(400 * 10**9, _TNA),
    pipes=(4, _DEVICE),
    ports_per_pipe=(8, f"{_TNA}: 32 ports of 400 Gb/s"),
    pass_latency_ps=(600_000, "assumed as Tofino: unpublished"),
    loopback_ports=(32, "assumed as Tofino: 2 inside each pipe, 8 outside three"),
    loopback_rate_bps=(400 * 10**9, "assumed: that of its ports"),
    stages=(20, f"{_DEVICE} (2M has 12, 2H has 6)"),
    salus_per_stage=(4, _DEVICE),
    salu_lanes=(2, f"{_ALU}: entries of 128 bits, fed by 64 bits of the packet"),
    words_out=(4, _ALU),
    sram_blocks_per_stage=(80, _DEVICE),
    map_rams_per_stage=(48, _DEVICE),
    block_rows=(1024, _DEVICE),
    block_row_bits=(128, _DEVICE),
    spare_blocks=(1, _REGISTERS),
    phv_bits=(3072, f"{_P4C}/phv: normal containers; 5120 with those that cannot compute"),
    parser_limit_bytes=(512, _P4C),
    buffer_bytes=(384 * 1024 * 176, f"{_STUDIO}: 384 x 1024 cells"),
    cell_bytes=(176, _STUDIO),
    ecn_threshold_cells=(1000, "assumed as Tofino"),
)

_SHARP_PROFILE = _profile(
    "sharp",
    "NVIDIA Quantum with SHARP",
    FIXED,
    merges=(_INTEGERS | {Merge.FLOAT_ADD}, f"{_SHARP}: sum, max and bitwise or of integers, sum of floats"),
    overflows=(("wrap",), "assumed: integer sums wrap"),
    adder_bits=(ADDER_BITS, f"{_SHARP}: integers of 8, 16, 32 and 64 bits"),
    is_lossless=(True, "InfiniBand: link-level credits"),
    multicast=(True, "InfiniBand Architecture, volume 1: multicast forwarding tables of switches"),
    port_rate_bps=(200 * 10**9, _QUANTUM),
    pipes=(1, "assumed: one, with all ports"),
    ports_per_pipe=(40, _QUANTUM),
    pass_latency_ps=(
        130_000,
        "assumed: of the order of Quantum, port to port",
    ),
    groups=(12, f"{_SHARP}: a job's quota as shown"),
    operations=(23, f"{_SHARP}: a job's quota as shown (osts); the total is unpublished"),
    operation_payload_bytes=(2048, f"{_SHARP}: Quantum; 256 with Switch-IB 2"),
)

_FPGA = _profile(
    "fpga",
    "FPGA card beside a switch",
    MEMORY,
    merges=(MERGEABLE, "assumed: logic is free; floats: NetReduce (arXiv 2009.09736)"),
    overflows=(OVERFLOWS, "assumed: logic is free"),
    adder_bits=(ADDER_BITS, "assumed: logic is free"),
    port_rate_bps=(100 * 10**9, "AMD Alveo U280 as an example: two ports of 100 Gb/s"),
    pass_latency_ps=(1_000_000, "assumed"),
    memory_bytes=(8 * 2**30, "AMD Alveo U280 as an example: HBM, Vitis user guide UG1393"),
)

_TRIO = _profile(
    "trio",
    "Juniper Trio, with timers",
    MEMORY,
    merges=(
        _INTEGERS | {Merge.TABLE_ADD},
        "Trio-ML adds 32-bit integers (SIGCOMM 2022); others assumed: microcode",
    ),
    overflows=(("wrap",), "assumed: 32-bit integers, Trio-ML (SIGCOMM 2022)"),
    adder_bits=((32,), "32-bit integers, Trio-ML (SIGCOMM 2022)"),
    has_timers=(True, "timer threads, Trio-ML (SIGCOMM 2022)"),
    multicast=(True, "assumed: routers replicate multicast packets"),
    port_rate_bps=(100 * 10**9, "assumed: Juniper MX routers have ports of 100 Gb/s"),
    pass_latency_ps=(2_000_000, "assumed: run to completion is slower than a pipeline"),
    memory_bytes=(4 * 2**30, "assumed: gigabytes off chip"),
)

PROFILES = {
    profile.name: profile for profile in (_PLAIN, _IDEAL, _TOFINO1, _TOFINO2, _SHARP_PROFILE, _FPGA, _TRIO)
}


# Custom profiles: a known profile, and the fields that differ.


_LEAST = {
    **dict.fromkeys(("pipes", "stages", "salus_per_stage", "salu_lanes", "words_out"), 1),
    **dict.fromkeys(("sram_blocks_per_stage", "map_rams_per_stage", "block_rows", "phv_bits"), 1),
    "block_row_bits": 64,  # an entry of two words
}
"""Smallest values that a pipeline can do with."""


def derived(name: str, like: str, changes: Mapping[str, Any], source: str) -> Profile:
    """The known profile `like` under another name, with changed fields of `Profile` and their source.

    Raises
    ------
    OptionError
        A name that is taken or unknown, an aggregating switch without an overflow policy, or a pipeline
        without stages, ALUs or memory.
    """
    if name in PROFILES:
        raise OptionError("name", f"{name!r} is a known profile", "use another name")
    if like not in PROFILES:
        raise OptionError("like", f"there is no switch profile {like!r}", names_hint(like, PROFILES))
    base = PROFILES[like]
    profile = replace(base, **changes, name=name, sources={**base.sources, **dict.fromkeys(changes, source)})
    if profile.can_aggregate and not profile.overflows:
        hint = f"name at least one: {', '.join(OVERFLOWS)}"
        raise OptionError(
            "overflows", "a switch that aggregates needs a policy for sums that leave int32", hint
        )
    if profile.kind == PIPELINE:
        for key, least in _LEAST.items():
            if getattr(profile, key) < least:
                reason = f"must be at least {least} in a pipeline, found {getattr(profile, key)}"
                raise OptionError(key, reason, f"tofino1 has {getattr(PROFILES['tofino1'], key)}")
    return profile
