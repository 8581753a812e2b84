"""The plan of a variant, in base units; `sim.scenario.resolve` makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Annotated, Literal, NamedTuple, Protocol

import networkx as nx
from pydantic import Field

from netfold.homomorphic.codec import Codec
from netfold.sim.engine.engine_data import NEVER_PS, Condition, Frame, Job, Overflow, Rule, Sender
from netfold.sim.keys import Count, CustomFrame, Location, Option, Placement
from netfold.sim.plan.prices import Prices
from netfold.sim.workload.device_rooflines import STEADY, Device, Variation
from netfold.sim.workload.fusion_rules import Costs
from netfold.sim.workload.workload import GradientSource
from netfold.switch.program import MEMBERS_BYTES, WIRE_BYTES, formats
from netfold.topologies.graph import TopologyError, hosts, where
from netfold.topologies.network import Network
from netfold.topologies.placement import place_workers
from netfold.units import RATE, TIME

# How the jobs of a variant get hosts and slots if they come and go.


RESERVED, FIFO = "reserved", "fifo"


class Placer(Protocol):
    """Hands out hosts and slots while a variant runs."""

    def place(self, index: int) -> tuple[JobPlan, bool] | None:
        # A job with its hosts and slots, and whether it has its fallback for a collective; None: there are
        # too few free hosts or slots now.
        ...

    def release_hosts(self, index: int) -> None:
        # Comes before `release`, which takes back the slots too.
        ...

    def release(self, index: int) -> None: ...


@dataclass(frozen=True)
class Admission:
    """The jobs of a variant that come and go.

    With a placer, `VariantPlan.jobs` are as each is on the empty network; without one they are as they run.
    """

    kind: str  # RESERVED or FIFO
    placer: Callable[[], Placer] | None = None
    room: Mapping[int, int] = field(default_factory=dict)  # slots by switch, enough for all jobs at a time
    timeout_max_ps: int = 0  # the longest of any fallback


# A resolved collective: what runs, checks and limits need to know of any collective.


@dataclass(frozen=True)
class CollectivePlan:
    """How the words of a job are aggregated; a collective may subclass it for more."""

    kind: str
    """Its name in the registry of collectives."""
    sender: Sender  # of each worker, or of each connection of two
    held_bytes: int
    """Memory that a run takes per element, for all workers together."""
    settled: Mapping[str, str | int]  # resolved values of keys with computed defaults, as in a scenario
    aggregations: tuple[Job, ...] = ()  # what it needs of switches, tree by tree; none without switches
    standby: Mapping[int, tuple[Job, ...]] = field(default_factory=dict)
    """The trees that take the place of all before at a time in ps, when routes leave out what has failed."""
    passes: tuple[int, int] = (1, 0)
    """Passes through a switch's pipelines: of a packet that it aggregates, and of a result that it sends."""
    tables_bytes: int = 0
    """Memory that a run takes whatever the elements."""
    has_exponents_ahead: bool = False  # it agrees on block exponents while it sends the words
    needs_lossless: bool = False  # it must run on a network that drops nothing
    is_timeout_released: bool = False  # the timeout is that of its protocol's own client

    @property
    def aggregation(self) -> Job | None:
        return self.aggregations[0] if self.aggregations else None

    @property
    def trees(self) -> tuple[Job, ...]:
        # Those that stand by, too.
        return (*self.aggregations, *chain.from_iterable(self.standby.values()))

    @property
    def overflow(self) -> Overflow:
        # Sums of hosts wrap.
        return self.aggregation.overflow if self.aggregation else Overflow.WRAP


# Resolved faults, for the engine and workers; `sim.scenario.faults` makes them.
#
# A `Rule` affects packets inside the engine. A *change* (links down or slower, a reboot, a crash, a pause) is
# applied to the engine at its time, by `sim.run.simulation`. What delays a worker outside the network (a
# late start, a slow host, a crash or a pause) is collected in its `Condition`, for `sim.network.fabric`.


@dataclass(frozen=True)
class LinksDown:
    """Links that carry nothing in [from, until)."""

    links: tuple[int, ...]
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class Failure:
    """Links, perhaps all those of a switch, that drop what is put on them in [from, until)."""

    links: tuple[int, ...]
    reroute_ps: int
    """How long after it begins, and after it ends, routes change; NEVER_PS: they do not."""
    from_ps: int
    until_ps: int
    switch: int | None = None  # node, which loses its registers


@dataclass(frozen=True)
class LinksSlower:
    """Links with a lower rate in [from, until)."""

    links: tuple[int, ...]
    rate_bps: int
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class Reboot:
    """A switch that loses its registers, or is cut off until its tables are reinstalled, or both."""

    switch: int  # node
    clears_registers: bool
    links: tuple[int, ...]  # down in [from, until): all its links, or none
    queues: tuple[int, ...]  # its outgoing links: their packets wait in its memory
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class Stop:
    """A worker that stops with its host in [from, until): it crashes, or pauses."""

    job: int
    worker: int
    host: int  # node
    from_ps: int
    until_ps: int = NEVER_PS

    @property
    def is_crash(self) -> bool:
        return self.until_ps == NEVER_PS


@dataclass(frozen=True)
class LateStart:
    """A worker that waits in [from, until), where from is the start of its job."""

    job: int
    worker: int
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class HostSlowdown:
    """A worker whose computing takes `factor` times as long."""

    job: int
    worker: int
    factor: Fraction
    from_ps: int  # start of its job


def _duration(from_ps: int, until_ps: int) -> str:
    if until_ps == NEVER_PS:
        return "to the end"
    return f"for {TIME.format(until_ps - from_ps)}" if until_ps > from_ps else ""


Change = LinksDown | Failure | LinksSlower | Reboot | Stop
WorkerEffect = Stop | LateStart | HostSlowdown
Effect = Rule | Change | WorkerEffect


def moments_ps(effect: Change | Rule) -> tuple[int, ...]:
    """When an effect begins, ends, and when routes leave out the links of a failure and take them in again.

    A failure that is over by then changes no route.
    """
    ends_ps = effect.from_ps, effect.until_ps
    if isinstance(effect, Failure) and effect.from_ps + effect.reroute_ps < effect.until_ps:
        return *ends_ps, *(time_ps + effect.reroute_ps for time_ps in ends_ps)
    return ends_ps


@dataclass(frozen=True)
class PlannedFault:
    """One fault of the scenario: its kind, its place, and its effect."""

    kind: str
    where: str
    """Its place, for people: "h*->s0", "s0" or "worker 2"."""
    effect: Effect

    @property
    def extent(self) -> str:
        """Text of its strength and duration: "10Gbps for 2ms", "4 times as slow"; empty for others."""
        match self.effect:
            case LinksSlower(rate_bps=rate_bps) as effect:
                return f"{RATE.format(rate_bps)} {_duration(effect.from_ps, effect.until_ps)}"
            case HostSlowdown(factor=factor):
                return f"{float(factor):.6g} times as slow"
            case Rule():
                return ""
            case Stop() as effect if effect.is_crash:
                return ""
            case Failure(reroute_ps=reroute_ps) as effect:
                is_over = len(moments_ps(effect)) == 2
                after = "not rerouted" if is_over else f"rerouted after {TIME.format(reroute_ps)}"
                return f"{_duration(effect.from_ps, effect.until_ps)}, {after}"
            case LinksDown() | Reboot() | Stop() | LateStart() as effect:
                return _duration(effect.from_ps, effect.until_ps)


@dataclass(frozen=True)
class FaultPlan:
    """A variant's faults, in the order of the scenario. It guarantees that:

    - every pattern matches at least one link, and no effect on packets or rates is inside a switch;
    - every switch and worker exists;
    - every fault ends after it begins, except reboots, which may take no time;
    - no link becomes faster than in the topology.
    """

    faults: tuple[PlannedFault, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        # In the order of their counters.
        return tuple(fault.effect for fault in self.faults if isinstance(fault.effect, Rule))

    @property
    def last_change_ps(self) -> int:
        """Time of the last change of the network or of packet faults; 0 if there is none."""
        effects = [fault.effect for fault in self.faults if isinstance(fault.effect, Change | Rule)]
        times = (time_ps for effect in effects for time_ps in moments_ps(effect))
        return max((time_ps for time_ps in times if time_ps < NEVER_PS), default=0)

    @property
    def reroutes(self) -> dict[int, list[int]]:
        """Rows of the links that routes leave out, by the times in ps from which on they do."""
        effects = (fault.effect for fault in self.faults if isinstance(fault.effect, Failure))
        failures = [(moments_ps(effect)[2:], effect.links) for effect in effects]
        times = sorted({time_ps for ends_ps, _ in failures for time_ps in ends_ps if time_ps < NEVER_PS})
        return {
            time_ps: sorted(
                {link for ends, links in failures if ends and ends[0] <= time_ps < ends[1] for link in links}
            )
            for time_ps in times
        }

    def conditions(self, job: int, workers_count: int) -> tuple[Condition, ...]:
        return tuple(self._condition(job, worker) for worker in range(workers_count))

    def _condition(self, job: int, worker: int) -> Condition:
        factor, stops, crash_ps = Fraction(1), [], NEVER_PS
        for fault in self.faults:
            effect = fault.effect
            if not isinstance(effect, WorkerEffect) or (effect.job, effect.worker) != (job, worker):
                continue
            match effect:
                case HostSlowdown():
                    factor *= effect.factor
                case Stop() if effect.is_crash:
                    crash_ps = min(crash_ps, effect.from_ps)
                case Stop() | LateStart():
                    stops.append((effect.from_ps, effect.until_ps))
        return Condition(factor, tuple(sorted(stops)), crash_ps)


# How a worker's buckets overlap with its computing and with each other.


BucketOrder = Literal["ready", "first_layer"]


@dataclass(frozen=True)
class Overlap(Option):
    """What a worker does at the same time: computing, encoding, and sending several buckets.

    With several buckets in flight, the network carries one while the next one is encoded. On a device that
    also encodes and decodes, these go before the rest of backward. Real trainers are closest to
    `buckets_in_flight: 4` (or more) with `encode: on_device`.
    """

    buckets_in_flight: Count = 1
    """Buckets that a worker encodes, sends or decodes at a time."""
    order: BucketOrder = "ready"
    """Which waiting bucket goes first: the first that was ready, or the one nearest to the first layer."""
    encode: Literal["beside", "on_device"] = "beside"
    """Where encoding and decoding run: beside the device, on one of their own, or in turn with its passes."""
    decode: Literal["at_once", "last"] = "at_once"
    """When a bucket that has arrived is decoded: before other waiting work, or when nothing else is to do."""
    network: Literal["shared", "in_turn"] = "shared"
    """How a collective between hosts carries several buckets: at the same time, or one after the other."""

    def rank(self, bucket: int) -> int:
        # The lowest goes first.
        return bucket if self.order == "ready" else -bucket

    def decode_rank(self, bucket: int, last: int) -> int:
        # Among all that waits for the device, where passes have the place `last`.
        return self.rank(bucket) + (2 * last if self.decode == "last" else 0)


@dataclass(frozen=True)
class Reference(Option):
    """A throughput shown beside the simulated one, published in most cases."""

    label: str
    """What it is called in the figure."""
    elements_per_s: Annotated[float, Field(gt=0)]
    """Dense gradient elements aggregated per second."""
    source: str
    """Where the number comes from."""


@dataclass(frozen=True)
class JobPlan:
    """One resolved job of a variant. It guarantees that:

    - every worker has a host that no other worker uses at that time;
    - its collective supports the codec's merges;
    - its program fits its switches beside the other jobs there; its slots are whole messages and not shared;
    - a window of messages between hosts holds at least as many packets as one acknowledgement covers.
    """

    label: str
    """Its name in results: the variant's, and "/" and the job's if there are several."""
    hosts: tuple[int, ...]  # node of each worker
    workload: GradientSource
    steps: int
    device: Device
    codec: Codec
    collective: CollectivePlan
    references: tuple[Reference, ...]  # published results, and the wire bound
    start_ps: int = 0
    warnings: tuple[str, ...] = ()
    overlap: Overlap = field(default_factory=Overlap)
    variation: Variation = STEADY
    """How the devices of its workers vary."""
    costs: Costs | None = None
    """What its buckets cost, where a rule of fusion asks for it; a run measures it."""
    keep: tuple[str, ...] = ()
    """What is kept of its steps as arrays."""


@dataclass(frozen=True)
class VariantPlan:
    """One resolved variant: a network and the jobs on it. It guarantees that:

    - every node and link is a row of `network`, whose delays into switches include their pass latency;
    - every switch profile exists;
    - the guarantees of the fault plan hold on this network.
    """

    name: str
    network: Network
    faults: FaultPlan
    jobs: tuple[JobPlan, ...]  # one or more
    graph: nx.Graph = field(default_factory=nx.Graph)  # the topology, as given
    can_aggregate: frozenset[str] = frozenset()  # profiles of its switches that run programs
    sections: tuple[int, ...] = ()
    """The place of each job in the scenario's list."""
    admission: Admission | None = field(default=None, compare=False)  # None: all jobs are there at first
    seed: int = field(default=1, compare=False)
    prices: Prices | None = field(default=None, compare=False)  # None: those of netfold
    whole: nx.Graph | None = field(default=None, compare=False)
    """The topology with what is absent; None: nothing is."""

    @property
    def job_names(self) -> tuple[str, ...]:
        # A single job has an empty name.
        return tuple(job.label.removeprefix(self.name).removeprefix("/") for job in self.jobs)

    @property
    def steps(self) -> int:
        return sum(job.steps for job in self.jobs)

    @property
    def timeout_max_ps(self) -> int:
        """The longest timeout of its traffic."""
        others_ps = 0 if self.admission is None else self.admission.timeout_max_ps
        return max(others_ps, *(job.collective.sender.timeout_max_ps for job in self.jobs))


# Packet formats for the engine: all sizes are sizes on the wire.


def frames() -> dict[str, Frame]:
    """All packet formats that a scenario can name."""
    return {
        name: Frame(
            name, layout.words, layout.overhead_bytes, layout.first_bytes, layout.last_bytes, layout.ack_bytes
        )
        for name, layout in formats().items()
    }


def frame_of(chosen: str | CustomFrame) -> Frame:
    """The packet format that a scenario names or defines."""
    if isinstance(chosen, str):
        return frames()[chosen]
    return Frame("own", chosen.words, chosen.overhead, chosen.first, chosen.last, chosen.ack)


def with_members(frame: Frame, workers: int = 1, *, per_packet: bool = True) -> Frame:
    """The format with a field that says who contributed: for jobs whose workers may be absent."""
    # Switches need it in every packet: a bitmap of up to 32 workers, or a count of more. Between hosts, the
    # first packet of a message has a bitmap of all workers, in words of 32 bits.
    if per_packet:
        return replace(frame, overhead_bytes=frame.overhead_bytes + MEMBERS_BYTES)
    return replace(frame, first_bytes=frame.first_bytes + MEMBERS_BYTES * -(-workers // 32))


def custom_header_bytes(chosen: str | CustomFrame) -> int | None:
    """Header bytes of a custom packet format; None for known formats, whose programs define them."""
    if isinstance(chosen, str):
        return None
    return max(0, chosen.overhead + chosen.first + chosen.last - WIRE_BYTES)


# Assigns workers and servers to hosts; each host runs at most one of them.


class Placed(NamedTuple):
    """What is placed: its name in errors, and the keys of its number and its hosts."""

    noun: str
    count_key: str
    placement_key: str
    remedy: str = ""  # besides fewer of them and a larger topology


WORKERS = Placed("worker", "workers.count", "workers.placement")


class HostAllocation:
    """The hosts of a variant, and the jobs that occupy them."""

    def __init__(self, graph: nx.Graph) -> None:
        self._graph = graph
        self._taken: dict[str, tuple[str, Location]] = {}  # what each host runs, and of which job

    def place(
        self, count: int, placement: Placement, location: Location, what: Placed = WORKERS
    ) -> tuple[str, ...]:
        """Place a job: the host of each worker, in rank order; policies use free hosts.

        Raises
        ------
        ScenarioError
            Too few hosts, or a host that is unknown, named twice, or used by an earlier job.
        """
        chosen = self._choose(count, placement, location, what)
        for host in chosen:
            if host in self._taken:
                noun, owner = self._taken[host]
                of_owner = "" if owner == location else f" of {owner.name_in_errors}"
                raise location.job_error(
                    what.placement_key,
                    f"host {host!r} runs a {noun}{of_owner}",
                    f"use another host; free: {self._free_names()}",
                )
        self._taken.update(dict.fromkeys(chosen, (what.noun, location)))
        return tuple(chosen)

    def release(self, location: Location) -> None:
        self._taken = {host: occupant for host, occupant in self._taken.items() if occupant[1] != location}

    def _choose(self, count: int, placement: Placement, location: Location, what: Placed) -> list[str]:
        is_named, seed = not isinstance(placement, str), location.scenario.seed
        try:
            if is_named or not self._taken:
                return place_workers(self._graph, count, placement, what.noun, seed)
            order = place_workers(self._graph, len(hosts(self._graph)), placement, seed=seed)
        except TopologyError as error:
            message, hint = split_message_and_hint(self._graph, error)
            is_placement = is_named or count <= len(hosts(self._graph))
            raise location.job_error(
                what.placement_key if is_placement else what.count_key, message, hint
            ) from None
        free = [host for host in order if host not in self._taken]
        if count > len(free):
            others = "earlier jobs" if what is WORKERS else "workers and other servers"
            remedies = [f"at most {len(free)} {what.noun}s"] if free else []
            remedies += ["a larger topology", *([what.remedy] if what.remedy else [])]
            raise location.job_error(
                what.count_key,
                f"cannot place {count} {what.noun}s on the {len(free)} hosts that {others} leave free",
                f"use {' or '.join(remedies)}",
            )
        return free[:count]

    def first_free(self) -> str | None:
        return next(iter(self._free()), None)

    def owner(self, host: str) -> Location | None:
        """The job that runs a worker or server on a host."""
        occupant = self._taken.get(host)
        return None if occupant is None else occupant[1]

    def _free(self) -> list[str]:
        return [host for host in hosts(self._graph) if host not in self._taken]

    def _free_names(self) -> str:
        free = self._free()
        return ", ".join(free[:8]) + (f" and {len(free) - 8} more" if len(free) > 8 else "") or "none"


def split_message_and_hint(graph: nx.Graph, error: TopologyError) -> tuple[str, str]:
    """Message and hint of a topology error, without the topology's name."""
    message, _, hint = str(error).removeprefix(where(graph)).rpartition("; ")
    return message, hint
