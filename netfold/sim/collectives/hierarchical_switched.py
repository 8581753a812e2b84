"""Hierarchies whose inner or outer collective runs in switches, with their closed form."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from netfold.errors import ScenarioError
from netfold.homomorphic.codec import Server
from netfold.homomorphic.merge import Merge, Merged, Words
from netfold.homomorphic.message import Message, merged_message
from netfold.kernels.bits import same_bits
from netfold.sim.collectives.collective import (
    Collective,
    CollectiveSpec,
    JobContext,
    MergeOrders,
    OperationId,
    Resolved,
    RunContext,
    Wait,
)
from netfold.sim.collectives.hierarchical_schedule import (
    Groups,
    RankGroups,
    collective_of,
    in_blocks,
    inners_of,
    key_of,
    levels_across,
    levels_inside,
)
from netfold.sim.collectives.host_collective import HostCollective, HostPlan, resolve_as
from netfold.sim.collectives.host_messages import ScheduledRun
from netfold.sim.collectives.schedule_costs import (
    Estimate,
    HostCarrier,
    Routed,
    estimate_of,
    pace_of,
    tables_bytes,
)
from netfold.sim.collectives.transfers import (
    Cut,
    Flow,
    Ints,
    Level,
    Outline,
    ScheduleBuilder,
    Step,
    Transfers,
    at_once_of,
    compile_transfers,
    outline_of,
    together,
)
from netfold.sim.engine.engine_data import NONE, Overflow
from netfold.sim.keys import Location
from netfold.sim.plan.idle_network import Pace, job_pace
from netfold.sim.plan.plan import CollectivePlan, frame_of
from netfold.sim.workload.device_rooflines import memory_bps
from netfold.topologies.network import Network

if TYPE_CHECKING:
    import simpy


# Halves of schedules, and who carries which words across groups, for hierarchies with switches.
#
# Where switches take the place of the inner or the outer collective, the halves of the inner one run by
# themselves: the transfers that merge leave every word of a group at its owner, the others distribute what is
# finished. The owners of the same words in all groups are a lane.


class Lane(NamedTuple):
    """Workers, one of each group, who own the same stretches of every message, as shares of it."""

    members: tuple[int, ...]
    """The worker of each group."""
    stretches: tuple[tuple[Fraction, Fraction], ...]

    @property
    def share(self) -> float:
        """Share of the words that it carries."""
        return float(sum(end - start for start, end in self.stretches))

    def slices(self, words: int, blocks: int) -> list[slice]:
        """Its words of a message of so many words in blocks; edges are rounded down, as in a schedule."""
        return [
            slice(_edge(words, block, blocks, start), _edge(words, block, blocks, end))
            for block in range(blocks)
            for start, end in self.stretches
        ]


def _edge(words: int, block: int, blocks: int, edge: Fraction) -> int:
    at = (block + edge) / blocks
    return words * at.numerator // at.denominator


def lanes_of(groups: RankGroups, inner: Callable[[int], Cut]) -> tuple[Lane, ...]:
    """The lanes of a hierarchy whose groups have these schedules; together they carry every word once."""
    edges, inners = inners_of(groups, inner)
    owners = [[group[at] for at in inners[len(group)].owners.tolist()] for group in groups]
    lanes: dict[tuple[int, ...], list[tuple[Fraction, Fraction]]] = {}
    for stretch, leaders in zip(pairwise(edges), zip(*owners, strict=True), strict=True):
        lanes.setdefault(tuple(leaders), []).append(stretch)
    return tuple(Lane(members, tuple(stretches)) for members, stretches in lanes.items())


def half(cut: Cut, *, merges: bool) -> Cut:
    """The transfers of a schedule that merge, or those that do not; these wait for no others."""
    schedule = cut.schedule
    chosen = np.flatnonzero(schedule.merges == merges)
    numbers = np.full(schedule.transfers + 1, NONE, np.int64)  # the last is that of NONE
    numbers[chosen] = np.arange(chosen.size)
    builder = ScheduleBuilder(schedule.workers, schedule.chunks)
    builder.add(
        (schedule.source[chosen].astype(np.int64), schedule.target[chosen].astype(np.int64)),
        (schedule.first[chosen].astype(np.int64), schedule.count[chosen].astype(np.int64)),
        merges=merges,
        follows=numbers[schedule.follows[chosen]],
    )
    waiting = numbers[np.repeat(np.arange(schedule.transfers), np.diff(schedule.waits_first))]
    awaited = numbers[schedule.waits_for]
    has_both = (waiting != NONE) & (awaited != NONE)
    builder.wait(waiting[has_both], awaited[has_both])
    return Cut(builder.schedule(), cut.cuts)


def sharing(workers: int) -> Cut:
    """An all-reduce in which worker k owns the k-th share: all send it theirs, then it goes round.

    Only its second half runs: a switch has done the first.
    """
    return compile_transfers(_sharing(workers))


def _sharing(workers: int) -> Transfers:
    def steps() -> Iterator[Step]:
        rank = np.arange(workers)
        merged: Ints | int = NONE
        for ahead in range(1, workers):
            yield Step((rank + ahead) % workers, rank, rank, merges=True, follows=merged)
            merged = rank + (ahead - 1) * workers
        got = merged  # what a worker has got from the one before it
        following = (rank + 1) % workers
        for step in range(1, workers):
            yield Step(rank, following, (rank - step + 1) % workers, waits=got)
            got = (rank - 1) % workers + (workers + step - 2) * workers

    return Transfers(workers, workers, steps(), shares_windows=False)


# The plan of a job's hierarchy with switches.


@dataclass(frozen=True, kw_only=True)
class SwitchedPlan(HostPlan):
    """Workers in groups that aggregate in switches, inside or across."""

    groups: Groups
    block_words: int
    lanes: tuple[Lane, ...]
    inner: Callable[[int], Cut]
    """Schedule of a group of some size; only its second half if switches do the first."""
    outer: Cut | None  # None: switches do it
    inside: tuple[CollectivePlan | None, ...]
    """What switches do in each group; None: nothing."""
    across: tuple[CollectivePlan | None, ...]
    """What switches do in each lane."""


@dataclass(frozen=True)
class Shape:
    """A hierarchy with switches: who does what, without times."""

    section: Any
    groups: Groups
    inner_spec: CollectiveSpec
    outer_spec: CollectiveSpec

    @property
    def inner_part(self) -> HostCollective | None:
        """The collective inside groups; None in switches."""
        return collective_of(self.section.inner) if self.inner_spec.is_between_hosts else None

    @property
    def outer_part(self) -> HostCollective | None:
        """The collective across groups; None in switches."""
        return collective_of(self.section.outer) if self.outer_spec.is_between_hosts else None

    @property
    def inner(self) -> Callable[[int], Cut]:
        """The schedule of a group of some size."""
        return sharing if self.inner_part is None else self.inner_part.cut

    @property
    def outer(self) -> Cut | None:
        """The schedule across groups; None in switches."""
        return None if self.outer_part is None else self.outer_part.cut(len(self.groups))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Who carries which words across groups."""
        return lanes_of(self.groups, self.inner)

    def phases(self, words: int) -> list[Outline]:
        """What the phases between hosts come to: inside, and across.

        The two halves inside are apart from each other. Words that pass several workers, as on a tree, follow
        one another block by block.
        """
        block_words, phases = min(words, self.section.chunk_words), list[Outline]()
        if self.inner_part is None:
            inside = levels_inside(self.groups, lambda size: outline_of(_sharing(size)), merges=False)
            phases.append(self._outline(inside, at_once_of(inside)))
        else:
            of_size = {len(group): self.inner_part.outline(len(group)) for group in self.groups}
            windows = together([(of_size[len(group)].windows, group) for group in self.groups])
            is_pipelined = any(outline.is_pipelined for outline in of_size.values())
            inside = [
                level
                for merges in (True, False)
                for level in levels_inside(self.groups, of_size.__getitem__, merges=merges)
            ]
            phases.append(self._outline(inside, windows, block_words if is_pipelined else 0))
        if self.outer_part is not None:
            outer = self.outer_part.outline(len(self.groups))
            across = levels_across([(lane.share, lane.members) for lane in self.lanes], outer)
            windows = together([(outer.windows, lane.members) for lane in self.lanes])
            phases.append(self._outline(across, windows, block_words if outer.is_pipelined else 0))
        return [phase for phase in phases if phase.levels]

    def _outline(self, levels: Sequence[Level], windows: Counter[Flow], block_words: int = 0) -> Outline:
        return Outline(
            workers=sum(map(len, self.groups)),
            transfers=0,
            cells=1,
            levels=tuple(levels),
            is_pipelined=block_words > 0,
            block_words=block_words,
            windows=windows,
        )

    def whole(self, words: int) -> Outline:
        """All phases between hosts, one after the other."""
        phases = self.phases(words)
        windows = sum((phase.windows for phase in phases), Counter[Flow]())
        return self._outline([level for phase in phases for level in phase.levels], windows)


# Closed forms of hierarchies with switches; what they say is further down, above `CARRIED`.


def pace_of_phases(
    shape: Shape,
    job: JobContext,
    inside: Sequence[CollectivePlan | None],
    across: Sequence[CollectivePlan | None],
) -> Pace:
    """Closed form for dense words on an idle network: the phases one after the other."""
    network, frame = job.site.network, frame_of(shape.section.frame)
    seed = job.location.scenario.seed
    routed = [
        Routed.by_seed(outline, network, job.nodes, seed, job.index) for outline in shape.phases(job.elements)
    ]
    paces = [pace_of(phase, frame) for phase in routed]
    longest = max(lane.share for lane in shape.lanes)
    paces += [
        _switch_pace(network, plans, share)
        for plans, share in ((inside, 1.0), (across, longest))
        if any(plans)
    ]
    if not paces:
        return pace_of(Routed.by_seed(shape.whole(0), network, job.nodes, seed, job.index), frame)
    slowest = min(paces, key=lambda pace: pace.elements_per_s)
    return Pace(
        1 / sum(1 / pace.elements_per_s for pace in paces),
        sum(pace.latency_ps for pace in paces),
        slowest.busiest,
    )


def _switch_pace(network: Network, plans: Sequence[CollectivePlan | None], share: float) -> Pace:
    """The pace of several jobs on switches at the same time, each with a share of the words at most."""
    switch_plans = [plan for plan in plans if plan is not None]
    trees = [tree for plan in switch_plans for tree in plan.aggregations]
    pace = job_pace(network, *trees)
    return Pace(
        pace.elements_per_s / len(switch_plans) / share, pace.latency_ps, pace.busiest, pace.is_windowed
    )


def estimate_switched(
    shape: Shape, network: Network, nodes: Sequence[int], words: int, seed: int
) -> Estimate:
    """The estimated time: the phases one after the other, of groups and of lanes at the same time.

    A link that is the busiest of several groups or lanes is busy for all of them.
    """
    phases = [estimate_of(outline, network, nodes, words, seed) for outline in shape.phases(words)]
    estimates: list[list[Estimate]] = []
    if not shape.inner_spec.is_between_hosts:
        inner_best = partial(_part_best, shape.inner_spec, shape.section.inner, network, seed=seed)
        groups = [[nodes[worker] for worker in group] for group in shape.groups if len(group) > 1]
        estimates.append([inner_best(nodes=group, words=words) for group in groups])
    if not shape.outer_spec.is_between_hosts and len(shape.groups) > 1:
        outer_best = partial(_part_best, shape.outer_spec, shape.section.outer, network, seed=seed)
        estimates.append(
            [
                outer_best(
                    nodes=[nodes[worker] for worker in lane.members], words=math.ceil(lane.share * words)
                )
                for lane in shape.lanes
            ]
        )
    phases += [_together(bests) for bests in estimates if bests]
    if not phases:
        return Estimate(0.0, "", 0.0, 0.0)
    slowest = max(phases, key=lambda phase: phase.busy_s)
    return Estimate(
        sum(phase.seconds for phase in phases),
        slowest.link,
        slowest.busy_s,
        sum(phase.latency_s for phase in phases),
    )


def _part_best(
    spec: CollectiveSpec,
    section: Any,
    network: Network,
    *,
    nodes: Sequence[int],
    words: int,
    seed: int,
) -> Estimate:
    assert spec.estimate is not None
    return spec.estimate(section, network, nodes, words, seed)


def _together(bests: Sequence[Estimate]) -> Estimate:
    """The time of several at once."""
    busy: defaultdict[str, float] = defaultdict(float)
    for estimate in bests:
        busy[estimate.link] += estimate.busy_s
    link = max(busy, key=lambda name: busy[name])
    latency_s = max(best.latency_s for best in bests)
    return Estimate(
        max(busy[link] + latency_s, *(best.seconds for best in bests)), link, busy[link], latency_s
    )


# Resolves hierarchies whose inner or outer collective runs in switches, with their closed form.
#
# Inside in switches: every group aggregates in switches of its own, and each worker then owns a share of its
# group's sum. Across in switches: the owners of the same words in all groups (one lane each; with a `tree`
# inside, its roots) aggregate these in switches. Each is an ordinary job on switches of the workers that take
# part, with its own tree, slots, timeouts and counters. Phases follow one another for each operation: with M
# words, n workers in groups of g, S(M) for the time of switches, and H(M) for that of hosts,
#
#     inside in switches:   S(M) + H across of M / g + (1 − 1 / g) · M words and g − 1 ways inside
#     across in switches:   H of an all-reduce inside of M + S(M / g), of all lanes at the same time
#     both:                 S(M) + S(M / g) + (1 − 1 / g) · M words and g − 1 ways inside
#
# Floats are added in the order of packets at the switches, and in that of the schedules at hosts.


CARRIED = frozenset({Merge.ADD, Merge.OR, Merge.MAX, Merge.FLOAT_ADD, Merge.SIGN})
_SUM_BYTES = 4  # per element: of each group its sum, its lanes' and its total; of all, lanes and total


@dataclass(frozen=True)
class PartLocation(Location):
    """Where the keys of a part of a job's collective are."""

    part: str = ""
    key: str = "groups"
    """The key that divides the workers."""

    @property
    def name_in_errors(self) -> str:
        """What errors about other jobs, or other parts of this one, call it."""
        part_key = f"collective.{self.part}"
        return f"{part_key} of {super().name_in_errors}" if self.job else part_key

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
        prefix = f"collective.{self.part}."
        named = (text.replace("collective.", prefix) for text in (path, message, hint))
        return super().job_error(*named)


def resolve_switched(shape: Shape, job: JobContext) -> Resolved:
    """The plan of a job's hierarchy with switches.

    Raises
    ------
    ScenarioError
        The codec's merges do not survive the phases, no switches fit a part, sums that overflow would be
        treated differently by its parts, or as for `ClosedForm.resolve`.
    """
    section, groups = shape.section, shape.groups
    _check_codec(shape, job)
    _check_parts(shape, job)
    lanes = shape.lanes
    inside: tuple[CollectivePlan | None, ...] = (None,) * len(groups)
    across: tuple[CollectivePlan | None, ...] = (None,) * len(lanes)
    if not shape.inner_spec.is_between_hosts:
        inside = tuple(
            _part(shape, job, "inner", group, share=1.0) if len(group) > 1 else None for group in groups
        )
    if not shape.outer_spec.is_between_hosts and len(groups) > 1:
        across = tuple(_part(shape, job, "outer", lane.members, share=lane.share) for lane in lanes)
    plans = [plan for plan in (*inside, *across) if plan is not None]
    _check_overflow(shape, plans, job.location)
    make_plan = partial(
        SwitchedPlan,
        groups=groups,
        block_words=section.chunk_words,
        lanes=lanes,
        inner=shape.inner,
        outer=shape.outer,
        inside=inside,
        across=across,
    )
    between_hosts = resolve_as(section, job, shape.whole(job.elements), tables=0, make_plan=make_plan)
    pace = pace_of_phases(shape, job, inside, across)
    carrier = HostCarrier(
        latency_ps=max(1, pace.latency_ps),
        rate_bps=max(1, round(32 * pace.elements_per_s)),
        memory_bps=memory_bps(job.device),
    )
    plan = _with_switches(between_hosts.plan, plans, shape, job.elements)
    return Resolved(plan, job.codec.carried_by(carrier), warnings=between_hosts.warnings)


def _with_switches(
    plan: CollectivePlan, parts: Sequence[CollectivePlan], shape: Shape, elements: int
) -> CollectivePlan:
    """A plan between hosts with what its parts need of switches and of memory."""
    cuts = {size: shape.inner(size).schedule for size in {len(group) for group in shape.groups}}
    inner = [cuts[len(group)] for group in shape.groups]
    across = [shape.outer.schedule] * len(shape.lanes) if shape.outer is not None else []
    blocks = max(1, -(-elements // shape.section.chunk_words))
    return replace(
        plan,
        sender=replace(
            plan.sender, timeout_max_ps=max(subplan.sender.timeout_max_ps for subplan in (plan, *parts))
        ),
        held_bytes=plan.held_bytes + _SUM_BYTES * (3 * len(shape.groups) + 2),
        tables_bytes=sum(
            tables_bytes(blocks * schedule.transfers, blocks * schedule.chunks, schedule.workers)
            for schedule in (*inner, *across)
        ),
        aggregations=tuple(tree for part in parts for tree in part.aggregations),
        passes=max(
            (part.passes for part in parts),
            default=plan.passes,
        ),
        needs_lossless=any(part.needs_lossless for part in parts),
    )


def _part(
    shape: Shape, job: JobContext, name: str, workers: Sequence[int], *, share: float
) -> CollectivePlan:
    """What switches do for some of the workers, with a share of the words."""
    spec = shape.inner_spec if name == "inner" else shape.outer_spec
    section = getattr(shape.section, name)
    location = PartLocation(**vars(job.location), part=name, key=key_of(shape.section))
    part_job = replace(
        job,
        location=location,
        hosts=tuple(job.hosts[worker] for worker in workers),
        elements=max(1, math.ceil(share * job.elements)),
    )
    assert spec.as_part is not None
    return spec.resolve(spec.as_part(section, part_job), part_job).plan


def _check_parts(shape: Shape, job: JobContext) -> None:
    """Check that schedules fit the sizes of groups."""
    if shape.inner_part is not None:
        for size in sorted({len(group) for group in shape.groups}):
            shape.inner_part.fit(size, job)
    if shape.outer_part is not None:
        shape.outer_part.fit(len(shape.groups), job)


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
    has_hosts = shape.inner_spec.is_between_hosts or shape.outer_spec.is_between_hosts
    overflows = {plan.overflow for plan in plans} | ({Overflow.WRAP} if has_hosts else set())
    if len(overflows) < 2:
        return
    names = ", ".join(sorted(overflow.name.lower() for overflow in overflows))
    part = "inner" if not shape.inner_spec.is_between_hosts else "outer"
    raise location.job_error(
        f"collective.{part}.overflow",
        f"parts of the hierarchy treat sums that overflow differently: {names}"
        + ("; sums of hosts wrap" if has_hosts else ""),
        "use overflow: wrap in both, or a program and switches that can wrap",
    )


# One phase of a hierarchy between some of a job's workers: a schedule that the engine carries out.


_MESSAGES = 2**40  # numbers of a stage's messages, which identify them in keyed draws


def blocks_of(words: int, chunk_words: int) -> int:
    """Blocks that a message of so many words is cut into."""
    return max(1, -(-words // chunk_words))


class SwitchedStage(ScheduledRun):
    """Carries messages of the workers `ranks` of a job by the schedule of `cut`, block by block.

    A schedule may be a half: then the words of a worker's result count that it is the owner of.
    """

    def __init__(
        self, plan: SwitchedPlan, context: RunContext, cut: Cut, ranks: Sequence[int], number: int
    ) -> None:
        """`context` is that of these workers; `number` tells apart the stages of a job."""
        super().__init__(plan, context)
        self._cut, self._chunk_words = cut, plan.block_words
        self._ranks = tuple(ranks)
        self._begun = number * _MESSAGES
        self._cuts: dict[int, Cut] = {}  # keys: blocks of a message

    def cut(self, words: int, by_codec: bool) -> Cut:
        """As many blocks as a message needs."""
        blocks = blocks_of(words, self._chunk_words)
        if blocks not in self._cuts:
            self._cuts[blocks] = in_blocks(self._cut.schedule, self._cut.cuts, blocks)
        return self._cuts[blocks]

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """The message and operation of a word."""
        return f"message {part} of {operation_id.in_words}"


# A hierarchy with switches: three phases over groups of workers, one after the other for each operation.


@dataclass
class _Operation:
    """An operation that some worker has begun and not all have finished."""

    totals: dict[int, list[Words]] = field(default_factory=dict)
    """The totals of each group, one for each message."""
    finished: list[int] = field(default_factory=list)  # groups, whose totals are those of the first if equal
    served: int = 0  # workers


class Switched:
    """One job's hierarchy, a part of which is done by switches.

    A worker reduces inside its group; then those who own the same words in all groups carry out an all-reduce
    of these, all lanes at the same time; then every owner distributes its words inside its group.
    """

    servers: tuple[Server, ...] = ()
    is_serial = True  # the streams of switches open in the same order at all workers
    takes_floats = False

    def __init__(self, plan: SwitchedPlan, context: RunContext, parts: Mapping[str, CollectiveSpec]) -> None:
        self._plan, self._context = plan, context
        self._group_of = {rank: at for at, group in enumerate(plan.groups) for rank in group}
        self._place_of = {rank: at for group in plan.groups for at, rank in enumerate(group)}
        self._lanes_of = {
            rank: [at for at, lane in enumerate(plan.lanes) if rank in lane.members]
            for rank in self._group_of
        }
        self._open: dict[OperationId, _Operation] = {}
        self._switches: list[Collective] = []
        start, numbers = partial(self._start, parts), count(1)
        self._first: list[Collective] = []
        self._last: list[Collective] = []
        for group, switch_plan in zip(plan.groups, plan.inside, strict=True):
            cut = plan.inner(len(group))
            reduce_ = partial(SwitchedStage, cut=half(cut, merges=True), ranks=group, number=next(numbers))
            self._first.append(start(switch_plan, group) if switch_plan else reduce_(plan, self._of(group)))
            self._last.append(
                SwitchedStage(plan, self._of(group), half(cut, merges=False), group, next(numbers))
            )
        self._across: list[Collective] = []
        for lane, switch_plan in zip(plan.lanes, plan.across, strict=True):
            if switch_plan is not None:
                self._across.append(start(switch_plan, lane.members))
                continue
            assert plan.outer is not None
            self._across.append(
                SwitchedStage(plan, self._of(lane.members), plan.outer, lane.members, next(numbers))
            )

    def _of(self, workers: Sequence[int]) -> RunContext:
        """The environment of some of the workers."""
        context = self._context
        return replace(
            context,
            hosts=context.hosts.of(workers),
            nodes=tuple(context.nodes[worker] for worker in workers),
            ranks=tuple(workers),
        )

    def _start(
        self, parts: Mapping[str, CollectiveSpec], plan: CollectivePlan, workers: Sequence[int]
    ) -> Collective:
        """Start what switches do for some of the workers."""
        collective = parts[plan.kind].start(plan, self._of(workers))
        self._switches.append(collective)
        return collective

    @property
    def overflow(self) -> Overflow:
        """The overflow policy of its switches, and of hosts if they add."""
        return self._plan.overflow

    def pipelines(self, message: Message) -> bool:
        """Return False: exponents are agreed on before the words."""
        return False

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        """Return none: switches cannot run a codec's function."""
        return {}

    def exchange(self, worker: int, messages: tuple[Message, ...], operation_id: OperationId) -> Wait:
        """Carry one worker's messages through the three phases."""
        group, at = self._group_of[worker], self._place_of[worker]
        operation = self._open.setdefault(operation_id, _Operation())
        if len(self._plan.groups[group]) == 1:
            sums = tuple(merged_message([message]) for message in messages)
        else:
            sums = yield from self._first[group].exchange(at, messages, operation_id)
        if group not in operation.totals:
            operation.totals[group] = [np.empty_like(group_sum.words) for group_sum in sums]
        environment = self._context.environment
        yield environment.all_of(
            [
                environment.process(self._carry_across(lane, group, messages, sums, operation_id))
                for lane in self._lanes_of[worker]
            ]
        )
        if len(self._plan.groups[group]) > 1:
            totals = operation.totals[group]
            finals = tuple(
                replace(message, words=all_) for message, all_ in zip(messages, totals, strict=True)
            )
            yield from self._last[group].exchange(at, finals, operation_id)
        return self._finish(group, operation_id)

    def _carry_across(
        self,
        lane: int,
        group: int,
        messages: Sequence[Message],
        sums: Sequence[Merged],
        operation_id: OperationId,
    ) -> Generator[simpy.Event, Any, None]:
        """One owner's side of the all-reduce of its words across groups."""
        chunk_words = self._plan.block_words
        parts = [
            self._plan.lanes[lane].slices(group_sum.words.size, blocks_of(group_sum.words.size, chunk_words))
            for group_sum in sums
        ]
        lane_messages = tuple(
            replace(message, words=np.concatenate([group_sum.words[at] for at in part]))
            for message, group_sum, part in zip(messages, sums, parts, strict=True)
        )
        merged: Sequence[Merged]
        if len(self._plan.groups) == 1:
            merged = [merged_message([lane_message]) for lane_message in lane_messages]
        else:
            merged = yield from self._across[lane].exchange(group, lane_messages, operation_id)
        for total, lane_sum, part in zip(self._open[operation_id].totals[group], merged, parts, strict=True):
            first = 0
            for at in part:
                size = at.stop - at.start
                total[at] = lane_sum.words[first : first + size]
                first += size

    def _finish(self, group: int, operation_id: OperationId) -> tuple[Merged, ...]:
        """The totals of a group; groups with equal ones share memory."""
        operation, workers = self._open[operation_id], len(self._group_of)
        totals = operation.totals[group]
        if group not in operation.finished:
            if operation.finished:
                first = operation.totals[operation.finished[0]]
                totals[:] = [
                    shared if same_bits(shared, other) else other
                    for shared, other in zip(first, totals, strict=True)
                ]
            operation.finished.append(group)
        operation.served += 1
        if operation.served == workers:
            del self._open[operation_id]
        return tuple(Merged(words, workers) for words in totals)

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of its switches, group by group, then lane by lane, each with the root first."""
        return [counters for collective in self._switches for counters in collective.switch_counters()]

    def leaks(self) -> list[str]:
        """Slots and entries of switches that still hold words at the end of a run."""
        return [leak for collective in self._switches for leak in collective.leaks()]

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """The message, operation and worker of a word, and the worker's group."""
        group = f"group {self._group_of[worker]} of {len(self._plan.groups)}"
        return (
            f"message {part} of {operation_id.in_words} in a hierarchy, as worker {worker} ({group}) got it"
        )

    def share(self) -> float:
        """Progress of what switches do, or of the messages between hosts, if that is under way."""
        shares = [collective.share() for collective in self._switches]
        streams = sum(shares) / len(shares) if shares else 0.0
        return max(streams, self._context.fabric.engine.schedules_share(self._context.job))

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers, to switches and to each other."""
        flows = self._context.fabric.engine.flow_retransmissions(self._context.job)
        return flows + sum(collective.retransmitted_packets() for collective in self._switches)
