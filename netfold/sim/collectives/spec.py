"""The specification of a collective: its keys, how they are resolved, and what carries words in a run.

A collective is one file or folder with a `CollectiveSpec`, which `registry.py` lists. All other code uses the
specification and knows no collective by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import networkx as nx

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.message import Merge
from netfold.sim.keys.location import Location
from netfold.sim.keys.section import Section
from netfold.sim.plan.plan import CollectivePlan, HostAllocation, Reference
from netfold.sim.workload.device_model import Device
from netfold.switch.profiles import Profile
from netfold.topologies.network import Network

if TYPE_CHECKING:
    from netfold.sim.collectives.building.composition import Composable
    from netfold.sim.collectives.collective import Collective, RunContext
    from netfold.sim.collectives.estimate import Estimate


class CollectiveSection(Section):
    """The keys of a collective; the first is `kind`, a literal."""

    recorded_always: ClassVar[tuple[str, ...]] = ()
    """Keys that run folders record even if they have their default value."""

    kind: str


class SharedState(Protocol):
    """What a collective keeps of the jobs of a variant."""

    network: Network

    def release(self, location: Location) -> None:
        """Free what a job has reserved."""

    def add_loopbacks(self) -> None:
        """Add loopback links to `network` wherever jobs like the earlier ones may need them."""


@dataclass
class Site:
    """State that the jobs of a variant share; they are resolved one after the other."""

    graph: nx.Graph
    network: Network  # a collective that needs more links replaces it
    profiles: dict[str, Profile]  # of switches, by their name
    profile_key: str  # the scenario key that names them
    occupied: HostAllocation
    sharing: int = 1  # by how many jobs what a switch holds is divided, where jobs take what they need
    shared_state: dict[str, SharedState] = field(
        default_factory=dict
    )  # what a collective keeps of earlier jobs, by its kind

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
    index: int  # of the job in its variant
    hosts: tuple[str, ...]  # of the workers, in rank order
    codec: Codec
    device: Device
    elements: int  # that one operation sums
    buckets_in_flight: int = 1

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node of each worker."""
        return tuple(self.site.network.nodes.index(name) for name in self.hosts)


class Resolved(NamedTuple):
    """A resolved collective, and the codec adapted to the network."""

    plan: CollectivePlan
    codec: Codec
    references: tuple[Reference, ...] = ()  # wire bounds
    warnings: tuple[str, ...] = ()


Keys = Mapping[str, Any]


def _no_choice() -> Mapping[str, Keys]:
    """Default: no key decides which codecs a collective carries."""
    return {"": {}}


@dataclass(frozen=True)
class CollectiveSpec:
    """One collective. `start` imports what a run needs, so that resolving a scenario imports no engine."""

    kind: str  # of its section and of its plan
    merges: frozenset[Merge]  # that it carries
    section: type[CollectiveSection]
    resolve: Callable[[Any, JobContext], Resolved]  # of its section
    start: Callable[[Any, RunContext], Collective]  # of its plan
    works_anywhere: bool = True  # whether all its merges work on every network
    carries_absence: bool = False  # it counts workers that contribute nothing to a message that merges
    composable: Composable | None = None  # what others need to be composed of it; None: they cannot be
    as_part: Callable[[Any, JobContext], Any] | None = (
        None  # of its section: that of a part of another, which it runs in switches; None: it cannot
    )
    estimate: Callable[[Any, Network, Sequence[int], int, int], Estimate] | None = (
        None  # see `estimate.py`; of its section, on the nodes of workers, for words, with a seed
    )
    choices: Callable[[], Mapping[str, Keys]] = (
        _no_choice  # keys that decide which codecs it carries, by a name: each is a column of the matrix
    )
