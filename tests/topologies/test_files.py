"""Topologies from files and from the collection of TopoHub."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from math import acos, cos, radians, sin
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.topologies.graph import (
    LINKS_MAX,
    NODES_MAX,
    LinkSpec,
    TopologyError,
    hosts,
    switches,
    validate,
)
from netfold.topologies.kind import ParameterError, Topology
from netfold.topologies.kinds import topohub as ours
from netfold.topologies.kinds.dragonfly import Dragonfly
from netfold.topologies.kinds.hypercube import Hypercube
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.topohub import TopoHub
from netfold.topologies.kinds.torus import Torus
from netfold.topologies.network import compile_network
from netfold.topologies.topology_files import (
    Defaults,
    from_gml,
    from_graphml,
    from_json,
    read_graph,
    to_graphml,
    to_json,
)
from tests.examples import examples
from tests.topologies.graphs import pair, topologies

LINK = LinkSpec(rate_bps=5 * 10**9, delay_ps=123, buffer_bytes=456)
ONE = Defaults(LINK, "tofino1", hosts_per_switch=1)
NONE = Defaults(LINK, "tofino1", hosts_per_switch=None)

# In the form of the Topology Zoo's files: labels that repeat, edges that do without saying "multigraph", an
# edge without a rate beside one that has it, places of some nodes, extra keys everywhere.
ZOO = """Creator "someone"
graph [
  DateObtained "22/10/10"
  label "Small"
  Note "edge [ of the network"
  node [
    id 0
    label "Roma"
    Longitude 12.5
    Latitude 41.9
    Internal 1
  ]
  node [
    id 1
    label "Milano"
    Longitude 9.19
    Latitude 45.46
  ]
  node [
    id 2
    label "None"
  ]
  node [
    id 7
    label "None"
    hyperedge 1
  ]
  edge [
    source 0
    target 1
    LinkSpeed "2.5"
    LinkSpeedUnits "G"
    LinkSpeedRaw 2500000000.0
  ]
  edge [
    source 1
    target 0
    LinkSpeedRaw 1000000000.0
  ]
  edge [
    source 0
    target 1
    LinkLabel "Dark fibre"
  ]
  edge [
    source 1
    target 2
    id "e5"
  ]
  edge [
    source 2
    target 7
  ]
]
"""


def test_topology_zoo() -> None:
    graph = from_gml(ZOO, ONE)

    assert graph.name == "Small"
    assert switches(graph) == ["Roma", "Milano", "None_2", "None_7"]
    assert graph.nodes["Roma"] == {"kind": "switch", "tier": 1, "profile": "tofino1"}
    assert graph.edges["Roma", "Milano"]["rate_bps"] == 3_500_000_000  # those with a rate, added
    assert graph.edges["Milano", "None_2"] == {"rate_bps": 5 * 10**9, "delay_ps": 123, "buffer_bytes": 456}
    assert hosts(graph) == ["h0", "h1", "h2", "h3"]
    assert graph.edges["h3", "None_7"] == {"rate_bps": 5 * 10**9, "delay_ps": 123, "buffer_bytes": 456}


def test_delays_are_those_of_light_between_places() -> None:
    """By the spherical law of cosines, on a sphere of 6371 km: 5 µs a km."""
    (south, west), (north, east) = ((radians(a), radians(b)) for a, b in ((41.9, 12.5), (45.46, 9.19)))
    angle = acos(sin(south) * sin(north) + cos(south) * cos(north) * cos(east - west))
    delay_ps = from_gml(ZOO, ONE).edges["Roma", "Milano"]["delay_ps"]

    assert delay_ps == pytest.approx(6371 * angle * 5e6, rel=1e-6)
    assert 470 < delay_ps / 5e6 < 485  # km from Rome to Milan


def gml(*lines: str, head: str = "") -> str:
    nodes = "".join(f'node [ id {number} label "n{number}" ]\n' for number in range(3))
    return f"graph [\n{head}\n{nodes}{''.join(lines)}]\n"


def edge(source: int, target: int, more: str = "") -> str:
    return f"edge [ source {source} target {target} {more} ]\n"


REFUSED = [
    (gml(edge(0, 1, "LinkSpeedRaw 0.5"), edge(1, 2)), "link 'n0' - 'n1': rate_bps is 0.5, must be an int"),
    (
        gml(edge(0, 1, 'LinkSpeedRaw "10G"'), edge(1, 2)),
        "link 'n0' - 'n1': rate_bps is '10G', must be an int",
    ),
    (
        gml(edge(0, 1, 'rate "10Gbps"'), edge(1, 2)),
        "link 'n0' - 'n1': has text under 'rate', which is read in node-link JSON alone; write rate_bps",
    ),
    (gml(edge(0, 1), edge(1, 2), edge(2, 3)), "not GML: edge #2 has undefined target 3"),
    (
        gml(edge(0, 1, "LinkSpeedRaw 7"), edge(1, 0, "LinkSpeedRaw 8"), edge(1, 2), head="directed 1"),
        "has 8 bit/s, and 7 the other way; both directions must have the same rate",
    ),
    ('graph [ node [ id 0 label "a->b" ] ]', "'a->b' cannot name a node"),
    ('graph [ node [ id 0 label "x" ]', "not GML"),
    ("graph [ ]", "topology: has no host, its 0 nodes are switches; add hosts_per_switch: 1"),
    ("", "not GML"),
    ("graph [ node [ label 5 ] ]", "not GML"),
    ('graph [ node [ id 0 label "h0" ] ]', "there already is a node 'h0'; names must be unique"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_bad_gml_is_refused_in_words(text: str, words: str) -> None:
    defaults = NONE if "graph [ ]" in text else ONE
    with pytest.raises(TopologyError, match=re.escape(words)):
        from_gml(text, defaults)


def test_hosts_of_its_own_are_not_doubled() -> None:
    graph = Torus(dimensions=(2,)).graph()
    words = "has 2 hosts of its own; leave out hosts_per_switch"
    with pytest.raises(TopologyError, match=words):
        from_graphml(to_graphml(graph), ONE)


def test_a_large_file_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr("networkx.parse_gml", read)
    monkeypatch.setattr("networkx.parse_graphml", read)
    nodes, links = "node [ id 0 ]\n" * (NODES_MAX + 1), "edge [ source 0 target 1 ]\n" * (LINKS_MAX + 1)
    with pytest.raises(TopologyError, match=f"{NODES_MAX + 1} nodes are too many"):
        from_gml(f"graph [\n{nodes}]", ONE)
    with pytest.raises(TopologyError, match=f"{LINKS_MAX + 1} links are too many"):
        from_gml(f"graph [\n{links}]", ONE)
    with pytest.raises(TopologyError, match="nodes are too many"):
        from_graphml("<graphml>" + "<node/>" * (NODES_MAX + 1) + "</graphml>", ONE)


def test_added_hosts_are_counted_before_they_are_added() -> None:
    with pytest.raises(TopologyError, match="40004 nodes are too many"):
        from_gml(ZOO, ONE._replace(hosts_per_switch=10_000))


@pytest.mark.parametrize("form", ["json", "graphml"])
@pytest.mark.parametrize(
    "topology",
    [
        Torus(dimensions=(3, 2)),
        Hypercube(dimension=3),
        Dragonfly(groups=3, routers_per_group=2, hosts_per_router=1, global_links=1),
        RailOptimized(islands_per_pod=2, spines=1),
    ],
    ids=lambda topology: topology.kind,
)
def test_places_come_back_whole(topology: Topology, form: str) -> None:
    graph = topology.graph()
    again = from_json(to_json(graph)) if form == "json" else from_graphml(to_graphml(graph), NONE)

    assert dict(again.nodes(data=True)) == dict(graph.nodes(data=True))
    assert {frozenset(pair): graph.edges[pair] for pair in graph.edges} == {
        frozenset(pair): again.edges[pair] for pair in again.edges
    }
    assert again.graph == graph.graph


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<graphml", "not GraphML: "),
        ("<svg></svg>", "not GraphML: "),
        ('<!DOCTYPE x [<!ENTITY a "b">]><graphml/>', "GraphML: has a document type; remove it"),
    ],
)
def test_bad_graphml_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(words)):
        from_graphml(text, ONE)


def test_json_may_have_hosts_added() -> None:
    text = '{"nodes": [{"id": "s0", "kind": "switch", "tier": 1, "profile": "plain"}], "edges": []}'

    assert hosts(read_graph("net.json", text, ONE._replace(hosts_per_switch=2), {})) == ["h0", "h1"]
    with pytest.raises(TopologyError, match="has no host; add at least one"):
        read_graph("net.json", text, NONE, {})


PIECES = [
    *("node [", "edge [", "]", "[", '"', "-5", "1e999", "nan"),
    *("kind host", "<node/>", "<", '="', "\0", "é", ""),
]


@examples(60)
@given(
    st.booleans(),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), st.sampled_from(PIECES)), max_size=4),
)
def test_damaged_files_are_read_or_refused(is_gml: bool, damages: list[tuple[float, int, str]]) -> None:
    """Pieces that are cut out or put in lead to a topology or to an error in words, to no other."""
    text = ZOO if is_gml else to_graphml(Torus(dimensions=(2,)).graph())
    for place, length, piece in damages:
        begin = int(place * len(text))
        text = text[:begin] + piece + text[begin + length :]
    with contextlib.suppress(TopologyError):
        validate(from_gml(text, ONE) if is_gml else from_graphml(text, NONE))


def test_an_entry_that_ends_in_the_middle_of_a_line() -> None:
    """networkx reads texts of several lines by their last character, which an empty line has not."""
    with pytest.raises(TopologyError, match="not GML: IndexError"):
        from_gml('graph [\n  label "a\n\n"\n]', ONE)


@pytest.mark.parametrize(
    "text", ["\n" * 500_000 + "grap", " " * 500_000 + "\ngraph", "multigraph" + "\n" * 500_000]
)
def test_white_space_is_read_once(text: str) -> None:
    """Where a pattern begins anew at each of 500,000 blank lines, this takes hours."""
    with pytest.raises(TopologyError, match="not GML"):
        from_gml(text, ONE)


def refused(text: str, written: str) -> None:
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        from_json(written)


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """JSON of `pair` after a change."""
    data = json.loads(to_json(pair()))
    change(data)
    return json.dumps(data)


@examples(30)
@given(topologies())
def test_json_round_trip(graph: nx.Graph) -> None:
    back = from_json(to_json(graph))
    one, two = compile_network(graph), compile_network(back)

    assert back.name == graph.name
    assert list(back.nodes(data=True)) == list(graph.nodes(data=True))
    assert nx.utils.graphs_equal(graph, back)
    assert to_json(back) == to_json(graph)
    assert two.link_names == one.link_names
    assert np.array_equal(one.tables.choice, two.tables.choice)
    assert np.array_equal(one.tables.ports, two.tables.ports)


@pytest.mark.parametrize("use", [to_json, to_graphml, compile_network])
def test_a_broken_graph_is_neither_written_nor_compiled(use: Callable[[nx.Graph], object]) -> None:
    graph = pair()
    graph.remove_edge("h0", "s0")
    with pytest.raises(TopologyError, match="host 'h0' has 0 links"):
        use(graph)


def with_edge(number: int, **ends: str) -> str:
    """Another edge, which is like one of `pair` but for its ends."""
    return changed(lambda data: data["edges"].append({**data["edges"][number], **ends}))


NO_LIST = "not node-link JSON: {!r} is missing or not a list; it must have lists 'nodes' and 'edges'"
TOO_DEEP = "not node-link JSON: too many lists and objects inside of each other"
NODE_LINK_REFUSED = [
    ('{"nodes":\n}', "not JSON: line 2, column 1: Expecting value"),
    *(
        (written, "not node-link JSON: must be an object, with an object 'graph' if it has one")
        for written in ("[]", "3", '{"graph": []}')
    ),
    *((changed(lambda data, key=key: data.pop(key)), NO_LIST.format(key)) for key in ("nodes", "edges")),  # type: ignore[misc]
    (changed(lambda data: data.update(nodes={})), NO_LIST.format("nodes")),
    *(
        (
            changed(lambda data, node=node: data["nodes"].append(node)),
            "not node-link JSON: nodes[3] must be an object with text under 'id'",
        )
        for node in (5, {}, {"id": 5})
    ),
    *(
        (
            changed(lambda data, edge=edge: data["edges"].insert(0, edge)),  # type: ignore[misc]
            "not node-link JSON: edges[0] must be an object with text under 'source' and 'target'",
        )
        for edge in (["h0", "s0"], {"source": "h0"}, {"source": "h0", "target": 2})
    ),
    (with_edge(0, target="s1"), "node-link JSON: edge 'h0' - 's1' leads to 's1', which is not a node"),
    (
        changed(lambda data: data["nodes"].append(data["nodes"][0])),
        "node-link JSON: node 'h0' is there 2 times, must be there once",
    ),
    (
        with_edge(1, source="s0", target="h1"),  # the other direction is the same edge
        "node-link JSON: edge 'h1 - s0' is there 2 times, must be there once",
    ),
    (
        changed(lambda data: data.update(directed=True)),
        "topology 'pair': 'directed' is True, must be false; one edge already stands for a link each way",
    ),
    ("[" * 100_000, TOO_DEEP),
    ('{"a":' * 100_000, TOO_DEEP),
    ('{"nodes": [' + "9" * 5000 + "]}", "not node-link JSON: a number in it has too many digits"),
    ('{"nodes": [NaN]}', "not JSON: NaN is no number"),
    ('{"nodes": [], "nodes": []}', "JSON: the key 'nodes' is there 2 times, must be there once"),
    (
        '{"nodes": [{"id": "h0", "kind": "host", "kind": "switch"}]}',
        "JSON: the key 'kind' of 'h0' is there 2 times, must be there once",
    ),
    ('{"graph": {"name": 5}}', "node-link JSON: the graph's name is 5, must be text"),
]


@pytest.mark.parametrize(("written", "text"), NODE_LINK_REFUSED, ids=range(len(NODE_LINK_REFUSED)))
def test_what_is_no_graph_is_refused(written: str, text: str) -> None:
    refused(text, written)


@pytest.mark.parametrize("left_out", [("tier",), ("profile",), ("tier", "profile")])
def test_hosts_need_only_their_kind(left_out: tuple[str, ...]) -> None:
    def leave_out(data: dict[str, Any]) -> None:
        for key in left_out:
            del data["nodes"][0][key]

    assert nx.utils.graphs_equal(pair(), from_json(changed(leave_out)))


def test_a_graph_without_a_name() -> None:
    def leave_out(data: dict[str, Any]) -> None:
        del data["graph"], data["directed"], data["multigraph"]
        del data["edges"][0]["rate_bps"]

    refused(
        f"topology: link 'h0' - 's0': rate_bps is missing, must be an int from 1 to {10**15}",
        changed(leave_out),
    )


def test_all_errors_of_nodes_and_edges_are_reported_at_once() -> None:
    def spoil(data: dict[str, Any]) -> None:
        del data["nodes"][2]["tier"], data["nodes"][2]["profile"]
        data["nodes"][0]["kind"] = "router"
        data["edges"][1]["rate_bps"] = 0
        del data["edges"][1]["delay_ps"]

    refused(
        "topology 'pair': node 'h0': kind is 'router', must be 'host' or 'switch'\n"
        "topology 'pair': node 's0': tier is missing, must be an int of at least 1 for a switch\n"
        "topology 'pair': node 's0': profile is missing, "
        "must be the name of a switch profile, such as 'plain'\n"
        f"topology 'pair': link 'h1' - 's0': rate_bps is 0, must be an int from 1 to {10**15}\n"
        f"topology 'pair': link 'h1' - 's0': delay_ps is missing, must be an int from 0 to {10**15}",
        changed(spoil),
    )


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\ud800", "a" * 101])
def test_names_that_a_terminal_cannot_show(name: str) -> None:
    with pytest.raises(TopologyError, match=r"use up to 100 printable characters\n"):
        from_json(changed(lambda data: data["nodes"][0].update(id=name)))


@pytest.mark.slow  # at the limit, all of its links are looked at
def test_the_number_of_nodes_and_links_is_limited() -> None:
    node, edge = {"id": "x"}, {"source": "x", "target": "x"}

    def too_large(nodes: int, edges: int) -> bool:
        try:
            from_json(json.dumps({"nodes": [node] * nodes, "edges": [edge] * edges}))
        except TopologyError as error:
            return "are too many" in str(error)
        raise AssertionError("these are no nodes")

    assert not too_large(16384, 2**17)
    assert too_large(16385, 0)
    assert too_large(1, 2**17 + 1)


def unit(text: object) -> int:
    """Kilo-units."""
    if not isinstance(text, str) or not text.endswith("k"):
        raise ValueError(f"cannot read {text!r}; write '1k'")
    return int(text[:-1]) * 1000


def with_units(change: Callable[[dict[str, Any]], object]) -> nx.Graph:
    data = json.loads(to_json(pair()))
    change(data["edges"][0])
    return from_json(json.dumps(data), {"rate_bps": unit, "delay_ps": unit})


def test_links_may_be_written_with_units() -> None:
    def shorter(edge: dict[str, Any]) -> None:
        del edge["rate_bps"]
        edge.update(rate="5k", delay_ps="7k")

    graph = with_units(shorter)

    assert graph.edges["h0", "s0"] == {**pair().edges["h0", "s0"], "rate_bps": 5000, "delay_ps": 7000}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rate": "5k"}, "has both rate and rate_bps; leave out one of them"),
        ({"delay_ps": "5"}, "delay_ps: cannot read '5'; write '1k'"),
        ({"rate_bps": "0k"}, f"rate_bps is 0, must be an int from 1 to {10**15}"),
        ({"buffer_bytes": "5k"}, f"buffer_bytes is '5k', must be an int from 1 to {2**40}"),
    ],
)
def test_units_that_cannot_be_read(change: dict[str, str], text: str) -> None:
    whole = re.escape(f"topology 'pair': link 'h0' - 's0': {text}")
    with pytest.raises(TopologyError, match=f"^{whole}$"):
        with_units(lambda edge: edge.update(change))


def test_what_is_missing_may_be_written_with_a_unit() -> None:
    """Only where units are read."""
    with pytest.raises(TopologyError) as caught:
        with_units(lambda edge: edge.clear() or edge.update(source="h0", target="s0"))

    link = "topology 'pair': link 'h0' - 's0'"
    assert str(caught.value).splitlines() == [
        f'{link}: rate_bps is missing, must be an int from 1 to {10**15}; or write "rate": "100Gbps"',
        f'{link}: delay_ps is missing, must be an int from 0 to {10**15}; or write "delay": "1us"',
        f"{link}: buffer_bytes is missing, must be an int from 1 to {2**40}",
    ]


NETWORK: dict[str, Any] = {
    "directed": False,
    "multigraph": False,
    "graph": {"name": "tiny", "demands": {}},
    "nodes": [{"name": "A", "pos": [0, 0], "id": 0}, {"name": "B", "id": 1}, {"name": "B", "id": 2}],
    "edges": [{"dist": 200.0, "source": 0, "target": 1}, {"dist": 0.5, "source": 1, "target": 2}],
}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Networks and stand-ins do not outlast a test."""
    known = sys.modules.pop("topohub", None)
    ours._graph.cache_clear()
    yield
    ours._graph.cache_clear()
    sys.modules.pop("topohub", None)
    if known is not None:
        sys.modules["topohub"] = known


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that has one network, `group/tiny`."""
    folder = tmp_path / "topohub"
    (folder / "data" / "group").mkdir(parents=True)
    (folder / "data" / "group" / "tiny.json").write_text("{}")
    (folder / "__init__.py").write_text(
        f"def get(key):\n    if key != 'group/tiny':\n        raise KeyError(key)\n    return {NETWORK!r}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("package")
def test_routers_lengths_and_hosts() -> None:
    topology = TopoHub(name="group/tiny", hosts_per_switch=2, rate_bps=10**9, fabric_rate_bps=4 * 10**9)
    graph = topology.graph()

    assert switches(graph) == ["A", "B_1", "B_2"]
    assert len(hosts(graph)) == 6
    assert graph.edges["A", "B_1"] == {
        "rate_bps": 4 * 10**9,
        "delay_ps": 10**9,
        "buffer_bytes": 2**24,
    }  # 1 ms
    assert graph.edges["B_1", "B_2"]["delay_ps"] == 2_500_000
    assert graph.edges["h5", "B_2"]["rate_bps"] == 10**9
    assert topology.size()[:2] == (9, 16)
    assert topology.facts()[:3] == (6, 3, 16)
    given = TopoHub(name="group/tiny", fabric_delay_ps=5).graph()
    assert (given.edges["A", "B_1"]["delay_ps"], given.edges["h0", "A"]["delay_ps"]) == (5, 10**6)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("group/tinny", "there is no network 'group/tinny'; did you mean 'group/tiny'? groups: group"),
        ("other/tiny", "there is no network 'other/tiny'; groups: group"),
        ("tiny", "'tiny' cannot be a name; use one such as topozoo/Abilene"),
        ("../group/tiny", "'../group/tiny' cannot be a name"),
        ("group/../../x", "'group/../../x' cannot be a name"),
        ("/etc/passwd", "'/etc/passwd' cannot be a name"),
    ],
)
def test_names_that_there_are_not(name: str, words: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(words)) as caught:
        TopoHub(name=name).size()

    assert caught.value.key == "name"


def test_a_missing_package_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "topohub", None)

    words = "the package topohub is not installed; install it with: pip install 'netfold[topohub]'"
    with pytest.raises(ParameterError, match=re.escape(words)):
        TopoHub(name="topozoo/Abilene").size()


def test_the_package_itself() -> None:
    pytest.importorskip("topohub")

    assert TopoHub(name="topozoo/Abilene").size()[:2] == (22, 50)
    assert len(switches(TopoHub(name="sndlib/polska").graph())) == 12
