"""How busy links were, on the topology: from records to colours, marks and texts of the figure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from netfold.sim.errors import DataError
from netfold.sim.report import style
from netfold.sim.report.networks import Look, draw_svg
from netfold.sim.report.networks.busy import busy_links, graphs
from netfold.sim.results import load, write_run
from netfold.sim.results.records import CheckRecord, LinkRecord, NodeRecord
from netfold.topologies.graph import hosts, switches
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from tests.sim.results.builders import RING, checks, links, reported, run_data
from tests.topologies.graphs import LINK, UPLINK
from tests.topologies.measures.known import torus

US = 1_000_000


def nodes(variant: str, graph: Any, able: str = "tofino1") -> list[NodeRecord]:
    return [
        NodeRecord(
            *(variant, name, data["kind"], data["tier"], data["profile"], data["profile"] == able),
            coordinates=",".join(map(str, data["coordinates"])) if "coordinates" in data else None,
            group=data.get("group"),
            rail=None,
            island=None,
        )
        for name, data in graph.nodes(data=True)
    ]


def records_on(variant: str, graph: Any, busy_us: dict[str, int]) -> list[LinkRecord]:
    """A record of every link, busy for so long; the rest never."""
    network = compile_network(graph)
    like = links(replace(RING, name=variant))[0]
    return [
        replace(
            like,
            link=name,
            source=network.nodes[network.link_source[row]],
            target=network.nodes[network.link_target[row]],
            rate_bps=int(network.rate_bps[row]),
            busy_ps=busy_us.get(name, 0) * US,
        )
        for row, name in enumerate(network.link_names)
    ]


def made(tmp_path: Path, graph: Any, busy_us: dict[str, int], **changes: Any) -> Path:
    links = records_on("ring", graph, busy_us)
    return reported(tmp_path, RING, nodes=nodes("ring", graph), links=links, **changes)


def texts(svg: bytes) -> list[str]:
    return [
        element.text
        for element in ElementTree.fromstring(svg).iter()
        if element.text and element.text.strip()
    ]


def strokes(svg: bytes) -> list[str]:
    return re.findall(r"stroke: (#[0-9a-f]{6})", svg.decode())


def test_a_link_has_the_colour_of_its_busier_direction(tmp_path: Path) -> None:
    total_us = RING.steps * RING.step_us
    graph = leaf_spine(2, 1, 2, LINK, UPLINK)
    busy = {"h0->leaf0": total_us // 4, "leaf0->h0": total_us // 2, "spine0->leaf1": total_us // 8}
    svg = (made(tmp_path, graph, busy) / "figures" / "utilisation.svg").read_bytes()

    assert f"ring · busiest: leaf0->h0, {100 * (total_us // 2) / total_us:.1f} %" in texts(svg)
    found = strokes(svg)
    assert style.busy_colour((total_us // 2) / total_us) in found
    assert style.busy_colour((total_us // 8) / total_us) in found
    assert style.busy_colour((total_us // 4) / total_us) not in found


def test_a_large_topology_has_counts_and_the_spread_of_each_bundle(tmp_path: Path) -> None:
    total_us = RING.steps * RING.step_us
    graph = leaf_spine(16, 2, 16, LINK, UPLINK)
    busy = {f"h{host}->leaf{host // 16}": total_us for host in range(192)}
    busy |= {"leaf0->spine0": total_us // 2}
    found = texts((made(tmp_path, graph, busy) / "figures" / "utilisation.svg").read_bytes())

    assert "16 × leaf" in found
    assert "256 links of 100Gbps" in found
    assert "up: 0 % to 100 % busy, median 100 %" in found
    assert "down: 0 % to 0 % busy, median 0 %" in found
    share = f"{100 * (total_us // 2) / total_us:#.3g}"
    assert f"up: 0 % to {share} % busy, median 0 %" in found
    assert any(text.startswith("ring · busiest: h0->leaf0, 100 %") for text in found)


def test_a_variant_that_did_not_finish_has_no_shares(tmp_path: Path) -> None:
    unfinished = [*checks(RING), CheckRecord("ring", "finishes", "stuck", "waits")]
    graph = leaf_spine(2, 1, 2, LINK, UPLINK)
    summary = dict(run_data(RING).summary)
    summary["variants"][0]["checks"] = [
        {"name": check.name, "verdict": check.verdict, "detail": check.detail} for check in unfinished
    ]
    folder = made(tmp_path, graph, {}, summary=summary)
    found = texts((folder / "figures" / "utilisation.svg").read_bytes())

    assert "ring · did not finish, so shares are unknown" in found
    assert busy_links(load(folder))["busy"].null_count() == 2 * graph.number_of_edges()


def test_the_graph_comes_back_from_the_folder(tmp_path: Path) -> None:
    graph = torus((3, 4))
    folder = made(tmp_path, graph, {})
    (found,) = graphs(load(folder)).values()

    assert list(found) == list(graph)
    assert (hosts(found), switches(found)) == (hosts(graph), switches(graph))
    assert {frozenset(edge) for edge in found.edges} == {frozenset(edge) for edge in graph.edges}
    assert [found.nodes[name].get("coordinates") for name in graph] == [
        graph.nodes[name].get("coordinates") for name in graph
    ]


def test_loopbacks_of_switches_are_not_drawn(tmp_path: Path) -> None:
    graph = leaf_spine(2, 1, 2, LINK, UPLINK)
    rows = records_on("ring", graph, {"h0->leaf0": 2})
    loopback = replace(rows[0], link="leaf0->leaf0", source="leaf0", target="leaf0", busy_ps=9 * US)
    folder = reported(tmp_path, RING, nodes=nodes("ring", graph), links=[*rows, loopback])

    assert any(
        "busiest: h0->leaf0" in text for text in texts((folder / "figures" / "utilisation.svg").read_bytes())
    )


def test_a_folder_that_lists_its_nodes_must_have_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path, run_data(RING))
    (folder / "nodes.parquet").unlink()

    with pytest.raises(DataError, match=r"nodes\.parquet is missing from this run folder"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "router"}, "nodes.parquet: kind: must be host or switch, found 'router'"),
        (
            {"coordinates": "1,x"},
            "nodes.parquet: coordinates: must be whole numbers such as 0,3, found '1,x'",
        ),
        ({"variant": "third"}, "nodes.parquet: variant: 'third' is not in summary.json"),
    ],
)
def test_nodes_that_no_netfold_wrote_are_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    rows = nodes("ring", leaf_spine(2, 1, 2, LINK, UPLINK))
    rows[1] = replace(rows[1], **changes)
    with pytest.raises(DataError) as caught:
        load(write_run(tmp_path, run_data(RING, nodes=rows)))

    assert told in str(caught.value)


def test_drawings_do_not_depend_on_when_they_are_made() -> None:
    graph = torus((4, 4))

    assert draw_svg(graph, Look("a")) == draw_svg(graph.copy(), Look("a"))
    assert b"date" not in draw_svg(graph, Look("a")).lower()


def test_switches_that_can_aggregate_are_filled() -> None:
    graph = leaf_spine(2, 1, 2, LINK, UPLINK, profile="tofino1")
    able, plain = draw_svg(graph, Look("a", {"tofino1"})), draw_svg(graph, Look("a"))

    assert style.BLUE.lower() in able.decode().lower()
    assert style.BLUE.lower() not in plain.decode().lower()
    assert "switch that can aggregate" in texts(able)
    assert {"100Gbps", "400Gbps", "host"} <= set(texts(able))
