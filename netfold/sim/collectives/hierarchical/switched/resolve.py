"""Resolves hierarchies whose inner or outer collective runs in switches, with their closed form.

Inside in switches: every group aggregates in switches of its own, and each worker then owns a share of its
group's sum. Across in switches: the owners of the same words in all groups (one lane each; with a `tree`
inside, its roots) aggregate these in switches. Each is an ordinary job on switches of the workers that take
part, with its own tree, slots, timeouts and counters. Phases follow one another for each operation: with M
words, n workers in groups of g, S(M) for the time of switches, and H(M) for that of hosts,

    inside in switches:   S(M) + H across of M / g + (1 − 1 / g) · M words and g − 1 ways inside
    across in switches:   H of an all-reduce inside of M + S(M / g), of all lanes at the same time
    both:                 S(M) + S(M / g) + (1 − 1 / g) · M words and g − 1 ways inside

Floats are added in the order of packets at the switches, and in that of the schedules at hosts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from netfold.errors import ScenarioError
from netfold.homomorphic.message import Merge
from netfold.sim.collectives.between_hosts import HostCarrier, Schedule
from netfold.sim.collectives.closed_form import ScheduleSize, Steps
from netfold.sim.collectives.collective import JobContext, Resolved, fitted
from netfold.sim.collectives.hierarchical.groups import key_of
from netfold.sim.collectives.hierarchical.switched.plan import SwitchedPlan
from netfold.sim.collectives.hierarchical.switched.shape import Shape
from netfold.sim.collectives.hierarchical.switched.times import pace_of_phases
from netfold.sim.engine.interface import Overflow
from netfold.sim.keys.location import Location
from netfold.sim.plan.plan import CollectivePlan
from netfold.sim.workload.device_model import memory_bps

CARRIED = frozenset({Merge.ADD, Merge.OR, Merge.MAX, Merge.FLOAT_ADD, Merge.SIGN})
_SUM_BYTES = 4  # per element: of each group its sum, its lanes' and its total; of all, lanes and total


@dataclass(frozen=True)
class PartLocation(Location):
    """Where the keys of a part of a job's collective are."""

    part: str = ""
    key: str = "groups"  # that divides the workers

    @property
    def name_in_errors(self) -> str:
        """What errors about other jobs, or other parts of this one, call it."""
        own = f"collective.{self.part}"
        return f"{own} of {super().name_in_errors}" if self.job else own

    def job_error(self, path: str, message: str, hint: str = "") -> ScenarioError:
        """An error about the value at a path of the job; keys of a collective are those of the part.

        Its workers are those of a group, or one of each group.
        """
        if path.startswith("workers"):
            renamed = hint.replace("collective.", f"collective.{self.part}.")
            what = "smaller groups" if self.part == "inner" else "larger groups, and so fewer"
            return super().job_error(
                f"collective.{self.key}", f"{self.part}: {message}", f"use {what}; {renamed}"
            )
        own = f"collective.{self.part}."
        named = (text.replace("collective.", own) for text in (path, message, hint))
        return super().job_error(*named)


def resolve_switched(shape: Shape, job: JobContext) -> Resolved:
    """The plan of a job's hierarchy with switches.

    Raises
    ------
    ScenarioError
        The codec's merges do not survive the phases, no switches fit a part, sums that overflow would be
        treated differently by its parts, or as for `Schedule.resolve`.
    """
    section, groups = shape.section, shape.groups
    _check_codec(shape, job)
    _check_parts(shape, job)
    lanes = shape.lanes
    inside: tuple[CollectivePlan | None, ...] = (None,) * len(groups)
    across: tuple[CollectivePlan | None, ...] = (None,) * len(lanes)
    if shape.inner_spec.composable is None:
        inside = tuple(
            _part(shape, job, "inner", group, share=1.0) if len(group) > 1 else None for group in groups
        )
    if shape.outer_spec.composable is None and len(groups) > 1:
        across = tuple(_part(shape, job, "outer", lane.members, share=lane.share) for lane in lanes)
    plans = [plan for plan in (*inside, *across) if plan is not None]
    _check_overflow(shape, plans, job.location)
    steps = shape.host_steps(job.elements)
    stages = [stage for phase in steps for stage in phase.stages] or [Steps([(0, 0)], 0, 1, 0)]
    make_plan = partial(
        SwitchedPlan,
        chunk_words=section.chunk_words,
        groups=groups,
        lanes=lanes,
        inner=shape.inner,
        outer=shape.outer,
        inside=inside,
        across=across,
    )
    schedule = Schedule(section.kind, lambda workers: Steps.chain(stages))
    between_hosts = schedule.resolve_on(section, job, job.nodes, make_plan)
    pace = pace_of_phases(shape, job, inside, across)
    carrier = HostCarrier(
        latency_ps=max(1, pace.latency_ps),
        rate_bps=max(1, round(32 * pace.elements_per_s)),
        memory_bps=memory_bps(job.device),
    )
    plan = _with_switches(between_hosts.plan, plans, shape, job.elements)
    return Resolved(plan, fitted(job.codec, carrier), warnings=between_hosts.warnings)


def _with_switches(
    plan: CollectivePlan, parts: Sequence[CollectivePlan], shape: Shape, elements: int
) -> CollectivePlan:
    """A plan between hosts with what its parts need of switches and of memory."""
    cuts = {size: shape.inner(size).schedule for size in {len(group) for group in shape.groups}}
    inner = [cuts[len(group)] for group in shape.groups]
    across = [shape.outer.schedule] * len(shape.lanes) if shape.outer is not None else []
    blocks = max(1, -(-elements // shape.section.chunk_words))
    sizes = [
        (ScheduleSize(blocks * one.transfers, blocks * one.chunks), one.workers) for one in (*inner, *across)
    ]
    return replace(
        plan,
        timeout_max_ps=max(one.timeout_max_ps for one in (plan, *parts)),
        held_bytes=plan.held_bytes + _SUM_BYTES * (3 * len(shape.groups) + 2),
        tables_bytes=sum(size.tables_bytes(workers) for size, workers in sizes),
        aggregations=tuple(tree for one in parts for tree in one.aggregations),
        passes=max(
            (one.passes for one in parts), key=lambda one: (one.packet, one.result), default=plan.passes
        ),
        needs_lossless=any(one.needs_lossless for one in parts),
    )


def _part(
    shape: Shape, job: JobContext, name: str, workers: Sequence[int], *, share: float
) -> CollectivePlan:
    """What switches do for some of the workers, with a share of the words."""
    spec = shape.inner_spec if name == "inner" else shape.outer_spec
    section = getattr(shape.section, name)
    location = PartLocation(**vars(job.location), part=name, key=key_of(shape.section))
    own = replace(
        job,
        location=location,
        hosts=tuple(job.hosts[worker] for worker in workers),
        elements=max(1, math.ceil(share * job.elements)),
    )
    assert spec.as_part is not None
    return spec.resolve(spec.as_part(section, own), own).plan


def _check_parts(shape: Shape, job: JobContext) -> None:
    """Check that schedules fit the sizes of groups."""
    inner, outer = shape.inner_spec.composable, shape.outer_spec.composable
    for size in sorted({len(group) for group in shape.groups}) if inner else ():
        assert inner is not None
        inner.check(shape.section.inner, size, job)
    if outer is not None:
        outer.check(shape.section.outer, len(shape.groups), job)


def _check_codec(shape: Shape, job: JobContext) -> None:
    """Refuse codecs whose messages do not survive a phase in switches and another after it."""
    codec, location = job.codec, job.location
    schedules = "an inner and outer collective between hosts, or collective.kind of the part alone"
    if refused := sorted(merge.value for merge in codec.merges - CARRIED):
        raise location.job_error(
            "codec",
            f"codec {codec.kind!r} needs {', '.join(refused)}, which a hierarchy with switches cannot "
            f"carry: it carries {', '.join(sorted(merge.value for merge in CARRIED))} from phase to phase",
            f"use {schedules}",
        )
    if codec.may_be_absent:
        raise location.job_error(
            "codec",
            f"workers of codec {codec.kind!r} may have nothing to contribute, and the phases of a hierarchy "
            "with switches do not pass on who did",
            f"use {schedules}",
        )
    sizes = sorted({len(group) for group in shape.groups})
    if Merge.SIGN in codec.merges and len(sizes) > 1:
        raise location.job_error(
            "codec",
            f"codec {codec.kind!r} weighs signs by the workers that they stand for, and groups of "
            f"{', '.join(map(str, sizes))} workers would count as one each across groups",
            f"use groups of equal size, or {schedules}",
        )


def _check_overflow(shape: Shape, plans: Sequence[CollectivePlan], location: Location) -> None:
    """Refuse sums that one part wraps, and another does not."""
    has_hosts = shape.inner_spec.composable is not None or shape.outer_spec.composable is not None
    found = {plan.overflow for plan in plans} | ({Overflow.WRAP} if has_hosts else set())
    if len(found) < 2:
        return
    names = ", ".join(sorted(one.name.lower() for one in found))
    part = "inner" if shape.inner_spec.composable is None else "outer"
    raise location.job_error(
        f"collective.{part}.overflow",
        f"parts of the hierarchy treat sums that overflow differently: {names}"
        + ("; sums of hosts wrap" if has_hosts else ""),
        "use overflow: wrap in both, or a program and switches that can wrap",
    )
