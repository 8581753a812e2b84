"""Records of a study: one flat record type per table, all with the same first three columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodecRecord:
    """One codec on gradients of one pattern and density, over all rounds."""

    codec: str  # as given: a kind, or a kind with options
    pattern: str
    density: float  # as requested; of a file: as found
    union_density: float  # share of elements that are non-zero at some worker, mean over rounds
    wire_ratio: float | None  # dense float32 bytes over those that worker 0 sends up; None if it sends none
    up_bytes: float  # of worker 0, mean per round
    operations: float  # network operations, mean per round
    recovery: float  # share of the union's elements whose decoded sum is not an estimate
    redone_parts: int  # that did not decode and were sent again, sum over rounds …
    redone_of: int  # … out of this many
    forecast_misses: int  # sum over rounds
    infinite_elements: int  # whose sum is beyond float32, sum over rounds
    max_abs_error: float | None  # to the sum of all gradients; None: not finite
    nmse: float | None  # squared error over the squared norm of the sum of all gradients, over all rounds
    cosine: float | None  # of the angle between totals and the sums of all gradients, over all rounds
    holds_back: bool  # workers contribute something else than their gradients
    max_error_over_bound: float | None  # to the contributions, without estimates; 1 is the codec's bound
    exact_sums: bool  # every decoded element is the exact sum, rounded once to float32
    inexact_elements: int  # that are not, sum over rounds
    replicas_agree: bool  # all workers decoded the same bits
    choices: str  # the codec's choices, each with its number of rounds


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """Bytes that worker 0 sends under one label."""

    codec: str
    pattern: str
    density: float
    label: str
    bytes: float  # mean per round


@dataclass(frozen=True, slots=True)
class SpeedRecord:
    """Speed of this machine: times of the round with the least CPU time, over all workers."""

    codec: str
    pattern: str
    density: float
    encode_s: float
    decode_s: float
    encode_gb_per_s: float | None  # dense float32 bytes over the time; None: too short to measure
    decode_gb_per_s: float | None
    encode_bytes: int  # that the codec counts as read and written
    decode_bytes: int
    encode_charge: float | None  # time that is charged for the counted work, over the measured time
    decode_charge: float | None
