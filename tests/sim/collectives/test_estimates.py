"""The estimated time of an all-reduce, against closed forms by hand, and below the time of runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.estimate import Estimate, longest_ways_ps
from netfold.sim.collectives.estimates import estimates
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.collectives.spec import CollectiveSection, CollectiveSpec
from netfold.sim.collectives.tree.schedule import binary_tree
from netfold.sim.errors import NetfoldError
from netfold.sim.scenario.models import AnyCollectiveSection
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import Network, compile_network
from tests.examples import examples
from tests.reference.collectives.programs import Kind
from tests.sim.collectives.schedules.cases import exchanged, flat
from tests.sim.exchanges import FRAME, messages_of
from tests.sim.scenes import small_star
from tests.topologies.graphs import GBPS

M = 10**8  # bytes of a gradient
LINK = LinkSpec(rate_bps=100 * GBPS, delay_ps=1_000_000, buffer_bytes=1 << 24)


def best(graph: nx.Graph, kind: str, size_bytes: int = M, workers: int | None = None) -> Estimate:
    network = compile_network(graph)
    found = estimates(network, range(workers or int(network.is_host.sum())), size_bytes)[kind]
    assert isinstance(found, Estimate)
    return found


BIT_S = 8 / 100e9  # seconds of a byte at 100 Gb/s
WAY_S = 2e-6  # from host to host on a star: two links of 1 us


@pytest.mark.parametrize(("kind", "trips"), [("ring", 14), ("all_gather", 7)])
def test_a_ring_waits_for_its_long_ways_once_a_round(kind: str, trips: int) -> None:
    """Of eight ways round the ring of two racks two are long; a word takes all but the short ones it spares.

    A run of 1024 words took 178 us round this ring, and cannot be faster than its best time.
    """
    own = replace(LINK, delay_ps=100_000)
    found = best(leaf_spine(2, 1, 4, own, replace(LINK, delay_ps=20_000_000)), kind, 4096)
    rounds, left = divmod(trips, 8)
    short_s, long_s = 0.2e-6, 40.2e-6

    longs = 2 * rounds + min(2, left // 4 + 1)
    assert found.latency_s == pytest.approx(longs * long_s + (trips - longs) * short_s, rel=1e-9)
    assert kind != "ring" or found.seconds < 178e-6


@pytest.mark.parametrize("workers", [3, 8])
def test_a_tree_waits_for_its_longest_way_up_and_down(workers: int) -> None:
    """Every worker has a way of its own length to the switch; ways are walked here parent by parent."""
    graph = star(workers, LINK)
    for number in range(workers):
        graph.edges[f"h{number}", "s0"]["delay_ps"] = 10**6 * (1 + 7 * number % 5)
    delay_s = [1e-6 * (1 + 7 * number % 5) for number in range(workers)]
    longest_s = 0.0
    for tree in (0, 1):
        parents = binary_tree(workers, tree).parents.tolist()
        latency_s = []
        for rank in range(workers):
            total_s, at = 0.0, rank
            while parents[at] >= 0:
                total_s, at = total_s + delay_s[at] + delay_s[parents[at]], parents[at]
            latency_s.append(total_s)
        longest_s = max(longest_s, 2 * max(latency_s))

    assert best(graph, "tree").latency_s == pytest.approx(longest_s, rel=1e-9)


@examples(60)
@given(st.data())
def test_the_longest_way_is_that_of_some_word(data: st.DataObject) -> None:
    """Where each sends to one other; walked here pair by pair."""
    count, trips = data.draw(st.integers(2, 7)), data.draw(st.integers(0, 20))
    senders = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    receivers = [data.draw(st.sampled_from([one for one in range(count) if one != own])) for own in senders]
    delays = [data.draw(st.integers(0, 9)) for _ in senders]
    pairs = list(zip(senders, receivers, strict=True))
    following, delay = dict(pairs), dict(zip(senders, delays, strict=True))

    def walked(at: int) -> int:
        total = 0
        for _ in range(trips):
            total += delay.get(at, 0)
            at = following.get(at, at)
        return total

    assert longest_ways_ps(pairs, delays, trips) == max(map(walked, senders))


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

    assert found.busy_s == pytest.approx(8 * M / streams_at_bps, rel=1e-9)
    assert found.latency_s in (pytest.approx(4e-6), pytest.approx(6e-6), pytest.approx(2e-6))
    assert link in (None, found.link)


def test_no_switch_that_adds_up_is_a_reason_and_comes_last() -> None:
    found = estimates(compile_network(star(4, LINK)), range(4), M)

    assert [*found][-1] == "in_network"
    assert isinstance(found["in_network"], NetfoldError)
    assert found["in_network"].message == "no switch can run switchml; profiles found: plain"


def test_keys_that_must_be_given_have_a_row_for_each_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Needing(CollectiveSection):
        kind: Literal["needing"]
        share: int

    spec = CollectiveSpec(
        "needing",
        frozenset(),
        Needing,
        *(COLLECTIVES["ring"].resolve, COLLECTIVES["ring"].start),
        choices=lambda: {"half": {"share": 2}, "third": {"share": 3}},
        estimate=lambda section, network, nodes, words, seed: Estimate(1 / section.share, "a->b", 0.0, 0.0),
    )
    monkeypatch.setitem(COLLECTIVES, "needing", spec)
    found = estimates(compile_network(star(2, LINK)), range(2), M)

    seconds = {
        name: one.seconds for name, one in found.items() if isinstance(one, Estimate) and "needing" in name
    }
    assert seconds == {"needing, third": 1 / 3, "needing, half": 1 / 2}


@examples(8)
@given(st.integers(2, 12), st.integers(4, 10**8))
def test_the_fastest_comes_first(workers: int, size_bytes: int) -> None:
    network: Network = compile_network(leaf_spine(3, 2, 4, LINK, LINK, profile="tofino1"))
    found = estimates(network, range(workers), size_bytes)
    seconds = [one.seconds for one in found.values() if isinstance(one, Estimate)]

    assert all(a <= b for a, b in pairwise(seconds))
    assert all(one > 0 for one in seconds)
    assert {kind for kind, spec in COLLECTIVES.items() if spec.estimate} == {
        name.partition(",")[0] for name in found
    }


WORDS = 10**8 // 4


def of_section(network: Network, workers: int, **keys: Any) -> Estimate:
    section = TypeAdapter(AnyCollectiveSection).validate_python(keys)
    found = COLLECTIVES[section.kind].estimate
    assert found is not None
    return found(section, network, range(workers), WORDS, 0)


@pytest.mark.parametrize(
    ("keys", "shares", "ways"),
    [
        ({"kind": "ring"}, 2 * 7 / 8, 14),
        ({"kind": "ring", "channels": 2}, 2 * 7 / 8, 14),
        ({"kind": "halving_doubling"}, 2 * 7 / 8, 6),
        ({"kind": "tree"}, 2, 6),
        ({"kind": "tree", "trees": 1}, 3, 6),
        ({"kind": "torus_2d", "rows": 2}, 2 * 7 / 8, 8),
        ({"kind": "all_gather"}, 7, 7),
        ({"kind": "parameter_server", "servers": 8}, 2 * 7 / 8, 2),
        ({"kind": "parameter_server"}, 7, 2),  # beside a worker, whose words cross no link
        ({"kind": "in_network", "program": "switchml"}, 1, 1),  # up to the switch, and down
        (
            {"kind": "hierarchical", "group_size": 4, "inner": {"kind": "ring"}, "outer": {"kind": "ring"}},
            2 * 7 / 8,
            8,
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_on_a_star_it_is_the_closed_form(keys: dict[str, Any], shares: float, ways: int) -> None:
    """The ideal ring of 100 MB over 8 workers takes 14.028 ms: 14 segment times and 14 times 2 us."""
    found = of_section(compile_network(star(8, LINK, "ideal")), 8, **keys)

    assert found.busy_s == pytest.approx(shares * 32 * WORDS / LINK.rate_bps)
    assert found.latency_s == pytest.approx(ways * WAY_S)
    assert found.seconds == pytest.approx(found.busy_s + found.latency_s)
    if keys == {"kind": "ring"}:
        assert found.seconds == pytest.approx(14.028e-3)


def test_a_thin_uplink_bounds_what_crosses_it() -> None:
    """Two racks of four with one uplink at a tenth of a host's rate."""
    thin = LinkSpec(LINK.rate_bps // 10, LINK.delay_ps, LINK.buffer_bytes)
    network = compile_network(leaf_spine(2, 1, 4, LINK, thin, "ideal"))
    whole = 32 * WORDS / (LINK.rate_bps // 10)
    ring = {"kind": "ring"}
    for keys, share in (
        (ring, 2 * 7 / 8),
        ({"kind": "hierarchical", "inner": ring, "outer": ring}, 1.0),  # 2 (1 − 1 / 2) · M / 4, four times
        ({"kind": "hierarchical", "inner": {"kind": "tree"}, "outer": ring}, 1.0),
        ({"kind": "in_network", "program": "switchml"}, 1.0),
    ):
        found = of_section(network, 8, **keys)
        assert "leaf" in found.link
        assert "spine" in found.link
        assert found.busy_s == pytest.approx(share * whole)


@pytest.mark.parametrize("kind", ["ring", "halving_doubling", "tree"])
def test_no_run_is_faster(kind: str) -> None:
    case = flat(Kind(kind), 8, 8 * 50 * FRAME.elements)
    section = TypeAdapter(AnyCollectiveSection).validate_python({"kind": kind})
    found = COLLECTIVES[kind].estimate
    assert found is not None
    bound = found(section, small_star(8), range(8), case.size, 0)

    end_ps = exchanged(case, small_star(8), messages_of(Merge.ADD, 8, case.size)).end_ps
    headers = FRAME.overhead_bytes / (4 * FRAME.elements)
    assert bound.seconds * 1e12 < end_ps < 2 * (1 + headers) * bound.seconds * 1e12 + 1e8


def test_one_worker_needs_no_time() -> None:
    for kind in ("ring", "halving_doubling", "tree"):
        assert of_section(small_star(2), 1, kind=kind).seconds == 0
