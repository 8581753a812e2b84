"""Exported texts, read back by networkx's own readers."""

from __future__ import annotations

import json
import shutil
import subprocess

import networkx as nx
import pytest
from hypothesis import given

from netfold.sim.topology.export import export
from netfold.topologies.files import Defaults
from netfold.topologies.files.gml import from_gml
from netfold.topologies.files.graphml import from_graphml
from netfold.topologies.graph import LinkSpec
from tests.examples import examples, nightly
from tests.topologies.graphs import topologies
from tests.topologies.measures.known import torus


def attributes(graph: nx.Graph) -> tuple[object, object]:
    """Nodes and links without an order; numbers as text, since GML has none above 32 bits."""
    nodes = {name: {key: str(value) for key, value in data.items()} for name, data in graph.nodes(data=True)}
    links = {
        frozenset((a, b)): {key: str(value) for key, value in data.items()}
        for a, b, data in graph.edges(data=True)
    }
    return nodes, links


@examples(10)
@given(topologies())
def test_all_formats_keep_everything(graph: nx.Graph) -> None:
    expected = attributes(graph)

    assert attributes(nx.parse_graphml(export(graph, "graphml"))) == expected
    assert attributes(nx.parse_gml(export(graph, "gml"))) == expected
    assert attributes(nx.node_link_graph(json.loads(export(graph, "json")), edges="edges")) == expected


def test_tuples_become_text() -> None:
    graph = torus((3, 3))
    graph.graph["dimensions"] = (3, 3)

    for form, read in (("graphml", nx.parse_graphml), ("gml", nx.parse_gml)):
        found = read(export(graph, form))
        assert found.nodes["s5"]["coordinates"] == "1,2"
        assert found.graph["dimensions"] == "3,3"


@examples(10)
@given(topologies())
def test_graphml_and_gml_are_read_back_as_topologies(graph: nx.Graph) -> None:
    """With rates above 32 bits, which GML has as text."""
    unused = Defaults(LinkSpec(rate_bps=1, delay_ps=1, buffer_bytes=1), "plain", None)

    assert nx.utils.graphs_equal(from_graphml(export(graph, "graphml"), unused), graph)
    assert nx.utils.graphs_equal(from_gml(export(graph, "gml"), unused), graph)


def test_dot_has_every_node_and_link() -> None:
    graph = torus((3, 3))
    lines = export(graph, "dot").splitlines()

    assert sum(" -- " in line for line in lines) == graph.number_of_edges()
    assert sum('"shape"="box"' in line for line in lines) == 9
    assert (
        '  "s0h0" -- "s0" ["label"="100Gbps, 1us", "rate_bps"="100000000000", "delay_ps"="1000000", '
        '"buffer_bytes"="262144"];'
    ) in lines


@nightly
@pytest.mark.processes
@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_dot() -> None:
    done = subprocess.run(
        ["dot", "-Tplain"], input=export(torus((3, 3)), "dot"), text=True, capture_output=True, check=False
    )

    assert done.returncode == 0


def test_names_are_quoted_for_dot() -> None:
    graph = nx.relabel_nodes(torus((3, 3)), {"s0": 'a"b\\c'})

    assert r'  "a\"b\\c" [' in export(graph, "dot")
