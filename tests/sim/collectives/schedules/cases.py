"""Collectives of random kinds and sizes: their schedule, the collective that runs it, and its oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from netfold.homomorphic.message import Message
from netfold.sim.collectives.between_hosts import HostPlan
from netfold.sim.collectives.building.composition import Cut, equal_cells
from netfold.sim.collectives.collective import Collective
from netfold.sim.collectives.halving_doubling.run import HalvingDoubling
from netfold.sim.collectives.halving_doubling.schedule import halving_schedule
from netfold.sim.collectives.hierarchical.plan import HierarchicalPlan
from netfold.sim.collectives.hierarchical.run import Hierarchical
from netfold.sim.collectives.hierarchical.schedule import composed
from netfold.sim.collectives.ring.plan import RingPlan
from netfold.sim.collectives.ring.run import Ring
from netfold.sim.collectives.ring.schedule import ring_schedule
from netfold.sim.collectives.tree.plan import TreePlan
from netfold.sim.collectives.tree.run import Tree
from netfold.sim.collectives.tree.schedule import tree_schedule
from netfold.sim.engine.interface import BACKOFF_MAX, Frame
from netfold.sim.engine.schedule import Schedule
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.routing import Network, compile_network, path
from tests.reference.collectives import programs
from tests.reference.collectives.hosts import Hosts, Wire
from tests.reference.collectives.links import Links
from tests.sim.exchanges import FRAME, _context
from tests.sim.scenes import Exchanged, Started

HALVING = programs.Kind("halving_doubling")
RING_, TREE_ = programs.Kind("ring"), programs.Kind("tree")
CHUNK_WORDS = 3 * FRAME.elements


@dataclass(frozen=True)
class Case:
    """A collective: `start` takes a context, `program` starts its oracle; messages have `size` words."""

    name: str
    workers: int
    size: int
    cut: Cut
    run: Callable[..., Collective]
    plan: Callable[..., HostPlan]
    program: Callable[..., None]

    def started(self, device: Any = None, **changes: int) -> Started:
        options: dict[str, Any] = {"window": 512, "timeout_ps": 10**11, "ack_every": 16, **changes}
        seed = options.pop("seed", 1)
        options |= {"timeout_max_ps": options["timeout_ps"] << BACKOFF_MAX, "frame": FRAME}
        options |= {"held_bytes": 0, "settled": {}}
        plan = self.plan(kind=self.name, **options)
        return lambda env, fabric: self.run(plan, _context(env, fabric, self.workers, device, seed))


def whole(schedule: Schedule) -> Cut:
    return Cut(schedule, equal_cells(schedule.chunks))


def cut_of(kind: programs.Kind, workers: int) -> Cut:
    """The schedule of a share that is carried as a whole."""
    if kind.name == "ring":
        return whole(ring_schedule(workers, kind.channels, kind.pieces))
    if kind.name == "tree":
        return whole(tree_schedule(workers, kind.trees, kind.pieces))
    return whole(halving_schedule(workers))


def flat(kind: programs.Kind, workers: int, size: int) -> Case:
    """A collective of all workers; its chunks are such that there are as many pieces as `kind` says."""
    parts = kind.channels * workers if kind.name == "ring" else kind.trees
    words = max(1, -(-size // (parts * kind.pieces)))
    while -(-size // (parts * words)) < kind.pieces and words > 1:
        words -= 1
    pieces = max(1, -(-size // (parts * words))) if kind.pieces > 1 else 1
    kind = programs.Kind(kind.name, kind.trees, pieces, kind.channels)
    lanes = "own" if kind.name in ("ring", "tree") else "none"
    makers: dict[str, tuple[Any, Any]] = {
        "ring": (
            Ring,
            lambda **o: RingPlan(channels=kind.channels, chunk_words=words if pieces > 1 else 0, **o),
        ),
        "tree": (Tree, lambda **o: TreePlan(trees=kind.trees, chunk_words=max(words, 1), **o)),
        "halving_doubling": (HalvingDoubling, HostPlan),
    }
    run, plan = makers[kind.name]

    def program(hosts: Hosts, **options: Any) -> None:
        programs.flat(hosts, workers, kind, lanes=lanes, **options)

    return Case(kind.name, workers, size, cut_of(kind, workers), run, plan, program)


def hierarchy(
    groups: list[list[int]], inner: programs.Kind, outer: programs.Kind, size: int, blocks: int = 1
) -> Case:
    """A hierarchy whose messages are so many blocks."""
    words = max(1, -(-size // blocks))
    blocks = max(1, -(-size // words))
    across = cut_of(outer, len(groups))
    cut = composed(groups, lambda members: cut_of(inner, members), across, blocks)

    def plan(**options: Any) -> HierarchicalPlan:
        return HierarchicalPlan(
            groups=tuple(map(tuple, groups)),
            inner=lambda members: cut_of(inner, members),
            outer=across,
            chunk_words=words,
            **options,
        )

    def program(hosts: Hosts, **options: Any) -> None:
        programs.hierarchy(hosts, groups, inner, outer, blocks, **options)

    return Case("hierarchical", sum(map(len, groups)), size, cut, Hierarchical, plan, program)


@st.composite
def kinds(draw: st.DrawFn, most: int = 1) -> programs.Kind:
    """A collective; a ring or tree of up to `most` pieces, a ring with up to three channels."""
    name = draw(st.sampled_from(["ring", "halving_doubling", "tree"]))
    pieces = draw(st.integers(1, most))
    if name == "ring":
        return programs.Kind(name, pieces=pieces, channels=draw(st.integers(1, 3)) if most > 1 else 1)
    return programs.Kind(name, trees=draw(st.integers(1, 2)), pieces=pieces if name == "tree" else 1)


@st.composite
def groupings(draw: st.DrawFn, most: int) -> list[list[int]]:
    """Workers in any order, in groups of any sizes."""
    order = draw(st.permutations(range(draw(st.integers(1, most)))))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(order) - 1)), max_size=len(order) - 1)))
    edges = [0, *(cut for cut in cuts if cut < len(order)), len(order)]
    return [list(order[first:end]) for first, end in pairwise(edges)]


@st.composite
def cases(draw: st.DrawFn, most: int = 9, sizes: tuple[int, ...] = (0, 1, 7, 200, 1500)) -> Case:
    """A collective of up to `most` workers."""
    size = draw(st.sampled_from(sizes))
    if draw(st.booleans()):
        return flat(draw(kinds(3)), draw(st.integers(1, most)), size)
    groups = draw(groupings(most))
    return hierarchy(groups, draw(kinds()), draw(kinds()), size, draw(st.integers(1, 3)))


def wire_of(frame: Frame, window: int, ack_every: int) -> Wire:
    return Wire(
        frame.elements,
        frame.overhead_bytes,
        frame.first_bytes,
        frame.last_bytes,
        frame.ack_bytes,
        window,
        ack_every,
    )


def on(network: Network, wire: Wire, size: int) -> Hosts:
    """The oracle's hosts on a network with one path between any two."""
    links = Links(list(zip(network.rate_bps.tolist(), network.delay_ps.tolist(), strict=True)))
    return Hosts(links, lambda a, b: tuple(path(network, a, b, 0)), wire, size)


def exchanged(case: Case, network: Network, messages: list[Message], **changes: Any) -> Exchanged:
    return Exchanged(network, case.started(**changes)).run([[(one,)] for one in messages])


def tree_network(data: st.DataObject, hosts: int) -> Network:
    """A random tree of switches with hosts at random ones, and links of random rates and delays."""
    graph, switches = new_graph("tree"), data.draw(st.integers(1, 4), label="switches")

    def link(one: str, other: str) -> None:
        rate = data.draw(st.sampled_from([1, 10, 25, 40, 100])) * 10**9
        add_link(graph, one, other, LinkSpec(rate, data.draw(st.integers(0, 3 * 10**6)), 1 << 28))

    for host in range(hosts):
        add_host(graph, f"h{host}")
    for switch in range(switches):
        add_switch(graph, f"s{switch}", tier=1, profile="plain")
        if switch:
            link(f"s{switch}", f"s{data.draw(st.integers(0, switch - 1))}")
    homes = [*range(switches), *(data.draw(st.integers(0, switches - 1)) for _ in range(hosts))]
    for host, switch in enumerate(homes[:hosts]):
        link(f"h{host}", f"s{switch}")
    return compile_network(graph)
