"""What a plan allows but a person should know of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from homomorphic.auto import Auto
from homomorphic.codec import Codec
from homomorphic.lossless import Lossless
from sim.engine.model import Job, Overflow
from sim.plan import JobPlan, RingPlan

_DONE = {Overflow.WRAP: "wrapped", Overflow.SATURATE: "saturated", Overflow.STICKY: "stuck at the limit"}
_SKETCHES = (Lossless, Auto)  # counters of a sketch may leave int32 and lose nothing, if they wrap


def warnings_of(codec: Codec, collective: RingPlan | Job) -> tuple[str, ...]:
    """One sentence each; they are printed and kept with the results."""
    if isinstance(collective, RingPlan) or collective.overflow is Overflow.WRAP:
        return ()
    if isinstance(codec, _SKETCHES):
        policy = collective.overflow.name.lower()
        return (
            f"codec {codec.kind} with overflow {policy}: saturation is not invertible, so peeling can fail "
            "where a counter overflows",
        )
    return ()


def overflow_warnings(job: JobPlan, points: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """What to know of sums that left int32 in its switches; a sketch's may wrap, a gradient's should not."""
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if isinstance(plan, RingPlan) or count == 0:
        return ()
    if plan.overflow is Overflow.WRAP and isinstance(job.codec, _SKETCHES):
        return ()
    return (f"{count} sums left int32 in switches and {_DONE[plan.overflow]}",)


def clipped_sums(job: JobPlan, points: Sequence[Mapping[str, int]]) -> str:
    """Why its merged words are wrong, if it is that counters of a sketch did not wrap; else nothing.

    Other codecs leave room for their sums: what leaves int32 there was damaged before.
    """
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if isinstance(plan, RingPlan) or plan.overflow is Overflow.WRAP or count == 0:
        return ""
    if not isinstance(job.codec, _SKETCHES):
        return ""
    return f"; {count} sums left int32 in switches and {_DONE[plan.overflow]}: use overflow wrap"
