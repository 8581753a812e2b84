"""What a study writes down: one flat record type per table, the first three columns the same in all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodecRecord:
    """One codec on gradients of one pattern and density, over all rounds."""

    codec: str  # as given: a kind, or a kind with options
    pattern: str
    density: float  # asked for; of a file: found
    union_density: float  # share of elements that are non-zero at some worker, mean over rounds
    wire_ratio: float | None  # dense float32 bytes over those that worker 0 sends up; None if it sends none
    up_bytes: float  # of worker 0, mean per round
    operations: float  # network operations, mean per round
    recovery: float  # share of the union's elements whose decoded sum is no estimate
    redone_parts: int  # that did not decode and were sent again, sum over rounds …
    redone_of: int  # … out of so many
    forecast_misses: int  # sum over rounds
    infinite_elements: int  # whose sum is beyond float32, sum over rounds
    max_abs_error: float | None  # None: not finite
    max_error_over_bound: float | None  # of elements that are no estimates; 1 is the codec's bound
    exact_sums: bool  # every decoded element is the exact sum, rounded once to float32
    inexact_elements: int  # that are not, sum over rounds
    replicas_agree: bool  # all workers decoded the same bits
    choices: str  # what the codec told of its choices, and in how many rounds


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """What worker 0 sends up under one label."""

    codec: str
    pattern: str
    density: float
    label: str
    bytes: float  # mean per round


@dataclass(frozen=True, slots=True)
class SpeedRecord:
    """How fast this machine encodes and decodes: in the round, of all workers', of the least CPU time."""

    codec: str
    pattern: str
    density: float
    encode_s: float
    decode_s: float
    encode_gb_per_s: (
        float | None
    )  # dense float32 bytes over the time; None: too short to tell, as where nothing is done
    decode_gb_per_s: float | None
