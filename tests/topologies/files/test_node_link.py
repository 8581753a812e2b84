"""Files: exported graphs are read back unchanged, and invalid files are refused with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from netfold.topologies.files.graphml import to_graphml
from netfold.topologies.files.node_link import from_json, to_json
from netfold.topologies.graph import TooLargeError, TopologyError
from netfold.topologies.routing import compile_network
from tests.examples import examples
from tests.topologies.graphs import pair, topologies


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


@examples(30)
@given(topologies())
def test_graphml_can_be_read_back(graph: nx.Graph) -> None:
    back = nx.parse_graphml(to_graphml(graph))
    for _, attributes in back.nodes(data=True):
        attributes.setdefault("profile", "")  # GraphML has no difference between "" and absent

    assert dict(back.nodes(data=True)) == dict(graph.nodes(data=True))
    assert nx.utils.edges_equal(graph.edges(data=True), back.edges(data=True))


@pytest.mark.parametrize("write", [to_json, to_graphml])
def test_a_broken_graph_is_not_written(write: Callable[[nx.Graph], str]) -> None:
    graph = pair()
    graph.remove_edge("h0", "s0")
    with pytest.raises(TopologyError, match="host 'h0' has 0 links"):
        write(graph)


def with_node(node: Any) -> str:
    return changed(lambda data: data["nodes"].append(node))


def with_edge(number: int, **ends: str) -> str:
    """Another edge, which is like one of `pair` but for its ends."""
    return changed(lambda data: data["edges"].append({**data["edges"][number], **ends}))


NO_LIST = "not node-link JSON: {!r} is missing or not a list; it must have lists 'nodes' and 'edges'"
TOO_DEEP = "not node-link JSON: too many lists and objects inside of each other"
REFUSED = [
    ('{"nodes":\n}', "not JSON: line 2, column 1: Expecting value"),
    *(
        (written, "not node-link JSON: must be an object, with an object 'graph' if it has one")
        for written in ("[]", "3", '{"graph": []}')
    ),
    *((changed(lambda data, key=key: data.pop(key)), NO_LIST.format(key)) for key in ("nodes", "edges")),  # type: ignore[misc]
    (changed(lambda data: data.update(nodes={})), NO_LIST.format("nodes")),
    *(
        (with_node(node), "not node-link JSON: nodes[3] must be an object with text under 'id'")
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


@pytest.mark.parametrize(("written", "text"), REFUSED, ids=range(len(REFUSED)))
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


def test_the_number_of_nodes_and_links_is_limited() -> None:
    node, edge = {"id": "x"}, {"source": "x", "target": "x"}

    def too_large(nodes: int, edges: int) -> bool:
        try:
            from_json(json.dumps({"nodes": [node] * nodes, "edges": [edge] * edges}))
        except TopologyError as error:
            return isinstance(error, TooLargeError)
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
