"""What a plan allows but a person should know of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from netfold.homomorphic.codec import Codec, Wrapping
from netfold.sim.engine.interface import Overflow
from netfold.sim.plan.collective import CollectivePlan
from netfold.sim.plan.plan import JobPlan
from netfold.sim.units import TIME

_DONE = {Overflow.WRAP: "wrapped", Overflow.SATURATE: "saturated", Overflow.STICKY: "stuck at the limit"}


def warnings_of(codec: Codec, collective: CollectivePlan) -> tuple[str, ...]:
    """One sentence each; they are printed and kept with the results."""
    if collective.overflow is Overflow.WRAP:
        return ()
    if isinstance(codec, Wrapping):
        policy = collective.overflow.name.lower()
        return (f"codec {codec.kind} with overflow {policy}: {codec.wrap_reason}",)
    return ()


def timer_warning(timeouts_ps: Mapping[str, int], defaults: Collection[str]) -> str:
    """What to know where packets get lost and jobs wait differently long, some by default; else nothing.

    `timeouts_ps` is by label of the job, of those that lose packets; `defaults` are the labels of those whose
    scenario gives no timeout.
    """
    if len(set(timeouts_ps.values())) < 2 or not defaults:
        return ""
    by_time: dict[int, list[str]] = {}
    for label, timeout_ps in timeouts_ps.items():
        by_time.setdefault(timeout_ps, []).append(label)
    listed = [
        f"{TIME.format(timeout_ps)} ({', '.join(labels[:3])}{', …' if len(labels) > 3 else ''})"
        for timeout_ps, labels in sorted(by_time.items())
    ]
    return (
        f"packets get lost and timeouts differ, some by default: {', '.join(listed)}; timers decide such "
        "comparisons, give all the same collective.timeout if that is not what you ask"
    )


def overflow_warnings(job: JobPlan, points: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """What to know of sums that left int32 in its switches; a sketch's may wrap, a gradient's should not."""
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if count == 0:
        return ()
    if plan.overflow is Overflow.WRAP and isinstance(job.codec, Wrapping):
        return ()
    return (f"{count} sums left int32 in switches and {_DONE[plan.overflow]}",)


def clipped_sums(job: JobPlan, points: Sequence[Mapping[str, int]]) -> str:
    """Why its merged words are wrong, if it is that counters of a sketch did not wrap; else nothing.

    Other codecs leave room for their sums: what leaves int32 there was damaged before.
    """
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if plan.overflow is Overflow.WRAP or count == 0:
        return ""
    if not isinstance(job.codec, Wrapping):
        return ""
    return f"; {count} sums left int32 in switches and {_DONE[plan.overflow]}: use overflow wrap"
