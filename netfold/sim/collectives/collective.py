"""A collective: its keys, how they are resolved, what a codec must fulfil, and what carries words in a run.

A collective is one file with a `CollectiveSpec`, which is registered. All other code uses the
specification and knows no collective by name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import networkx as nx

from netfold.homomorphic.codec import Codec, Server, refusal_of
from netfold.homomorphic.merge import HostHop, Merge, Merged
from netfold.homomorphic.message import Message, Tensor
from netfold.kinds import family, registered
from netfold.sim.collectives.schedule_bound import BoundOf
from netfold.sim.collectives.schedule_costs import Estimate
from netfold.sim.engine.engine_data import Overflow
from netfold.sim.keys import Location, Section
from netfold.sim.plan.idle_network import PredictedTime
from netfold.sim.plan.plan import CollectivePlan, HostAllocation, Reference
from netfold.sim.workload.device_rooflines import Device
from netfold.switch.profiles import Profile
from netfold.switch.program import names_of
from netfold.topologies.network import Network

if TYPE_CHECKING:
    import simpy

    from netfold.sim.network.fabric import Fabric, HostTimes


Wait: TypeAlias = "Generator[simpy.Event, Any, tuple[Merged, ...]]"
MergeOrders = dict[tuple[int, int], Sequence[Sequence[HostHop]]]


class OperationId(NamedTuple):
    """One network operation of a job, the same at all workers."""

    step: int
    bucket: int
    operation: int
    """The operation's number in the round."""

    def __str__(self) -> str:
        return f"step {self.step}, bucket {self.bucket}, operation {self.operation}"

    @property
    def in_words(self) -> str:
        """The same as part of a sentence."""
        return f"operation {self.operation} of bucket {self.bucket} of step {self.step}"


def _no_server() -> Server | None:
    return None


@dataclass(frozen=True)
class RunContext:
    """The environment of a job's collective."""

    environment: simpy.Environment
    fabric: Fabric
    hosts: HostTimes
    nodes: tuple[int, ...]
    """The node of each worker."""
    device: Device
    seed: int
    job: int = 0  # its number in the variant
    make_server: Callable[[], Server | None] = _no_server  # the codec's part where messages meet
    tensors: Sequence[tuple[Tensor, ...]] = ()
    """The tensors of each bucket; empty: unknown."""
    ranks: tuple[int, ...] = ()
    """Ranks of its workers in the job, if they are only some of the job's."""


class Collective(Protocol):
    """Carries a job's network operations; all workers call it for the same operations."""

    @property
    def servers(self) -> Sequence[Server]:
        """The codec's server parts, for their `state` and `restore`; empty if it has none."""

    @property
    def is_serial(self) -> bool:
        """Whether it carries one operation of a worker at a time, in the same order at all workers."""

    @property
    def takes_floats(self) -> bool:
        """Whether it adds a message's floats if the sums of its words overflow."""

    @property
    def overflow(self) -> Overflow:
        """Its policy for integer sums that leave int32."""

    def pipelines(self, message: Message) -> bool:
        """Whether it agrees on a scaled message's exponents while it sends the words."""

    def exchange(self, worker: int, messages: tuple[Message, ...], operation_id: OperationId) -> Wait:
        """Send one worker's messages now, and return the merged messages to the waiting SimPy process."""

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        """The hops at which HOST messages of a finished round merged, by operation and message.

        It is asked once per round, and forgets them then.
        """

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of its switch program, one mapping per switch, root first; empty without a program."""

    def leaks(self) -> list[str]:
        """Slots and entries of switches that still hold words at the end of a run."""

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """Where a word of message `part` of an operation of the latest step was merged: slot or segment."""

    def share(self) -> float:
        """Progress of the operations in flight, from 0 to 1."""

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers."""


class CollectiveSection(Section):
    """The keys of a collective; the first is `kind`, a literal."""

    recorded_always: ClassVar[tuple[str, ...]] = ()
    """Keys that run folders record even if they have their default value."""

    kind: str

    @classmethod
    def members(cls) -> tuple[type[CollectiveSection], ...]:
        """The sections of all collectives."""
        return tuple(spec.section for spec in collectives().values())


@dataclass
class Site:
    """State that the jobs of a variant share; they are resolved one after the other."""

    graph: nx.Graph
    network: Network  # a collective that needs more links replaces it
    profiles: dict[str, Profile]
    """Profiles of switches, by their name."""
    profile_key: str  # the scenario key that names them
    occupied: HostAllocation
    sharing: int = 1
    """How many jobs divide what a switch holds, where jobs take what they need."""
    shared_state: dict[str, Any] = field(default_factory=dict)
    """What a collective keeps of earlier jobs, by its kind: such as `Switches`, with its methods."""

    def release(self, location: Location) -> None:
        """Free what the collective of a job has reserved; its hosts are in `occupied`."""
        for state in self.shared_state.values():
            state.release(location)

    def add_links(self) -> None:
        """Add the links that a job like the earlier ones may need on switches where none of them is."""
        for state in self.shared_state.values():
            state.network = self.network
            state.add_loopbacks()
            self.network = state.network


@dataclass(frozen=True)
class JobContext:
    """The job that a collective is resolved for, without the collective's keys."""

    site: Site
    location: Location
    index: int
    """The job's number in its variant."""
    hosts: tuple[str, ...]
    """Hosts of the workers, in rank order."""
    codec: Codec
    device: Device
    elements: int
    """Elements that one operation sums."""
    buckets_in_flight: int = 1

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node of each worker."""
        numbers = {name: node for node, name in enumerate(self.site.network.nodes)}
        return tuple(map(numbers.__getitem__, self.hosts))


class Resolved(NamedTuple):
    """A resolved collective, and the codec adapted to the network."""

    plan: CollectivePlan
    codec: Codec
    references: tuple[Reference, ...] = ()  # wire bounds
    warnings: tuple[str, ...] = ()


Keys = Mapping[str, Any]


def _no_choice() -> Mapping[str, Keys]:
    # No key decides which codecs a collective carries.
    return {"": {}}


@family("collectives", "netfold.sim.collectives.registry")
@dataclass(frozen=True)
class CollectiveSpec:
    """One collective, as all other code sees it."""

    kind: str
    """The kind that its section and its plan have."""
    merges: frozenset[Merge]
    """The merges that it carries."""
    section: type[CollectiveSection]
    resolve: Callable[[Any, JobContext], Resolved]
    """Makes the plan of a job from its section."""
    start: Callable[[Any, RunContext], Collective]
    """Makes what carries a job's words from its plan."""
    rebuilds_trees: bool = False
    """Whether its aggregation trees may be replaced while it runs."""
    works_anywhere: bool = True
    """Whether all its merges work on every network."""
    carries_absence: bool = False
    """Whether it counts workers that contribute nothing to a message that merges."""
    is_between_hosts: bool = False
    """Whether its section is a `HostCollective`, of whose schedules others can be composed."""
    as_part: Callable[[Any, JobContext], Any] | None = None
    """From its section to that of a part of another, which it runs in switches; None: it cannot."""
    estimate: Callable[[Any, Network, Sequence[int], int, int], Estimate] | None = None
    """Its closed form: of its section, on the nodes of workers, for words, with a seed."""
    bound: Callable[[Any, Network, Sequence[int], int, int], BoundOf] | None = None
    """What its messages take at least: of its plan, on the nodes of workers, with a seed, of a job."""
    predict: Callable[[Any, Network, Sequence[int], int, int], PredictedTime] | None = None
    """What its messages take on the idle network, in closed form; arguments as those of `bound`."""
    choices: Callable[[], Mapping[str, Keys]] = _no_choice
    """Keys that decide which codecs it carries, by a name; each is a column of the matrix."""
    listed: int = 100
    """Its place in lists, which begin with what is simplest; of equal ones, by name."""


def collectives() -> dict[str, CollectiveSpec]:
    """All collectives by kind."""
    return registered(CollectiveSpec)


def check_absence(location: Location, codec: Codec, carrier: str, carries_absence: bool) -> None:
    """Refuse a codec whose workers may be absent from merges where `carrier` cannot count them.

    Raises
    ------
    ScenarioError
        It cannot.
    """
    if not codec.may_be_absent or carries_absence:
        return
    able = names_of(lambda program: program.carries_absence)
    kinds = [kind for kind, spec in collectives().items() if spec.carries_absence]
    raise location.job_error(
        "codec",
        f"workers of codec {codec.kind!r} may have nothing to contribute to a merge, and {carrier} cannot "
        "carry the header that says so",
        f"use one of the collectives {', '.join(kinds)}; of the switch programs, {', '.join(able)} can",
    )


def check_workers(
    location: Location, codec: Codec, workers: int, overflow: str, *, may_wrap: bool = True
) -> None:
    """Refuse more workers than a codec's sums have room for, options and adders that it cannot use.

    `overflow` is the policy for sums; `may_wrap` says whether the scenario could choose that they wrap.

    Raises
    ------
    ScenarioError
        There are too many, an option is too large, the adders do not wrap, or no sums have lanes of the
        codec's width.
    """
    if (refusal := refusal_of(codec, workers, overflow)) is None:
        return
    key, hint = "codec", f"use {refusal.remedy}"
    if refusal.option:
        key, hint = f"codec.{refusal.option}", f"use codec.{refusal.remedy}"
    if may_wrap and refusal_of(codec, workers) is None:
        hint += ", or collective.overflow: wrap"
    raise location.job_error(key, refusal.reason, hint)
