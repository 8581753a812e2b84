"""GML and GraphML of other programs: what is read, what is given where it is missing, what is refused."""

from __future__ import annotations

import contextlib
import re
from math import acos, cos, radians, sin

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.topologies.files import Defaults, read_graph
from netfold.topologies.files.gml import from_gml
from netfold.topologies.files.graphml import from_graphml, to_graphml
from netfold.topologies.graph import (
    LINKS_MAX,
    NODES_MAX,
    LinkSpec,
    TooLargeError,
    TopologyError,
    hosts,
    switches,
    validate,
)
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.torus import Torus
from tests.examples import examples

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
    with pytest.raises(TooLargeError, match=f"{NODES_MAX + 1} nodes are too many"):
        from_gml(f"graph [\n{nodes}]", ONE)
    with pytest.raises(TooLargeError, match=f"{LINKS_MAX + 1} links are too many"):
        from_gml(f"graph [\n{links}]", ONE)
    with pytest.raises(TooLargeError, match="nodes are too many"):
        from_graphml("<graphml>" + "<node/>" * (NODES_MAX + 1) + "</graphml>", ONE)


def test_added_hosts_are_counted_before_they_are_added() -> None:
    with pytest.raises(TooLargeError, match="40004 nodes are too many"):
        from_gml(ZOO, ONE._replace(hosts_per_switch=10_000))


@pytest.mark.parametrize(
    "graph", [Torus(dimensions=(3, 2)).graph(), RailOptimized(islands_per_pod=2, spines=1).graph()]
)
def test_graphml_comes_back_whole(graph: nx.Graph) -> None:
    again = from_graphml(to_graphml(graph), NONE)

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
