"""Collectives between hosts: one class each, whose fields are its keys and whose `schedule` is all it does.

Everything else follows from the schedule: how it runs (`host_messages.py`), what it costs
(`schedule_costs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator

from netfold.errors import shown
from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.sim.collectives.collective import (
    CollectiveSection,
    JobContext,
    Resolved,
    check_workers,
)
from netfold.sim.collectives.schedule_costs import (
    Estimate,
    Routed,
    carrier_of,
    estimate_of,
    tables_bytes,
    timeout_of,
)
from netfold.sim.collectives.topology_order import Orders
from netfold.sim.collectives.transfers import (
    Cut,
    Outline,
    Transfers,
    compile_transfers,
    in_orders,
    outline_of,
)
from netfold.sim.engine.congestion_policies import BACKOFF_MAX
from netfold.sim.engine.engine_data import Sender
from netfold.sim.keys import AutoTime, Count, HostFrame, Size
from netfold.sim.plan.idle_network import Window, crowding_warnings, port_warnings
from netfold.sim.plan.plan import CollectivePlan, frame_of, with_members
from netfold.topologies.network import Network
from netfold.units import SIZE, TIME


def _holds_a_word(value: int) -> int:
    if value < WORD_BYTES:
        raise ValueError(f"must be at least {WORD_BYTES}B, found {shown(SIZE.format(value))}")
    return value


Chunk = Annotated[Size, AfterValidator(_holds_a_word)]
WORD_BYTES = 4
_HELD_BYTES = 12  # per element: chunks in flight and joined, of all workers together


class HostCollective(CollectiveSection):
    """Keys of every collective between hosts: how it sends its messages.

    A subclass adds its own keys, and says in `schedule` who sends what to whom. Nothing else is needed.
    """

    recorded_always: ClassVar[tuple[str, ...]] = ("frame", "window")
    merges: ClassVar[frozenset[Merge]] = MERGEABLE | {Merge.HOST}
    """The merges that it carries."""
    carries_absence: ClassVar[bool] = True
    """Whether it counts workers that contribute nothing to a message that merges."""

    kind: str
    frame: HostFrame = "roce-1024"
    """Packet format: protocol and payload bytes, or a custom one such as {words: 256, overhead: 82B}."""
    window: Count = 512
    """Packets a host may have outstanding to another host."""
    timeout: AutoTime = "auto"
    """Retransmission timeout. auto: 4 round trips of all windows, at least 20us; never without loss."""
    ack_every: Count = 16
    """Packets per acknowledgement."""

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """Who sends what to whom, for a message of so many words of every worker.

        `by_codec`: the codec cuts the message into cells, and merges two of them; `words` is then 0. With 0
        words, a message is carried as a whole, not in chunks.
        """
        raise TypeError(f"{type(self).__name__} has no method `schedule`, which says who sends what to whom")

    @property
    def block_words(self) -> int:
        """Words of a long message that pass a pipelined schedule as one block; 0: unknown."""
        return 0

    def window_packets(self, routed: Routed) -> int:
        """Packets a host may have outstanding to another host."""
        return self.window

    @property
    def path_in_words(self) -> str:
        """Where words are, in messages about one of them: "around the ring"."""
        return "between hosts"

    def fit(self, workers: int, job: JobContext) -> None:
        """Raise ScenarioError if so many workers do not fit the keys; any number does by default."""

    def settled(self, workers: int) -> Mapping[str, str | int]:
        """Values of keys with computed defaults, as in a scenario; none by default."""
        return {}

    def held_bytes(self, workers: int) -> int:
        """Memory per element that it takes besides that of every collective; none by default."""
        return 0

    def where(self, worker: int, workers: int) -> str:
        """A worker's place in the schedule, in parentheses after its number; none by default."""
        return ""

    def orders(self, network: Network, nodes: Sequence[int]) -> Orders:
        """The order of the workers of each channel; empty: rank order, as by default."""
        return ()

    def placed(self, workers: int, words: int, by_codec: bool = False, orders: Orders = ()) -> Transfers:
        """Its schedule with the workers in these orders."""
        transfers = self.schedule(workers, words, by_codec)
        return in_orders(transfers, orders) if orders else transfers

    def outline(self, workers: int, by_codec: bool = False, orders: Orders = ()) -> Outline:
        """What its schedule comes to."""
        return _kept(
            _OUTLINES,
            (self._name(), workers, by_codec, orders),
            lambda: outline_of(self.placed(workers, 0, by_codec, orders), self.block_words),
        )

    def cut(self, workers: int, words: int = 0, by_codec: bool = False, orders: Orders = ()) -> Cut:
        """Its schedule, compiled; the same object for messages that are cut into as many cells."""
        cells = self.schedule(workers, words, by_codec).cells
        name = (self._name(), workers, cells, by_codec, orders)
        return _kept(
            _COMPILED, name, lambda: compile_transfers(self.placed(workers, words, by_codec, orders))
        )

    def _name(self) -> tuple[type[HostCollective], str]:
        """What collectives whose schedules are the same have in common."""
        options = self.model_dump(exclude=set(HostCollective.model_fields) - {"kind"})
        return type(self), repr(options)

    def estimate(self, network: Network, nodes: Sequence[int], words: int, seed: int) -> Estimate:
        """The estimated time of a message of so many words on the nodes of workers."""
        outline = self.outline(len(nodes), orders=self.orders(network, nodes))
        return estimate_of(outline, network, nodes, words, seed)

    def resolve(self, job: JobContext) -> Resolved:
        """The plan of a job.

        Raises
        ------
        ScenarioError
            The workers do not fit; or as `resolve_as`.
        """
        self.fit(len(job.hosts), job)
        orders = self.orders(job.site.network, job.nodes)
        outline = self.outline(len(job.hosts), orders=orders)
        return resolve_as(self, job, outline, make_plan=partial(HostPlan, orders=orders))


T = TypeVar("T")
_COMPILED: dict[Any, Cut] = {}
_OUTLINES: dict[Any, Outline] = {}
_KEPT_MAX = 32


def _kept(values: dict[Any, T], name: Any, make: Callable[[], T]) -> T:
    """The value of this name, made if it is not there; the oldest makes room."""
    if name not in values:
        made = make()
        while len(values) >= _KEPT_MAX:
            del values[next(iter(values))]
        values[name] = made
    return values[name]


class ChunkedCollective(HostCollective):
    """Keys of collectives whose hosts pass on messages chunk by chunk."""

    chunk: Chunk = SIZE.parse("64KiB")
    """Payload that a host receives before it merges or forwards it; 64KiB take about 5us at 100Gbps."""

    @property
    def chunk_words(self) -> int:
        """Words of a chunk."""
        return self.chunk // WORD_BYTES

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if a connection cannot send a chunk while the one before is on its way."""
        packets = -(-self.chunk_words // frame_of(self.frame).elements)
        if not isinstance(self.window, int) or 2 * packets <= self.window:
            return ()
        return (
            f"a chunk of {SIZE.format(self.chunk)} is {packets} packets, more than half of a window of "
            f"{self.window}: a connection waits for the delivery of every chunk; use a smaller "
            "collective.chunk, or a larger collective.window",
        )

    def resolve(self, job: JobContext) -> Resolved:
        """As that of any collective between hosts, with a warning about its chunks."""
        resolved = super().resolve(job)
        return resolved._replace(warnings=(*self.warnings, *resolved.warnings))


@dataclass(frozen=True, kw_only=True)
class HostPlan(CollectivePlan):
    """A collective over reliable messages between hosts."""

    collective: HostCollective
    """Its keys, and its schedule."""
    orders: Orders = ()
    """The order of the workers of each channel; empty: rank order."""


def resolve_as(
    collective: HostCollective,
    job: JobContext,
    outline: Outline,
    nodes: Sequence[int] = (),
    tables: int | None = None,
    make_plan: Any = HostPlan,
) -> Resolved:
    """The plan of a job whose schedule has this outline.

    Parameters
    ----------
    nodes
        Of workers and servers; by default those of the workers.
    tables
        Memory of its schedules; by default that of the collective's own.
    make_plan
        Takes the fields of a `HostPlan`.

    Raises
    ------
    ScenarioError
        More workers than the codec supports, a window smaller than `ack_every`, a timeout that is too short.
    """
    location, network, frame = job.location, job.site.network, frame_of(collective.frame)
    workers = len(job.hosts)
    check_workers(location, job.codec, workers, "wrap")
    routed = Routed.by_seed(outline, network, nodes or job.nodes, location.scenario.seed, job.index)
    window_packets = collective.window_packets(routed)
    if window_packets < collective.ack_every:
        raise location.job_error(
            "collective.window",
            f"a window of {window_packets} packets is smaller than ack_every, {collective.ack_every}: "
            "it would be full before an acknowledgement is sent",
            f"use at least {collective.ack_every}",
        )
    if job.codec.may_be_absent:
        frame = with_members(frame, workers, per_packet=False)
    asked_ps = collective.timeout if isinstance(collective.timeout, int) else None
    window = Window(frame, window_packets, frame.ack_bytes)
    timeout_ps = timeout_of(routed, window, job.buckets_in_flight, asked_ps, location)
    plan = make_plan(
        kind=collective.kind,
        sender=Sender(
            frame,
            window_packets,
            timeout_ps,
            collective.ack_every,
            timeout_max_ps=timeout_ps << BACKOFF_MAX,
            waits_for_loss=asked_ps is None,
        ),
        held_bytes=_HELD_BYTES + collective.held_bytes(workers),
        tables_bytes=_tables_bytes(collective, job) if tables is None else tables,
        settled={"timeout": TIME.format(timeout_ps), "window": window_packets, **collective.settled(workers)},
        collective=collective,
    )
    ways = [way.outbound for way in routed.paths.values()]
    warnings: tuple[str, ...] = ()
    if not network.policy.is_for_hosts_alone:
        warnings = (*crowding_warnings(network, ways), *port_warnings(network, ways))
    return Resolved(plan, job.codec.carried_by(carrier_of(routed, frame, job.device)), warnings=warnings)


def _tables_bytes(collective: HostCollective, job: JobContext) -> int:
    """Memory of the schedule for the elements of a job; every cell is carried as often as without chunks."""
    workers, by_codec = len(job.hosts), Merge.HOST in job.codec.merges
    if workers == 1:
        return 0
    whole = collective.outline(workers, by_codec)
    cells = collective.schedule(workers, 0 if by_codec else job.elements, by_codec).cells
    return tables_bytes(whole.transfers * cells // whole.cells, cells, workers)


_RENAMED = {
    "HostSection": "HostCollective",
    "ChunkedSection": "ChunkedCollective",
    "ClosedForm": "HostCollective, whose schedule says what it comes to",
    "ChunkedPlan": "HostPlan",
    "Transfers": "netfold.sim.collectives.transfers.Transfers",
}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        raise ImportError(f"{__name__}.{name} is gone; use {_RENAMED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
