"""Times that are computed before a run: estimates that `auto` compares, timeouts, windows."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from netfold.errors import NetfoldError, ScenarioError
from netfold.homomorphic.codec import MessageSize
from netfold.homomorphic.merge import Merge
from netfold.sim.collectives.collective import CollectiveSection, CollectiveSpec, collectives
from netfold.sim.collectives.in_network.job_plan import WindowCarrier
from netfold.sim.collectives.kinds.all_gather import AllGather
from netfold.sim.collectives.kinds.parameter_server import ParameterServer
from netfold.sim.collectives.kinds.ring import Ring
from netfold.sim.collectives.kinds.tree import binary_tree
from netfold.sim.collectives.registry import estimates
from netfold.sim.collectives.schedule_costs import (
    Estimate,
    HostCarrier,
    Routed,
    carrier_of,
    estimate_of,
    pace_of,
)
from netfold.sim.collectives.transfers import Step, Transfers, outline_of
from netfold.sim.engine.engine_data import Frame
from netfold.sim.plan.plan import frames
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.variant_keys import AnyCollectiveSection
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.workload.devices import FixedDevice, NoDevice
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.network import Network, compile_network
from tests.examples import examples
from tests.registry import known
from tests.sim.exchanges import FRAME, gathering, messages_of, ring, serving
from tests.sim.scenes import (
    BYTE_PS,
    LINK,
    Exchanged,
    Started,
    entry_of,
    job_of,
    job_plan,
    measure,
    only,
    plan,
    simulate,
    simulated,
    small_star,
)
from tests.topologies.graphs import GBPS

M = 10**8  # bytes of a gradient


def best(graph: nx.Graph, kind: str, size_bytes: int = M, workers: int | None = None) -> Estimate:
    network = compile_network(graph)
    found = estimates(network, range(workers or int(network.is_host.sum())), size_bytes)[kind]
    assert isinstance(found, Estimate)
    return found


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


@examples(40)
@given(st.data())
def test_the_longest_way_is_that_of_some_word(data: st.DataObject) -> None:
    """Steps between any workers, walked here transfer by transfer; each pair has a delay of its own."""
    workers, channels = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 2))
    graph = star(workers, LINK)
    for number in range(workers):
        graph.edges[f"h{number}", "s0"]["delay_ps"] = data.draw(st.integers(0, 9))
    pair = st.tuples(st.integers(0, workers - 1), st.integers(1, workers - 1))
    levels = data.draw(st.lists(st.lists(pair, min_size=1, unique=True, max_size=4), min_size=1, max_size=6))
    steps = [
        Step(
            np.array([source for source, _ in level]),
            np.array([(source + ahead) % workers for source, ahead in level]),
            0,
            channel=number % channels,
        )
        for number, level in enumerate(levels)
    ]
    latest = {(worker, channel): 0 for worker in range(workers) for channel in range(channels)}
    delay = [graph.edges[f"h{number}", "s0"]["delay_ps"] for number in range(workers)]
    for number, level in enumerate(levels):
        channel, before = number % channels, dict(latest)
        for source, ahead in level:
            target = (source + ahead) % workers
            arrives = before[source, channel] + delay[source] + delay[target]
            latest[target, channel] = max(latest[target, channel], arrives)

    outline = outline_of(Transfers(workers, 1, steps))
    found = estimate_of(outline, compile_network(graph), range(workers), 1)
    assert found.latency_s * 1e12 == pytest.approx(max(latest.values()))


def racks(leaf: str, spine: str, uplink_bps: int = 100 * GBPS, spines: int = 1) -> nx.Graph:
    """Two racks of four hosts below some spines."""
    graph = leaf_spine(2, spines, 4, LINK, replace(LINK, rate_bps=uplink_bps), profile=leaf)
    for number in range(spines):
        graph.nodes[f"spine{number}"]["profile"] = spine
    return graph


@pytest.mark.parametrize(
    ("graph", "streams_at_bps", "link"),
    [
        (racks("tofino1", "tofino1"), 100e9, "h0->leaf0"),
        (racks("plain", "tofino1"), 100e9 / 4, "leaf0->spine0"),
        (racks("tofino1", "tofino1", 10 * GBPS), 10e9, None),
        (racks("plain", "tofino1", 10 * GBPS), 10e9 / 4, "leaf0->spine0"),
        (racks("plain", "tofino1", 10 * GBPS, spines=2), 10e9 / 4, "leaf0->spine0"),  # the first of equals
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
        *(collectives()["ring"].resolve, collectives()["ring"].start),
        choices=lambda: {"half": {"share": 2}, "third": {"share": 3}},
        estimate=lambda section, network, nodes, words, seed: Estimate(1 / section.share, "a->b", 0.0, 0.0),
    )
    known(monkeypatch, spec)
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
    assert {kind for kind, spec in collectives().items() if spec.estimate} == {
        name.partition(",")[0] for name in found
    }


WORDS = 10**8 // 4


def of_section(network: Network, workers: int, words: int = WORDS, **keys: Any) -> Estimate:
    section = TypeAdapter(AnyCollectiveSection).validate_python(keys)
    estimate = collectives()[section.kind].estimate
    assert estimate is not None
    return estimate(section, network, range(workers), words, 0)


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
        ({"kind": "parameter_server", "placement": ("h3",)}, 7, 2),  # likewise, wherever the key places it
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
    # Of a tree of 8, three transfers up and three down follow one another, of which all but the root's have a
    # sibling. So chunks of 64 KiB take 10 times theirs, less what the busiest link is busy with them.
    first_words = {"tree": 2**14 * (10 - (3 if keys.get("trees") == 1 else 4))}.get(keys["kind"], 0)
    assert found.seconds == pytest.approx(found.busy_s + found.latency_s + 32 * first_words / LINK.rate_bps)
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


@pytest.mark.parametrize("trees", [1, 2, 4])
def test_trees_in_switches_share_thin_uplinks(trees: int) -> None:
    """Four spines behind uplinks of a quarter of a host's rate: each tree has a spine of its own."""
    thin = LinkSpec(LINK.rate_bps // 4, LINK.delay_ps, LINK.buffer_bytes)
    network = compile_network(leaf_spine(4, 4, 4, LINK, thin, "ideal"))
    found = of_section(network, 16, kind="in_network", program="tree", trees=trees)
    assert found.busy_s == pytest.approx(4 / trees * 32 * WORDS / LINK.rate_bps)


@pytest.mark.parametrize("trees", [2, 3])
def test_what_goes_up_one_tree_meets_what_comes_down_another(trees: int) -> None:
    """Three trees put two streams on a link between groups, one of results; a run has headers besides."""
    topology = {
        "kind": "dragonfly",
        "groups": 4,
        "routers_per_group": 2,
        "hosts_per_router": 2,
        "global_links": 2,
    }
    settings = {
        "name": "trees",
        "seed": 0,
        "topology": {**topology, "switch": "ideal", "global_rate": "10Gbps"},
        "workers": 16,
        "workload": {"kind": "synthetic", "elements": 10**6, "payload": "none"},
        "codec": {"kind": "fixed_point"},
        "collective": {"kind": "in_network", "program": "tree", "trees": trees},
    }
    (variant,) = resolve(load(ScenarioText(json.dumps(settings), "trees.yaml"))).variants
    found = of_section(variant.network, 16, 10**6, **settings["collective"])
    assert 1 <= entry_of(simulated(settings))["metrics"]["aggregation_time_us"] / (1e6 * found.seconds) < 1.1


def test_one_worker_needs_no_time() -> None:
    for kind in ("ring", "halving_doubling", "tree"):
        assert of_section(small_star(2), 1, kind=kind).seconds == 0


PACKET_PS = 100 * BYTE_PS
DELAY_PS = LINK.delay_ps
BYTE_A_NANOSECOND = 8 * 10**9


def time_ps(start: Started, workers: int, packets: int, hosts: int = 0, size: int | None = None) -> int:
    """When the last worker has the sums of dense words."""
    messages = messages_of(Merge.ADD, workers, packets * FRAME.elements if size is None else size)
    return Exchanged(small_star(max(hosts, workers)), start).run([[(one,)] for one in messages]).end_ps


@pytest.mark.parametrize(("workers", "servers"), [(8, 2), (4, 4), (2, 4), (8, 4)])
def test_servers_share_the_words(workers: int, servers: int) -> None:
    packets, chunk = 4000, 50
    start = serving(workers, servers, chunk_words=chunk * FRAME.elements, ack_every=chunk)
    found = time_ps(start, workers, packets, workers + servers)

    most = max(workers, servers) / servers * packets + workers * chunk / min(workers, servers)
    busy_ps = most * PACKET_PS + 2 * PACKET_PS + 4 * DELAY_PS
    assert busy_ps <= found <= 1.06 * busy_ps


def test_a_server_is_charged_for_merging_one_chunk_after_the_other() -> None:
    """The first chunk to arrive is stored; every other one is read with the sum and written."""
    workers, size = 3, FRAME.elements
    device = FixedDevice(forward_ps=0, backward_ps=0, memory_bps=BYTE_A_NANOSECOND)
    found = time_ps(serving(workers, 1, device=device), workers, 1, workers + 1)

    merge_ps = 3 * 4 * size * 1000
    second_ps = 3 * PACKET_PS + 2 * DELAY_PS  # the second of three packets is at the server
    down_ps = workers * PACKET_PS + PACKET_PS + 2 * DELAY_PS
    assert second_ps + 2 * merge_ps + down_ps == found


def test_every_worker_of_an_all_gather_is_charged_for_merging_all() -> None:
    workers, size = 4, FRAME.elements
    device = FixedDevice(forward_ps=0, backward_ps=0, memory_bps=BYTE_A_NANOSECOND)
    free, charged = (time_ps(gathering(workers, device=one), workers, 1) for one in (None, device))

    assert free + (workers - 1) * 3 * 4 * size * 1000 == charged


@pytest.mark.parametrize("packets", [1, 4000])
@pytest.mark.parametrize("name", ["all_gather", "one", "beside"])
def test_codecs_that_choose_by_time_are_told_about_what_it_takes(name: str, packets: int) -> None:
    workers, words = 4, packets * FRAME.elements
    collective, servers, start = {
        "all_gather": (AllGather(kind="all_gather"), [], gathering(workers, chunk_words=50 * FRAME.elements)),
        "one": (
            ParameterServer(kind="parameter_server"),
            [4],
            serving(workers, 1, chunk_words=50 * FRAME.elements),
        ),
        "beside": (
            ParameterServer(kind="parameter_server", servers=workers),
            [0, 1, 2, 3],
            serving(workers, workers, beside=True, chunk_words=50 * FRAME.elements),
        ),
    }[name]
    nodes = [*range(workers), *servers]
    routed = Routed(collective.outline(workers), small_star(5), nodes, lambda *flow: 0)
    carrier = carrier_of(routed, FRAME, NoDevice())

    found = time_ps(start, workers, packets, 5)
    assert carrier.time_ps([MessageSize(words)]) == pytest.approx(found, rel=0.08)


def test_words_of_a_worker_alone_take_the_least_time() -> None:
    routed = Routed.by_seed(Ring(kind="ring").outline(1), small_star(2), range(1), 1)
    assert carrier_of(routed, FRAME, NoDevice()).latency_ps == 1  # no way, and no division by zero


@pytest.mark.parametrize("frame", [FRAME, *frames().values()], ids=lambda frame: frame.name)
@pytest.mark.parametrize(("workers", "packets"), [(2, 1), (2, 3), (3, 4), (5, 1), (8, 2)])
def test_time_of_a_ring_on_an_idle_network(frame: Frame, workers: int, packets: int) -> None:
    """2(n − 1) times a segment through a switch; all but the first wait for an ACK on the same link."""
    messages = messages_of(Merge.ADD, workers, workers * packets * frame.elements)
    exchanged = Exchanged(small_star(workers), ring(workers, frame)).run([[(one,)] for one in messages])

    sizes = [
        frame.wire_bytes(frame.elements, first=number == 0, last=number == packets - 1)
        for number in range(packets)
    ]
    # Its packets follow each other on both links, the first one is waited for twice.
    segment_ps = (sum(sizes) + sizes[0]) * BYTE_PS + 2 * LINK.delay_ps
    steps = 2 * (workers - 1)
    assert steps * segment_ps + (steps - 1) * frame.ack_bytes * BYTE_PS == exchanged.end_ps


def test_the_ways_of_a_ring_are_those_of_packets_in_the_middle_of_a_message() -> None:
    """2 (n − 1) ways over two links; RoCE's first packet has 16 B more than these 1106, its last 4."""
    routed = Routed.by_seed(Ring(kind="ring").outline(8), small_star(8), range(8), 1)
    pace = pace_of(routed, frames()["roce-1024"])

    assert pace.latency_ps == 14 * 2 * (1106 * BYTE_PS + DELAY_PS)


NS, US = 10**3, 10**6
SHORT = WindowCarrier(
    unit_elements=100, latency_ps=5 * US, rate_bps=32 * GBPS, window_words=400, sends_exponents_ahead=True
)
LONG = replace(SHORT, window_words=8000)


def plain(*messages: int) -> list[MessageSize]:
    return [MessageSize(words) for words in messages]


def test_messages_to_a_switch_follow_each_other_in_whole_units() -> None:
    """A word is 1 ns."""
    assert LONG.time_ps(plain(50, 130)) == 5 * US + 300 * NS
    assert LONG.time_ps(plain(1000)) == 5 * US + 1000 * NS
    assert LONG.time_ps(plain(0)) == LONG.time_ps([]) == 0


def test_a_window_waits_for_its_first_answer_or_for_the_link() -> None:
    # Three windows: each of the first two waits 5.1 us for its first answer.
    assert SHORT.time_ps(plain(1000)) == 2 * 5100 * NS + 5 * US + 200 * NS
    assert SHORT.time_ps(plain(800)) == 5100 * NS + 5 * US + 400 * NS
    assert LONG.time_ps(plain(20_000)) == 2 * 8 * US + 5 * US + 4 * US


def test_exponents_go_a_window_ahead() -> None:
    """It takes a round trip, or its own time where that is longer."""
    assert SHORT.time_ps([MessageSize(400, 100)]) == 5100 * NS + 5 * US + 400 * NS
    assert LONG.time_ps([MessageSize(20_000, 100)]) == 8 * US + 2 * 8 * US + 5 * US + 4 * US


def test_exponents_have_an_operation_of_their_own_where_they_cannot_go_ahead() -> None:
    own, others = MessageSize(400, 100), MessageSize(400, 50)
    without = replace(SHORT, sends_exponents_ahead=False)
    staged_ps = SHORT.time_ps(plain(100)) + SHORT.time_ps(plain(400))

    assert without.time_ps([own]) == SHORT.time_ps([others]) == staged_ps
    assert SHORT.time_ps([own, *plain(90)]) == SHORT.time_ps(plain(100, 90)) + SHORT.time_ps(plain(400))


def test_each_message_on_a_ring_waits_for_the_one_before_it() -> None:
    ring = HostCarrier(latency_ps=5 * US, rate_bps=32 * GBPS)

    assert ring.time_ps(plain(50, 0, 130)) == 5 * US + 50 * NS + 5 * US + 130 * NS
    assert ring.time_ps([MessageSize(1000, 64)]) == 5 * US + 16 * NS + 5 * US + 1000 * NS


STAR = """\
name: star
seed: 1
topology: {kind: star, hosts: 9, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 8
workload: {kind: synthetic, elements: 400000}
codec: {kind: fixed_point, factor: 1e6}
collective: {kind: in_network}
"""
UDP = "collective.frame=udp-256"
UDP_NS, TRIP_NS = 332 * 0.08, 2 * (1000 + 332 * 0.08)  # a packet of 332 B at 100 Gbps; up and down a link
SHARP = ("collective={kind: in_network, program: tree}", "topology.switch=sharp")
LATE = "faults=[{kind: start_skew, worker: 1, delay: 3ms}]"
PAUSED = "faults=[{kind: worker_pause, worker: 1, at: 10us, for: 2ms}]"
SLOWER = "faults=[{kind: link_rate, links: ['h0->s0'], rate: 5Gbps, at: 10us, for: 300us}]"
PROGRAMS = (
    "collective={kind: in_network, frame: udp-256}",
    "collective={kind: in_network, frame: roce-1024}",
    "collective={kind: in_network, program: atp}",
    "collective={kind: in_network, program: timed, slot_timer: 1s}",
    "collective={kind: ring}",
    "collective={kind: parameter_server, servers: 1}",
)


@pytest.mark.parametrize(
    ("sets", "slots"),
    [
        # 2,053.12 ns up and down, 26.56 ns a packet: 77.3 packets, so 78, and one more.
        ((UDP,), 79),
        # Four packets of 1126 B: 2 · 1090.08 + 3 · 90.08 ns are 6.9 messages of 4 · 1106 B: 7, and one more.
        (("collective.frame=roce-1024",), 4 * 8),
        # A switch that holds fewer gives what it has.
        ((*SHARP, "topology.delay=10us"), 23),
        # A window of ATP is no larger than its entries.
        (("collective={kind: in_network, program: atp, entries: 50}", "topology.switch=tofino1"), 50),
    ],
)
def test_slots_are_what_a_round_trip_needs(tmp_path: Path, sets: tuple[str, ...], slots: int) -> None:
    collective = job_plan(only(tmp_path, *sets, text=STAR)).collective

    assert (collective.aggregations[0].slots_count, collective.settled["slots"]) == (slots, slots)
    assert collective.settled["switch"] == "s0"


def test_each_of_parallel_trees_gets_a_window_of_what_it_may_send(tmp_path: Path) -> None:
    """Two trees share a worker's link: each sends at half of its rate, and a packet may wait for another."""
    trees = job_plan(only(tmp_path, UDP, "collective.trees=2", text=STAR)).collective.aggregations

    assert [tree.slots_count for tree in trees] == [-(-round(TRIP_NS + UDP_NS) // round(2 * UDP_NS)) + 1] * 2


@pytest.mark.parametrize(("frame", "delay"), [("udp-256", "0us"), ("udp-256", "10us"), ("roce-1024", "1us")])
def test_with_auto_no_link_rests(tmp_path: Path, frame: str, delay: str) -> None:
    """The workers' links carry packet after packet: no window is faster, and half of it is slower."""
    sets = (f"collective.frame={frame}", f"topology.delay={delay}")
    auto, large = (
        measure(tmp_path, *sets, *more, text=STAR)["aggregation_time_us"]
        for more in ((), ("collective.slots=4096",))
    )
    half = job_of(only(tmp_path, *sets, text=STAR)).slots_count // 8 * 4

    assert auto == pytest.approx(large, rel=1e-3)
    if delay != "0us":
        slower = measure(tmp_path, *sets, f"collective.slots={half}", text=STAR)["aggregation_time_us"]
        assert slower > 1.15 * auto


@pytest.mark.parametrize(
    ("more", "words", "wire", "share"),
    [
        (("collective={kind: in_network, program: atp}", "topology.switch=tofino1"), 62, 332, 0.95),
        ((*SHARP, "topology.delay=300ns"), 512, 2130, 0.95),
    ],
    ids=["atp", "sharp"],
)
def test_programs_reach_the_rate_of_their_packets(
    tmp_path: Path, more: tuple[str, ...], words: int, wire: int, share: float
) -> None:
    """Of 100 Gbps, the words of each packet on the wire; with ATP's 100 slots it is less than half."""
    time_us = measure(tmp_path, *more, "workload.elements=1000000", text=STAR)["aggregation_time_us"]

    assert 1e6 / time_us > share * 100e3 * words / (8 * wire)


def test_jobs_divide_a_switch_that_is_too_small_for_all(tmp_path: Path) -> None:
    """23 operations: 11 for each of two jobs, 5 for each of three or four."""
    for count, slots in ((2, 11), (3, 5)):
        names = ", ".join(f"{{name: j{number}, workers: 2}}" for number in range(count))
        variant = only(tmp_path, *SHARP, "topology.delay=10us", f"jobs=[{names}]", text=STAR)
        assert [job.collective.sender.window for job in variant.jobs] == [slots] * count


def test_parts_of_a_hierarchy_divide_a_switch_that_is_too_small_for_all(tmp_path: Path) -> None:
    outer = "inner: {kind: ring}, outer: {kind: in_network, program: tree}"
    sets = (f"collective={{kind: hierarchical, group_size: 2, {outer}}}", "topology.switch=sharp")
    parts = job_plan(only(tmp_path, *sets, text=STAR)).collective.aggregations

    assert [part.slots_count for part in parts] == [11, 11]


def test_the_timeout_is_four_round_trips_of_a_full_window(tmp_path: Path) -> None:
    """2,053.12 ns and 78 packets that wait, four times, is less than 20 us; delays of 10 us are more."""
    short, long = (
        job_of(only(tmp_path, UDP, f"topology.delay={delay}", text=STAR)) for delay in ("1us", "10us")
    )

    assert short.sender.timeout_ps == 20_000_000
    trip_ps = 2 * (10_000_000 + 26_560)
    assert long.slots_count == -(-trip_ps // 26_560) + 1
    assert long.sender.timeout_ps == 4 * (trip_ps + (long.slots_count - 1) * 26_560)
    assert long.sender.first_timeout_ps == long.sender.timeout_ps
    assert long.sender.timeout_max_ps == 64 * long.sender.timeout_ps


def test_released_timeouts_are_those_of_the_clients(tmp_path: Path) -> None:
    released = "collective={kind: in_network, program: PROGRAM, timeout: released}"
    plans = {
        name: job_of(only(tmp_path, released.replace("PROGRAM", name), "topology.switch=tofino1", text=STAR))
        for name in ("switchml", "atp")
    }

    senders = {name: plan.sender for name, plan in plans.items()}
    assert (senders["switchml"].timeout_ps, senders["atp"].timeout_ps) == (10**10, 2 * 10**8)
    assert senders["atp"].first_timeout_ps == 5 * 10**10
    assert not any(sender.waits_for_loss for sender in senders.values())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("collective.timeout='-1us'", "or auto or released"),
        ("collective={kind: ring, timeout: released}", "cannot read 'released' as a time"),
    ],
)
def test_a_timeout_that_is_none_is_refused(tmp_path: Path, change: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        plan(tmp_path, change, text=STAR)


@pytest.mark.parametrize(
    ("collective", "fault"),
    list(zip(PROGRAMS, (LATE, PAUSED, SLOWER) * 2, strict=True)),
    ids=["udp", "roce", "atp", "timed", "ring", "server"],
)
def test_nothing_is_sent_again_without_loss(tmp_path: Path, collective: str, fault: str) -> None:
    """Whoever is late, and however slow a link becomes: more than a hundred timeouts."""
    switch = f"topology.switch={'trio' if 'timed' in collective else 'tofino1'}"
    found = measure(tmp_path, collective, fault, switch, "workload.elements=100000", text=STAR)

    assert found["packets_retransmitted"] == found["packets_lost"] == 0


def test_jobs_that_share_links_and_hosts_that_take_time_send_nothing_again(tmp_path: Path) -> None:
    """Four jobs over one link of 10 Gbps between racks, each with an idle network in mind."""
    names = ", ".join(f"{{name: j{number}, workers: 4}}" for number in range(4))
    shape = "leaves: 2, spines: 1, hosts_per_leaf: 8, rate: 100Gbps, uplink_rate: 10Gbps, switch: ideal"
    sets = (
        f"topology={{kind: leaf_spine, {shape}}}",
        "workers={count: 4, placement: spread}",
        f"jobs=[{names}]",
    )
    sets = (*sets, "hosts={kind: kernel_tcp}", "collective.switch=spine0", "workload.elements=50000")
    facts = simulate(tmp_path, *sets, text=STAR).facts

    assert [one.packets_retransmitted for one in facts.values()] == [0] * 4


@pytest.mark.parametrize("collective", PROGRAMS[1:3], ids=["roce", "atp"])
def test_a_loss_costs_round_trips_not_milliseconds(tmp_path: Path, collective: str) -> None:
    sets = (collective, "topology.switch=tofino1", "workload.elements=100000")
    losses = "faults=[{kind: loss, rate: 0.1%}]"
    lossy = measure(tmp_path, *sets, losses, text=STAR)
    released = measure(tmp_path, *sets, losses, "collective.timeout=released", text=STAR)

    assert lossy["packets_retransmitted"] > 0
    assert lossy["aggregation_time_us"] < 800 < released["aggregation_time_us"] / 2
