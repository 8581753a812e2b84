"""The best possible time of an all-reduce, against closed forms computed here by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.collectives import registry
from netfold.sim.collectives.best import Best, ImpossibleError
from netfold.sim.collectives.registry import COLLECTIVES, best_times
from netfold.sim.plan.frames import frame_of
from netfold.topologies.graph import LinkSpec
from netfold.topologies.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network
from netfold.topologies.star import star
from tests.examples import examples
from tests.topologies.graphs import GBPS

M = 10**8  # bytes of a gradient
LINK = LinkSpec(rate_bps=100 * GBPS, delay_ps=1_000_000, buffer_bytes=1 << 24)


def best(graph: nx.Graph, kind: str, size_bytes: int = M, workers: int | None = None) -> Best:
    network = compile_network(graph)
    found = best_times(network, range(workers or int(network.is_host.sum())), size_bytes)[kind]
    assert isinstance(found, Best)
    return found


def wire_s(frame_name: str, size_bytes: float, rate_bps: float) -> float:
    """Seconds of a message on a link: its words in packets, each with its overhead."""
    frame = frame_of(frame_name)
    per_packet = frame.overhead_bytes + 4 * frame.elements
    return size_bytes / 4 / frame.elements * per_packet * 8 / rate_bps


def way_s(frame_name: str, hops: int, first_or_last: bool = False) -> float:
    """Seconds of one packet over so many links of 100 Gb/s and 1 us."""
    frame = frame_of(frame_name)
    size = frame.overhead_bytes + 4 * frame.elements + first_or_last * (frame.first_bytes + frame.last_bytes)
    return hops * (-(-size * 8 * 10**12 // (100 * GBPS)) * 1e-12 + 1e-6)


@pytest.mark.parametrize("workers", [2, 3, 8, 64])
def test_ring_on_a_star(workers: int) -> None:
    found = best(star(workers, LINK), "ring")
    steps = 2 * (workers - 1)

    assert found.seconds == pytest.approx(
        steps * (wire_s("roce-1024", M / workers, 100e9) + way_s("roce-1024", 2)), rel=1e-9
    )
    assert found.link == "h0->s0"


@pytest.mark.parametrize(("workers", "rows", "columns"), [(16, 4, 4), (12, 3, 4), (64, 8, 8)])
def test_torus_on_a_star(workers: int, rows: int, columns: int) -> None:
    """In rows 2 (C − 1) steps of M / C, in columns 2 (R − 1) steps of M / (R C)."""
    found = best(star(workers, LINK), "torus_2d")
    steps = 2 * (columns - 1) + 2 * (rows - 1)
    moved = 2 * (columns - 1) / columns + 2 * (rows - 1) / (rows * columns)

    expected = wire_s("roce-1024", moved * M, 100e9) + steps * way_s("roce-1024", 2)
    assert found.seconds == pytest.approx(expected, rel=1e-9)
    assert found.choice == f"{rows} rows of {columns}"


def test_all_gather_on_a_star() -> None:
    found = best(star(8, LINK), "all_gather")

    assert found.seconds == pytest.approx(
        7 * (wire_s("roce-1024", M, 100e9) + way_s("roce-1024", 2)), rel=1e-9
    )


def test_parameter_servers_beside_workers_move_as_much_as_a_ring() -> None:
    """2 (n − 1) / n of a message on every link (Patarasuk and Yuan, JPDC 2009), and two ways."""
    found = best(star(8, LINK), "parameter_server")

    expected = wire_s("roce-1024", 2 * 7 / 8 * M, 100e9) + 2 * way_s("roce-1024", 2)
    assert found.seconds == pytest.approx(expected, rel=1e-9)
    assert found.choice == "8 servers beside the workers"


def test_very_many_workers_have_fewer_servers() -> None:
    assert best(star(512, LINK), "parameter_server").choice == "32 servers beside the workers"


def in_network_frame() -> str:
    """The default program's."""
    return registry.COLLECTIVES["in_network"].section(kind="in_network").frame  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("workers", [2, 8, 512])
def test_in_network_does_not_grow_with_workers(workers: int) -> None:
    found = best(star(workers, LINK, profile="tofino1"), "in_network")
    frame = in_network_frame()

    expected = wire_s(frame, M, 100e9) + 2 * way_s(frame, 1, first_or_last=True)
    assert found.seconds == pytest.approx(expected, rel=1e-9)
    assert (found.link, found.choice) == ("h0->s0", "a tree below s0")


def racks(leaf: str, spine: str, uplink_bps: int = 100 * GBPS) -> nx.Graph:
    """Two racks of four hosts below one spine."""
    graph = leaf_spine(2, 1, 4, LINK, replace(LINK, rate_bps=uplink_bps), profile=leaf)
    graph.nodes["spine0"]["profile"] = spine
    return graph


@pytest.mark.parametrize(
    ("graph", "streams_at_bps", "link"),
    [
        (racks("tofino1", "tofino1"), 100e9, "h0->leaf0"),
        (racks("plain", "tofino1"), 100e9 / 4, "leaf0->spine0"),
        (racks("tofino1", "tofino1", 10 * GBPS), 10e9, None),
        (racks("plain", "tofino1", 10 * GBPS), 10e9 / 4, "leaf0->spine0"),
        (racks("tofino1", "plain"), 100e9, "h0->leaf0"),
    ],
)
def test_switches_that_cannot_add_up_pass_every_stream_on(
    graph: nx.Graph, streams_at_bps: float, link: str | None
) -> None:
    found = best(graph, "in_network")
    alone = wire_s(in_network_frame(), M, streams_at_bps)

    assert alone < found.seconds < alone + 30e-6
    assert link in (None, found.link)


def test_a_slow_host_limits_everything() -> None:
    graph = star(8, LINK, profile="tofino1")
    graph.edges["h5", "s0"]["rate_bps"] = 10 * GBPS
    network = compile_network(graph)

    for kind, found in best_times(network, range(8), M).items():
        assert isinstance(found, Best)
        assert found.link in ("h5->s0", "s0->h5"), kind


def test_no_switch_that_adds_up_is_a_reason_and_comes_last() -> None:
    found = best_times(compile_network(star(4, LINK)), range(4), M)

    assert [*found][-1] == "in_network"
    assert isinstance(found["in_network"], ImpossibleError)
    assert found["in_network"].message == "no switch can add up; profiles found: plain"


@examples(30)
@given(st.integers(2, 12), st.integers(4, 10**8))
def test_the_fastest_comes_first(workers: int, size_bytes: int) -> None:
    network: Network = compile_network(leaf_spine(3, 2, 4, LINK, LINK, profile="tofino1"))
    found = best_times(network, range(workers), size_bytes)
    seconds = [one.seconds for one in found.values() if isinstance(one, Best)]

    assert all(a <= b for a, b in pairwise(seconds))
    assert all(one > 0 for one in seconds)
    assert {kind for kind, spec in COLLECTIVES.items() if spec.best} == found.keys()
