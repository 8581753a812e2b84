"""The contract: every property of a valid graph, and the whole text of each error."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import networkx as nx
import pytest
from hypothesis import given

import netfold
from netfold.topologies.drawing_layout import classes_of, layout
from netfold.topologies.graph import (
    NODES_MAX,
    PORT_LINK,
    CutOffError,
    LinkSpec,
    NoMatchError,
    TopologyError,
    add_host,
    add_link,
    add_server,
    add_switch,
    change_links,
    change_profiles,
    hosts,
    new_graph,
    racks,
    remove_matching,
    server_ports,
    switches,
    validate,
)
from netfold.topologies.kind import Facts, Links, Size, Topology
from netfold.topologies.kinds.leaf_spine import LeafSpine, leaf_spine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.star import star
from netfold.topologies.topology_files import from_json, to_json
from tests.examples import examples
from tests.registry import known
from tests.topologies.graphs import GBPS, LINK, UPLINK, on_switches, pair, topologies, torus
from tests.topologies.graphs import fat_tree_of_pods as fat_tree

Change = Callable[[nx.Graph], object]  # in place, or the graph that it returns


def test_order_is_the_order_of_insertion() -> None:
    graph = pair()
    add_switch(graph, "a", tier=2, profile="tofino1")
    add_host(graph, "b")
    add_link(graph, "b", "a", LINK)

    assert hosts(graph) == ["h0", "h1", "b"]
    assert switches(graph) == ["s0", "a"]
    assert racks(graph) == {"s0": ["h0", "h1"], "a": ["b"]}


def test_ends_of_the_ranges_are_allowed() -> None:
    graph = pair()
    graph.edges["h0", "s0"].update(rate_bps=1, delay_ps=0, buffer_bytes=1)
    graph.edges["h1", "s0"].update(rate_bps=10**15, delay_ps=10**15, buffer_bytes=2**40)
    validate(graph)


def of_node(name: str, key: str, value: Any, allowed: str) -> tuple[Change, str]:
    """A node's attribute that is wrong."""
    text = f"node {name!r}: {key} is {value!r}, must be {allowed}"
    return lambda graph: graph.nodes[name].update({key: value}), text


def of_link(key: str, value: Any, lowest: int, highest: int) -> tuple[Change, str]:
    """A link's number that is wrong."""
    text = f"link 'h0' - 's0': {key} is {value!r}, must be an int from {lowest} to {highest}"
    return lambda graph: graph.edges["h0", "s0"].update({key: value}), text


def another_switch(graph: nx.Graph, *links: str) -> None:
    add_switch(graph, "s1", tier=1, profile="plain")
    for host in links:
        add_link(graph, host, "s1", LINK)


def two_hosts_linked(graph: nx.Graph) -> None:
    graph.remove_node("s0")
    add_link(graph, "h0", "h1", LINK)


def four_switches_alone(graph: nx.Graph) -> None:
    for name in ("s1", "s2", "s3", "s4"):
        add_switch(graph, name, tier=1, profile="plain")


A_TIER, A_PROFILE = "an int of at least 1 for a switch", "the name of a switch profile, such as 'plain'"
REFUSED: list[tuple[Change, str]] = [
    (lambda graph: add_host(graph, "s0"), "there already is a node 's0'; names must be unique"),
    (lambda graph: add_switch(graph, "s0", 1, "x"), "there already is a node 's0'; names must be unique"),
    (
        lambda graph: add_link(graph, "h0", "s1", LINK),
        "cannot link 'h0' and 's1': there is no node 's1'; add it first",
    ),
    (
        lambda graph: add_link(graph, "s0", "h0", LINK),
        "'s0' and 'h0' are linked already; two nodes have one link each way, "
        "for more capacity raise its rate_bps",
    ),
    *(
        (
            kind,
            f"is a {kind.__name__}, must be an undirected networkx.Graph; "
            "one edge already stands for a link each way",
        )
        for kind in (nx.DiGraph, nx.MultiGraph)
    ),
    (lambda graph: add_link(graph, "s0", "s0", LINK), "node 's0' is linked to itself; remove that link"),
    *(
        (
            lambda graph, name=name: nx.relabel_nodes(graph, {"s0": name}),  # type: ignore[misc]
            f"{name!r} cannot name a node; use a non-empty string without '->'",
        )
        for name in ("", "a->b", 7)
    ),
    *(of_node("s0", "kind", kind, "'host' or 'switch'") for kind in (None, "router", 1)),
    *(of_node("h0", "tier", tier, "0 for a host") for tier in (1, None, False)),
    *(of_node("s0", "tier", tier, A_TIER) for tier in (0, None, 1.0, True)),
    of_node("h0", "profile", "plain", "'' for a host"),
    *(of_node("s0", "profile", profile, A_PROFILE) for profile in ("", None)),
    *(of_link("rate_bps", rate, 1, 10**15) for rate in (None, 0, 1e11, "100Gbps", 10**15 + 1)),
    *(of_link("delay_ps", delay, 0, 10**15) for delay in (-1, 10**15 + 1)),
    *(of_link("buffer_bytes", size, 1, 2**40) for size in (0, True)),
    (
        lambda graph: graph.remove_nodes_from(["h0", "h1"]),
        "has no host; add at least one and link it to a switch",
    ),
    (
        lambda graph: another_switch(graph, "h1"),
        "host 'h1' has 2 links (to ['s0', 's1']), must have exactly one, to a switch",
    ),
    (
        lambda graph: graph.remove_edge("h1", "s0"),
        "host 'h1' has 0 links (to []), must have exactly one, to a switch",
    ),
    (two_hosts_linked, "host 'h0' is linked to host 'h1', must be linked to a switch"),
    (another_switch, "1 of 4 nodes cannot be reached from 'h0' ('s1'); link them or remove them"),
    (
        four_switches_alone,
        "4 of 7 nodes cannot be reached from 'h0' ('s1', 's2', 's3', …); link them or remove them",
    ),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_a_graph_that_breaks_the_contract_is_refused(change: Change, text: str) -> None:
    def changed() -> nx.Graph:
        graph = pair()
        found = change(graph)
        return found if isinstance(found, nx.Graph) else graph

    whole = re.escape(f"topology 'pair': {text}")
    with pytest.raises(TopologyError, match=f"^{whole}$"):
        validate(changed())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h0", "host 'h0' has `server`, and links to 0 hosts and 1 switches; "),
        ("s0", "switch 's0' has `server`, and links to 2 hosts and 0 switches; "),
    ],
)
def test_the_ports_of_a_server_have_one_host_and_a_way_out(name: str, words: str) -> None:
    graph = pair()
    graph.nodes[name]["server"] = 0

    with pytest.raises(TopologyError, match=words):
        validate(graph)


def test_a_server_is_marked_in_files_too() -> None:
    graph = new_graph("servers")
    for number in range(2):
        add_server(graph, f"h{number}", f"port{number}")
    add_link(graph, "port0", "port1", PORT_LINK)
    read = from_json(to_json(graph))

    assert server_ports(read) == server_ports(graph) == {"port0": "h0", "port1": "h1"}


def graph() -> nx.Graph:
    return LeafSpine(leaves=2, spines=2, hosts_per_leaf=2).graph()


def rates(changed: nx.Graph) -> dict[str, int]:
    return {f"{a}-{b}": rate for a, b, rate in changed.edges(data="rate_bps") if rate != 10**11}


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        ("leaf0-spine1", {"leaf0-spine1"}),
        ("spine1-leaf0", {"leaf0-spine1"}),  # from the other end
        ("leaf*-spine0", {"leaf0-spine0", "leaf1-spine0"}),
        ("spine?-leaf1", {"leaf1-spine0", "leaf1-spine1"}),
        ("h[01]-*", {"h0-leaf0", "h1-leaf0"}),
        ("h3-leaf1", {"h3-leaf1"}),
    ],
)
def test_a_pattern_selects_links_from_either_end(pattern: str, changed: set[str]) -> None:
    found = graph()
    change_links(found, [(pattern, {"rate_bps": 7})])

    assert rates(found) == dict.fromkeys(changed, 7)


def test_later_changes_win_and_leave_the_rest() -> None:
    found = graph()
    change_links(
        found,
        [
            ("leaf*-spine*", {"rate_bps": 5, "delay_ps": 6}),
            ("*-spine1", {"rate_bps": 8, "buffer_bytes": 9}),
        ],
    )

    assert found.edges["leaf0", "spine0"] == {"rate_bps": 5, "delay_ps": 6, "buffer_bytes": 2**24}
    assert found.edges["leaf0", "spine1"] == {"rate_bps": 8, "delay_ps": 6, "buffer_bytes": 9}
    assert found.edges["h0", "leaf0"]["rate_bps"] == 10**11


def test_profiles_of_a_tier() -> None:
    found = graph()
    change_profiles(found, [("*", "plain"), ("spine*", "sharp")])

    assert [found.nodes[name]["profile"] for name in ("leaf0", "spine1", "h0")] == ["plain", "sharp", ""]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (
            "leaf*-spin0",
            "topology 'leaf_spine': no link matches 'leaf*-spin0'; did you mean 'leaf*-spine*'? "
            "links are called: h*-leaf*, leaf*-spine*",
        ),
        ("Leaf0-spine0", "no link matches 'Leaf0-spine0'; did you mean"),  # case counts
        ("leaf0", "no link matches 'leaf0'; "),  # the whole name
        ("xyz", "no link matches 'xyz'; links are called: h*-leaf*, leaf*-spine*"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(pattern: str, text: str) -> None:
    with pytest.raises(NoMatchError, match=re.escape(text)) as caught:
        change_links(graph(), [("h0-*", {"rate_bps": 1}), (pattern, {"rate_bps": 1})])

    assert caught.value.index == 1


def test_hosts_have_no_profile() -> None:
    with pytest.raises(
        NoMatchError, match=re.escape("no switch matches 'h*'; switches are called: leaf*, spine*")
    ):
        change_profiles(graph(), [("h*", "sharp")])


def test_values_are_checked() -> None:
    with pytest.raises(TopologyError, match="rate_bps is 0, must be an int from 1 to"):
        change_links(graph(), [("*", {"rate_bps": 0})])


@pytest.mark.parametrize(
    ("patterns", "absent"),
    [
        ((), set()),
        (("spine0",), {"spine0", "leaf0-spine0", "leaf1-spine0"}),
        (("spine0-leaf1",), {"leaf1-spine0"}),
        (("leaf?-spine0",), {"spine0", "leaf0-spine0", "leaf1-spine0"}),  # no host reaches spine0 any more
        (("spine0", "*-spine0"), {"spine0", "leaf0-spine0", "leaf1-spine0"}),  # the second matches, too
        (("leaf0-spine0", "leaf1-spine0"), {"spine0", "leaf0-spine0", "leaf1-spine0"}),
    ],
)
def test_switches_and_links_are_absent_by_pattern(patterns: tuple[str, ...], absent: set[str]) -> None:
    whole, left = graph(), graph()
    remove_matching(left, patterns)

    assert {name for name in whole if name not in left} == {name for name in absent if "-" not in name}
    assert {f"{a}-{b}" for a, b in whole.edges if not left.has_edge(a, b)} == {
        name for name in absent if "-" in name
    }
    validate(left)


@pytest.mark.parametrize(
    ("pattern", "hosts_count", "words"),
    [
        ("leaf1", 2, "h2, h3 (2 of leaf1)"),
        ("h1-leaf0", 1, "h1 (1 of leaf0)"),
        ("leaf1-spine*", 2, "h2, h3 (2 of leaf1)"),
        ("leaf*", 4, "h0, h1, h2, h3 (2 of leaf0, 2 of leaf1)"),
    ],
)
def test_hosts_that_are_cut_off_are_named(pattern: str, hosts_count: int, words: str) -> None:
    with pytest.raises(
        CutOffError, match=re.escape(f"have no path to the others: {words}; a host")
    ) as caught:
        remove_matching(graph(), [pattern])

    assert caught.value.hosts_count == hosts_count


def test_hosts_cannot_be_absent() -> None:
    text = (
        "no switch or link matches 'h0'; switches and links are called: leaf*, spine*, h*-leaf*, leaf*-spine*"
    )
    with pytest.raises(NoMatchError, match=re.escape(text)) as caught:
        remove_matching(graph(), ["spine0", "h0"])

    assert caught.value.index == 1


SCENARIO: dict[str, Any] = {
    "name": "toy",
    "topology": {"kind": "row", "switches": 3, "delay": "2us"},
    "workers": 3,
    "workload": {"kind": "synthetic", "elements": 1000},
    "codec": {"kind": "fixed_point"},
    "collective": {"kind": "ring"},
}


@dataclass(frozen=True, kw_only=True)
class Row(Links, Topology):
    """Switches in a row, a host on each."""

    kind: ClassVar[str] = "row"

    switches: int = field(metadata={"meaning": "Number of switches."})
    middle_rate_bps: int = field(metadata={"meaning": "Rate between switches.", "like": "rate_bps"})
    prefix: str = field(default="s", metadata={"meaning": "How the names of switches begin."})

    def size(self) -> Size:
        return Size(2 * self.switches, 4 * self.switches - 2, "switches", f"use {NODES_MAX // 2} at most")

    def facts(self) -> Facts:
        return Facts(self.switches, self.switches, 4 * self.switches - 2, self.switches + 1, None, 1)

    def graph(self) -> nx.Graph:
        graph = new_graph("row")
        names = [f"{self.prefix}{number}" for number in range(self.switches)]
        for number, name in enumerate(names):
            add_switch(graph, name, tier=1, profile=self.switch)
            add_host(graph, f"h{number}")
            add_link(graph, f"h{number}", name, self.link())
        for one, other in itertools.pairwise(names):
            add_link(graph, one, other, self.link(self.middle_rate_bps))
        validate(graph)
        return graph


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known in this file's tests, and nowhere after them."""
    known(monkeypatch, Row)


def test_it_runs_in_a_scenario(tmp_path: Path) -> None:
    changes = {"topology.middle_rate": "10Gbps", "topology.prefix": "r"}
    run = netfold.run(SCENARIO, set=changes, out=tmp_path)
    rates = dict(run.links.select("link", "rate_bps").iter_rows())

    assert run.verdict == "pass"
    assert rates["r0->r1"] == 10**10
    assert rates["h0->r0"] == 10**11
    assert run.summary["variants"][0]["setup"]["topology"] == {
        "kind": "row",
        "rate": "100Gbps",
        "delay": "2us",
        "switch": "tofino1",
        "switches": 3,
        "middle_rate": "10Gbps",
        "prefix": "r",
    }


def nearest(graph: nx.Graph) -> float:
    """Least distance of two nodes in a drawing."""
    places = layout(graph).places.values()
    return min(math.dist(a, b) for a, b in combinations(places, 2))


@examples(60)
@given(topologies())
def test_every_node_has_a_place_of_its_own(graph: nx.Graph) -> None:
    drawn = layout(graph)

    assert drawn.places.keys() == drawn.asides.keys() == set(graph)
    assert drawn.graph is graph
    assert layout(graph) == drawn
    assert len(graph) < 2 or nearest(graph) > 0.05


def test_tiers_are_rows_with_hosts_at_the_bottom() -> None:
    for graph, height in ((star(5, LINK), 1), (leaf_spine(3, 2, 4, LINK, UPLINK), 2), (fat_tree(4), 3)):
        places = layout(graph).places

        assert {name: places[name][1] for name in graph} == dict(graph.nodes(data="tier"))
        assert max(y for _, y in places.values()) == height
        assert nearest(graph) >= 0.5


def test_hosts_stand_below_their_switch() -> None:
    graph = leaf_spine(3, 2, 4, LINK, UPLINK)
    places = layout(graph).places

    for leaf in ("leaf0", "leaf1", "leaf2"):
        own = [places[name][0] for name in graph.adj[leaf] if name.startswith("h")]
        assert math.isclose(places[leaf][0], sum(own) / 4)
        assert max(own) - min(own) == 3


def test_switches_without_hosts_are_spread_evenly_over_the_width() -> None:
    """As wide as twelve hosts and a gap of 0.6 for each of three racks: 13.8, from -0.5 on."""
    places = layout(leaf_spine(3, 2, 4, LINK, UPLINK)).places

    assert [places[name] for name in ("spine0", "spine1")] == [
        pytest.approx((13.8 / 4 - 0.5, 2)),
        pytest.approx((3 * 13.8 / 4 - 0.5, 2)),
    ]


def test_a_grid_has_its_coordinates_and_bends_links_that_pass_others() -> None:
    graph = torus((4, 3))
    drawn = layout(graph)

    for name in switches(graph):
        assert drawn.places[name] == graph.nodes[name]["coordinates"]
    bent = {
        frozenset(edge)
        for edge in graph.subgraph(switches(graph)).edges
        if math.dist(drawn.places[edge[0]], drawn.places[edge[1]]) > 1
    }
    assert drawn.curved == bent
    assert len(bent) == 3 + 4


def test_groups_are_on_a_circle() -> None:
    graph = on_switches(nx.random_regular_graph(3, 12, seed=1), hosts_per_switch=1)
    for index, name in enumerate(switches(graph)):
        graph.nodes[name]["group"] = index // 4
    drawn = layout(graph)

    assert {name: len(members) for name, members in drawn.boxes.items()} == {
        "group 0": 4,
        "group 1": 4,
        "group 2": 4,
    }
    middles = [
        tuple(sum(drawn.places[name][axis] for name in members) / 4 for axis in (0, 1))
        for members in drawn.boxes.values()
    ]
    within = max(
        math.dist(drawn.places[name], middle)
        for members, middle in zip(drawn.boxes.values(), middles, strict=True)
        for name in members
    )
    assert min(math.dist(a, b) for a, b in combinations(middles, 2)) > 2 * within


RAILS = RailOptimized(islands_per_pod=2, gpus_per_island=2, spines=0).graph()


def test_servers_are_in_one_piece_and_islands_in_boxes() -> None:
    drawn = layout(RAILS)

    assert set(drawn.graph) == {"pod0rail0", "pod0rail1", "nvlink0", "nvlink1", "h0", "h1", "h2", "h3"}
    assert drawn.graph.edges["h0", "pod0rail0"]["ends"] == {"h0": "gpu0", "pod0rail0": "pod0rail0"}
    assert drawn.boxes == {"island 0": ["h0", "h1"], "island 1": ["h2", "h3"]}
    heights = [drawn.places[name][1] for name in ("h0", "nvlink0", "nvlink1", "pod0rail0", "pod0rail1")]
    assert heights[0] < heights[1] == heights[2] < heights[3] == heights[4]


def test_classes_count_nodes_and_links() -> None:
    classes = classes_of(leaf_spine(32, 4, 16, LINK, UPLINK))

    assert [(*own, len(data["members"]), data["hosts"]) for own, data in classes.nodes(data=True)] == [
        (0, "h", 512, []),
        (1, "leaf", 32, [16]),
        (2, "spine", 4, [0]),
    ]
    (down, up) = (links for _, _, links in classes.edges(data="links"))
    assert [link.rate_bps for link in down] == [100 * GBPS] * 512
    assert [link.rate_bps for link in up] == [400 * GBPS] * 128
    assert all(a.startswith("h") and b.startswith("leaf") for _, (a, b) in down)
    assert all(a.startswith("leaf") and b.startswith("spine") for _, (a, b) in up)


def test_classes_have_servers_in_one_piece() -> None:
    classes = classes_of(RAILS)

    assert [one.name for one in classes] == ["h", "nvlink", "pod rail"]
    links = {(a.name, b.name): [link.ends for link in links] for a, b, links in classes.edges(data="links")}
    assert {names: len(ends) for names, ends in links.items()} == {("h", "nvlink"): 4, ("h", "pod rail"): 4}
    assert set(links["h", "pod rail"]) == {(f"gpu{server}", f"pod0rail{server % 2}") for server in range(4)}


def test_many_names_in_a_tier_are_one_class() -> None:
    graph = star(2, LINK)
    cities = ("Amsterdam", "Berlin", "Cairo", "Delhi", "Essen")
    for city in cities:
        add_switch(graph, city, tier=1, profile="plain")
        add_link(graph, city, "s0", LINK)
    classes = classes_of(graph)

    assert [(one.name, data["members"], data["profiles"]) for one, data in classes.nodes(data=True)] == [
        ("h", ["h0", "h1"], []),
        ("switch", ["s0", *cities], ["plain"]),
    ]
    assert len(classes.edges[(1, "switch"), (1, "switch")]["links"]) == len(cities)


def test_links_of_the_highest_rate_are_no_ports_of_servers() -> None:
    """1000Tbps and no delay are allowed everywhere: only `add_server` makes a server."""
    graph = star(4, LinkSpec(rate_bps=10**15, delay_ps=0, buffer_bytes=1))
    drawn = layout(graph)

    assert set(drawn.places) == {"h0", "h1", "h2", "h3", "s0"}
    assert [one.name for one in classes_of(graph)] == ["h", "s"]
