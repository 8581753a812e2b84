"""Warnings about valid plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from netfold.homomorphic.codec import Codec
from netfold.sim.engine.interface import Overflow
from netfold.sim.plan.collective import CollectivePlan
from netfold.sim.plan.plan import JobPlan
from netfold.sim.workload.device_model import memory_bps
from netfold.topologies.routing import Policy
from netfold.units import TIME

VAIN_SHARE = 0.01  # of packets, from which on those sent again are told
_LOST_SHARE = 0.05  # of those, that were lost
_LIMITS = {32: "int32", 16: "int16", 8: "int8", 4: "their 4 bits"}  # of lanes of so many bits
NO_WORK = (
    "declares no work: its encoding takes no time on the device; give its messages `work` and `decode_work`"
)
_DONE = {Overflow.WRAP: "wrapped", Overflow.SATURATE: "saturated", Overflow.STICKY: "stuck at the limit"}


def warnings_of(codec: Codec, collective: CollectivePlan) -> tuple[str, ...]:
    """One sentence each, printed and stored with the results."""
    if collective.overflow is Overflow.WRAP:
        return ()
    if codec.wrap_reason:
        policy = collective.overflow.name.lower()
        return (f"codec {codec.kind} with overflow {policy}: {codec.wrap_reason}",)
    return ()


def routing_warnings(policy: Policy, collective: CollectivePlan) -> tuple[str, ...]:
    """A warning if a job's packets go to switches, which the routing of the network does not apply to."""
    if collective.aggregation is None or not policy.is_for_hosts_alone:
        return ()
    return (
        f"routing {policy.kind} is for packets between hosts: packets between workers and switches that add "
        "them up keep one shortest path per worker, as the switches need them in order",
    )


def timer_warning(timeouts_ps: Mapping[str, int], released: Collection[str]) -> str:
    """A warning if packets are lost and timeouts differ, some of them as released; otherwise empty.

    `timeouts_ps` is by label of the job, of those that lose packets; `released` are the labels of those that
    have the timeout of their protocol's own client.
    """
    if len(set(timeouts_ps.values())) < 2 or not released:
        return ""
    by_time: dict[int, list[str]] = {}
    for label, timeout_ps in timeouts_ps.items():
        by_time.setdefault(timeout_ps, []).append(label)
    listed = [
        f"{TIME.format(timeout_ps)} ({', '.join(labels[:3])}{', …' if len(labels) > 3 else ''})"
        for timeout_ps, labels in sorted(by_time.items())
    ]
    return (
        f"packets are lost and timeouts differ, some as released: {', '.join(listed)}; timers decide such "
        "comparisons; to exclude them, use collective.timeout: auto, or give all jobs the same"
    )


def vain_warnings(
    job: JobPlan, sent: int, again: int, lost: int, reordering: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """A warning if hosts sent many packets again to other hosts, and few were lost.

    `reordering` says how many packets arrived out of order, and twice, where packets are sprayed over paths.
    """
    is_told = again > 0 and again >= VAIN_SHARE * sent and lost <= _LOST_SHARE * again
    if job.collective.aggregation is not None or not is_told:
        return ()
    what = (
        f"{again} packets, {100 * again / sent:.0f} % of all, were sent again, and {lost} were lost: others "
    )
    if reordering is not None:
        return (
            f"{what}arrived out of order, {reordering[0]} of them, and were taken for lost: a sender "
            "tolerates that a quarter of its window, later three quarters, overtakes a packet; use a larger "
            "collective.window and collective.chunk, or a routing that keeps packets in order",
        )
    return (
        f"{what}were acknowledged later than the timeout of {TIME.format(job.collective.timeout_ps)}; use a "
        "longer collective.timeout, or a smaller collective.window or collective.chunk",
    )


def overflow_warnings(job: JobPlan, points: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """A warning about sums that left their lanes in switches; those of a sketch may wrap."""
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if count == 0:
        return ()
    if plan.overflow is Overflow.WRAP and job.codec.wrap_reason:
        return ()
    limit = _LIMITS[job.codec.lane_bits]
    return (f"{count} sums left {limit} in switches and {_DONE[plan.overflow]}",)


def work_warnings(job: JobPlan, has_work: bool) -> tuple[str, ...]:
    """A warning about a codec that counts no work, where other codecs' takes time."""
    if has_work or memory_bps(job.device) is None:
        return ()
    return (f"codec {job.codec.kind} {NO_WORK}",)


def clipped_sums(job: JobPlan, points: Sequence[Mapping[str, int]]) -> str:
    """The reason of wrong words if counters of a sketch did not wrap; otherwise empty.

    Other codecs leave room for their sums: a sum that leaves int32 was damaged before.
    """
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if plan.overflow is Overflow.WRAP or count == 0:
        return ""
    if not job.codec.wrap_reason:
        return ""
    limit = _LIMITS[job.codec.lane_bits]
    return f"; {count} sums left {limit} in switches and {_DONE[plan.overflow]}: use overflow wrap"
