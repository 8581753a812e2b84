"""Figures of a report: the network with its busy links, and learning curves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netfold.errors import DataError
from netfold.sim.report import style
from netfold.sim.report.columns import format_metric
from netfold.sim.report.network_drawing import Look, _drawn_variants, busy_links, draw_svg, graphs
from netfold.sim.report.training_curves import curves, learning
from netfold.sim.results.folder import RunFolder, load, write_run
from netfold.sim.results.records import CheckRecord, LinkRecord, NodeRecord
from netfold.topologies.graph import hosts, switches
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import compile_network
from tests.sim.results.builders import LOSSLESS, RING, Fake, checks, links, reported, run_data, svg_text
from tests.topologies.graphs import LINK, UPLINK, torus

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


def test_a_link_has_the_colour_of_its_busier_direction(tmp_path: Path) -> None:
    total_us = RING.steps * RING.step_us
    graph = leaf_spine(2, 1, 2, LINK, UPLINK)
    busy = {"h0->leaf0": total_us // 4, "leaf0->h0": total_us // 2, "spine0->leaf1": total_us // 8}
    svg = (made(tmp_path, graph, busy) / "figures" / "utilisation.svg").read_bytes()

    assert f"ring · busiest: leaf0->h0, {100 * (total_us // 2) / total_us:.1f} %" in svg_text(svg)
    found = re.findall(r"stroke: (#[0-9a-f]{6})", svg.decode())
    assert style.busy_colour((total_us // 2) / total_us) in found
    assert style.busy_colour((total_us // 8) / total_us) in found
    assert style.busy_colour((total_us // 4) / total_us) not in found


def test_a_large_topology_has_counts_and_the_spread_of_each_bundle(tmp_path: Path) -> None:
    total_us = RING.steps * RING.step_us
    graph = leaf_spine(16, 2, 16, LINK, UPLINK)
    busy = {f"h{host}->leaf{host // 16}": total_us for host in range(192)}
    busy |= {"leaf0->spine0": total_us // 2}
    found = svg_text((made(tmp_path, graph, busy) / "figures" / "utilisation.svg").read_bytes())

    assert "16 × leaf" in found
    assert "256 links of 100Gbps" in found
    assert "up: 0 % to 100 % busy, median 100 %" in found
    assert "down: 0 % to 0 % busy, median 0 %" in found
    share = f"{100 * (total_us // 2) / total_us:#.3g}"
    assert f"up: 0 % to {share} % busy, median 0 %" in found
    assert any(text.startswith("ring · busiest: h0->leaf0, 100 %") for text in found)


def test_a_variant_that_did_not_finish_has_no_shares(tmp_path: Path) -> None:
    unfinished = [*checks(RING), CheckRecord("ring", "finishes", "stalled", "waits")]
    graph = leaf_spine(2, 1, 2, LINK, UPLINK)
    summary = dict(run_data(RING).summary)
    summary["variants"][0]["checks"] = [
        {"name": check.name, "verdict": check.verdict, "detail": check.detail} for check in unfinished
    ]
    folder = made(tmp_path, graph, {}, summary=summary)
    found = svg_text((folder / "figures" / "utilisation.svg").read_bytes())

    assert "ring · did not finish, so shares are unknown" in found
    assert busy_links(load(folder))["busy"].null_count() == 2 * graph.number_of_edges()


def test_the_share_of_links_that_were_used_is_told(tmp_path: Path) -> None:
    summary = dict(run_data(RING).summary)
    used = {"leaf→spine": {"used": 1, "links": 2}, "spine→leaf": {"used": 2, "links": 2}}
    summary["variants"][0]["metrics"]["links_used"] = used
    folder = made(tmp_path, leaf_spine(2, 1, 2, LINK, UPLINK), {"h0->leaf0": 1}, summary=summary)

    assert "links used: leaf→spine 50.0 %, spine→leaf 100 %" in svg_text(
        (folder / "figures" / "utilisation.svg").read_bytes()
    )


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (None, "–"),
        ({}, "–"),
        ({"s→s": (3, 12)}, "s–s 25.0 %"),
        ({"a→b": (1, 2), "b→a": (2, 4), "b→c": (0, 3), "c→b": (3, 3)}, "a–b 50.0 %, b→c 0 %, c→b 100 %"),
    ],
)
def test_directions_are_told_apart_where_they_differ(
    counts: dict[str, tuple[int, int]] | None, text: str
) -> None:
    pairs = (counts or {}).items()
    used = (
        None
        if counts is None
        else {name: dict(zip(("used", "links"), pair, strict=True)) for name, pair in pairs}
    )

    assert format_metric("links_used", {"links_used": used}) == text


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
        "busiest: h0->leaf0" in text
        for text in svg_text((folder / "figures" / "utilisation.svg").read_bytes())
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

    assert style.SLATE.lower() in able.decode().lower()
    assert style.SLATE.lower() not in plain.decode().lower()
    assert "switch that can aggregate" in svg_text(able)
    assert {"100Gbps", "400Gbps", "host"} <= set(svg_text(able))


# A step of RING takes 168 us. Of each of two buckets a worker sends 4000 + 100 bytes and receives 4000 + 200;
# of each of LOSSLESS's, which take 88 us, it sends 900 and receives 1000.
RING_BYTES, LOSSLESS_BYTES = 2 * (4100 + 4200), 2 * (900 + 1000)
TRAINED = replace(RING, steps=4, losses=(2.0, 1.5, 1.2, 1.1), accuracies=(None, 0.5, None, 0.75))
SPARSE = replace(LOSSLESS, steps=4, losses=(2.0, 1.6, 1.4, 1.3), accuracies=(None, 0.25, None, 0.5))


@pytest.fixture(autouse=True)
def house_style() -> Iterator[None]:
    with style.house_style():
        yield


def run_of(tmp_path: Path, *fakes: Fake) -> RunFolder:
    return load(write_run(tmp_path, run_data(*fakes)))


def drawn(run: RunFolder) -> Figure:
    figure = learning(run)
    assert figure is not None
    return figure


def panels(figure: Figure, columns: int = 3) -> list[list[Axes]]:
    """Axes by row."""
    axes = figure.get_axes()
    return [axes[first : first + columns] for first in range(0, len(axes), columns)]


def points(axes: Axes) -> list[tuple[list[float], list[float]]]:
    return [
        (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in axes.lines
    ]


def test_totals_by_hand(tmp_path: Path) -> None:
    rows = curves(run_of(tmp_path, TRAINED, replace(LOSSLESS, name="untrained"))).to_dict(as_series=False)

    assert rows == {
        "variant": ["ring"] * 4,
        "step": [0, 1, 2, 3],
        "loss": [2.0, 1.5, 1.2, 1.1],
        "test_metric": [None, "accuracy", None, "accuracy"],
        "test_score": [None, 0.5, None, 0.75],
        "steps": [1, 2, 3, 4],
        "bytes": [RING_BYTES * steps for steps in (1, 2, 3, 4)],
        "bytes_before": [RING_BYTES * steps for steps in (0, 1, 2, 3)],
        "time_us": [168.0, 336.0, 504.0, 672.0],
        "time_before_us": [0.0, 168.0, 336.0, 504.0],
    }


def test_losses_lie_before_their_step_and_tests_after_it(tmp_path: Path) -> None:
    losses, tests = panels(drawn(run_of(tmp_path, TRAINED, SPARSE)))
    per_step = ((1, 1), (RING_BYTES, LOSSLESS_BYTES), (168.0, 88.0))

    for axes, sizes in zip(losses, per_step, strict=True):
        for (across, up), size, fake in zip(points(axes), sizes, (TRAINED, SPARSE), strict=True):
            assert across == [size * steps for steps in (0, 1, 2, 3)]
            assert up == list(fake.losses)
    for axes, sizes in zip(tests, per_step, strict=True):
        for (across, up), size, fake in zip(points(axes), sizes, (TRAINED, SPARSE), strict=True):
            assert across == [2 * size, 4 * size]
            assert up == [score for score in fake.accuracies if score is not None]


def test_every_line_is_in_view_and_in_the_legend(tmp_path: Path) -> None:
    names = [f"variant-{number}" for number in range(10)]
    figure = drawn(run_of(tmp_path, *(replace(TRAINED, name=name) for name in names)))

    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    looks = {
        (line.get_color(), line.get_marker(), str(line.get_linestyle()))
        for line in figure.legends[0].get_lines()
    }
    assert len(looks) == len(names)
    for row in panels(figure):
        for axes in row:
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            assert len(axes.lines) == 10
            for across, up in points(axes):
                assert all(left <= value <= right for value in across)
                assert all(low <= value <= high for value in up)


def test_perplexities_are_plain_numbers_and_targets_dotted_lines(tmp_path: Path) -> None:
    """Values far apart on a logarithmic axis, near ones not; the target is in view."""
    losses_apart = (2.0, 0.5, 0.1, 0.01)
    worse = replace(
        TRAINED, metric="perplexity", target=90.0, accuracies=(None, 600.0, None, 100.0), losses=losses_apart
    )
    near = replace(worse, accuracies=(None, 120.0, None, 100.0))
    for fake, scale in ((worse, "log"), (near, "linear")):
        losses, tests = panels(drawn(run_of(tmp_path / scale, fake)))
        assert tests[0].get_title("left") == "perplexity on held-out data"
        for axes in tests:
            assert axes.get_yscale() == scale
            low, high = axes.get_ylim()
            assert low < 90 < max(score for score in fake.accuracies if score is not None) < high
            assert [points(axes)[1][1]] == [[90.0, 90.0]]
        for axes in (*losses, *tests) if scale == "log" else losses:
            assert axes.yaxis.get_major_formatter()(0.05) == "0.05"  # type: ignore[operator]
    shares = panels(drawn(run_of(tmp_path / "shares", replace(TRAINED, target=0.9))))[1]
    assert all(axes.get_ylim()[1] > 0.9 for axes in shares)
    assert shares[0].yaxis.get_major_formatter()(0.5) == "50 %"  # type: ignore[operator]


def test_what_ends_far_apart_has_a_logarithmic_axis(tmp_path: Path) -> None:
    small = replace(SPARSE, messages=(("values", 1, 8),))
    near = panels(drawn(run_of(tmp_path / "near", TRAINED, replace(TRAINED, name="too"))))
    far = panels(drawn(run_of(tmp_path / "far", TRAINED, small)))

    assert [axes.get_xscale() for axes in near[0]] == ["linear"] * 3
    assert [axes.get_xscale() for axes in far[0]] == ["linear", "log", "linear"]
    assert [axes.get_xscale() for axes in far[1]] == ["linear", "log", "linear"]
    assert far[0][1].get_xlim() == far[1][1].get_xlim()


def test_a_loss_that_explodes_leaves_the_others_in_view(tmp_path: Path) -> None:
    wild = replace(TRAINED, name="wild", losses=(2.0, 40.0, 1e9, float("nan")))
    losses, _ = panels(drawn(run_of(tmp_path, TRAINED, wild)))

    assert losses[0].get_ylim()[1] < 3
    assert losses[0].get_yscale() == "linear"
    assert losses[0].get_ylim()[0] < 1.1


def test_tasks_are_named_as_the_scenario_names_them(tmp_path: Path) -> None:
    data = run_data(TRAINED, SPARSE)
    for entry, model in zip(data.summary["variants"], ("mlp", "ncf"), strict=True):
        workload: dict[str, Any] = {"kind": "training", "model": model}
        entry["setup"] = {"workload": workload | ({"data": "digits"} if model == "mlp" else {})}
    rows = panels(drawn(load(write_run(tmp_path, data))))

    assert [row[0].get_title(loc="left").partition(":")[0] for row in rows] == [
        *["mlp on digits"] * 2,
        *["ncf"] * 2,
    ]
    assert [len(row[0].lines) for row in rows] == [1, 1, 1, 1]


def test_without_two_trained_steps_there_is_no_figure(tmp_path: Path) -> None:
    assert learning(run_of(tmp_path / "untrained", RING)) is None
    assert learning(run_of(tmp_path / "one", replace(RING, steps=1, losses=(2.0,)))) is None


def test_of_many_variants_every_network_is_drawn(tmp_path: Path) -> None:
    """Nine variants on each of two networks; N is slower than N − 1."""
    fakes = [replace(RING, name=f"v{at}", forward_us=20 + at) for at in range(18)]
    networks = [leaf_spine(2, 1, 2, LINK, UPLINK), torus((2, 2))]
    on = {fake.name: networks[at // 9] for at, fake in enumerate(fakes)}
    tables: dict[str, Any] = {
        "nodes": [row for name, graph in on.items() for row in nodes(name, graph)],
        "links": [row for name, graph in on.items() for row in records_on(name, graph, {})],
    }
    run = load(write_run(tmp_path, run_data(*fakes, **tables)))

    assert _drawn_variants(run) == ["v0", "v8", "v9", "v17"]
