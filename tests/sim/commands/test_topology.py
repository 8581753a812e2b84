"""The commands `netfold topology …`: what they print and write, and errors in words."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from netfold.sim.commands.main import app
from netfold.topologies.files.node_link import from_json
from netfold.topologies.kind import topology_kinds
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network, flow_key_plain, path
from tests.sim.scenario.files import GOOD, write
from tests.sim.scenes import LINK

LEAF_SPINE = ("--set", "leaves=4", "--set", "spines=2", "--set", "hosts_per_leaf=8")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["topology", *(str(argument) for argument in arguments)])


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]


def test_show_of_a_kind() -> None:
    result = run("show", "leaf_spine", *LEAF_SPINE, "--set", "topology.uplink_rate=400Gbps")

    assert cells(result.stdout) == [
        ["leaf_spine", "leaf_spine", "32", "6", "80", "4", "3.55", "1.6Tbps"],
    ]


def test_show_draws_into_a_file_or_a_folder(tmp_path: Path) -> None:
    one, scenario = tmp_path / "one.svg", write(tmp_path, GOOD)

    assert run("show", "star", "--set", "hosts=3", "--draw", one).exit_code == 0
    assert run("show", scenario, "--draw", tmp_path / "all").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["ring.svg", "switch.svg"]
    texts = {element.text for element in ElementTree.fromstring(one.read_bytes()).iter() if element.text}
    assert {"h0", "h1", "h2", "s0", "100Gbps", "switch that can aggregate"} <= texts


def test_list_has_every_kind_and_key() -> None:
    text = run("list").stdout

    for kind in (*topology_kinds(), "file"):
        assert f"\n{kind}: " in f"\n{text}"
    assert '  rate="100Gbps": Rate of the links' in text
    assert "  hosts: Number of hosts" in text


def test_measure_ranks_collectives(tmp_path: Path) -> None:
    result = run("measure", "star", "--set", "hosts=8", "--bytes", "100MB", "--json")

    (found,) = json.loads(result.stdout)["networks"]
    assert found["bisection_bps"] == found["bisection_bps_min"] == found["bisection_bps_max"] == 400 * 10**9
    assert found["cost"]["cables"] == {"within a rack": {"100000000000": 8}}
    times = [one["seconds"] for one in found["estimates"]]
    assert times == sorted(times)
    ring = next(one for one in found["estimates"] if one["collective"] == "ring")
    assert ring["link"] == "h0->s0"
    assert ring["seconds"] > 2 * 7 / 8 * 8e8 / 100e9  # without headers and latency


def test_measure_prints_tables() -> None:
    text = run("measure", "leaf_spine", *LEAF_SPINE, "--workers", "16").stdout
    rows = {row[0]: row[1:] for row in cells(text)}

    assert rows["oversubscription, tier 1"] == ["4 : 1"]
    assert rows["cables within a row"] == ["8 × 100Gbps"]
    assert rows["leaf_spine"][0] == "16"
    assert "Estimate: closed form of an all-reduce of 100MB of float32" in text


def test_export_can_be_read_back(tmp_path: Path) -> None:
    out = tmp_path / "star.json"

    assert run("export", "star", "--set", "hosts=3", "-o", out).stdout == f"{out}\n"
    assert sorted(from_json(out.read_text())) == ["h0", "h1", "h2", "s0"]
    assert cells(run("show", out).stdout)[0][:3] == ["star", "file", "3"]
    assert run("export", "star", "--set", "hosts=3").stdout == out.read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "leaf_spin"), "there is no kind of topology 'leaf_spin', and no such file\n  did you mean"),
        (("show", "nowhere.json"), "cannot read 'nowhere.json'"),
        (("show", "star", "--set", "hosts=0"), "--set: topology.hosts: must be at least 1, found 0"),
        (("show", "star", "--set", "hosts=2", "--variant", "a"), "there is no variant 'a'"),
        (("measure", "star", "--set", "hosts=2", "--bytes", "many"), "cannot read 'many' as a size"),
        (("measure", "star", "--set", "hosts=2", "--workers", "3"), "cannot place 3 workers on 2 hosts"),
        (("export", "star", "--set", "hosts=2", "-o", "no/such/folder"), "cannot write no/such/folder"),
        (("show", "star", "--set", "hosts=16384"), "16385 nodes are too many"),
    ],
)
def test_errors_are_told_in_words(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)

    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert told in result.stderr
    assert "Traceback" not in result.stderr


GRID = """\
name: grid
seed: 5
workers: {count: 16, placement: spread}
routing: spray
workload: {kind: synthetic, elements: 1000}
codec: {kind: none}
variants:
  topology:
    racks: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 12}
    star: {kind: star, hosts: 20}
  collective:
    ring: {kind: ring}
    tree: {kind: tree}
"""


def measured_grid(folder: Path, *more: str) -> list[dict[str, Any]]:
    """The networks of the grid, as JSON has them."""
    result = run("measure", write(folder, GRID), "--json", *more)
    assert result.exit_code == 0
    found: list[dict[str, Any]] = json.loads(result.stdout)["networks"]
    return found


def ring_s(found: dict[str, Any]) -> float:
    """The estimate of a ring, without latency."""
    (ring,) = (one for one in found["estimates"] if one["collective"] == "ring")
    seconds: float = ring["seconds"] - ring["latency_s"]
    return seconds


def test_measure_shows_each_network_of_a_scenario_once(tmp_path: Path) -> None:
    racks, star = measured_grid(tmp_path)
    assert (racks["name"], racks["variants"]) == ("racks-ring", ["racks-ring", "racks-tree"])
    assert (star["name"], star["variants"]) == ("star-ring", ["star-ring", "star-tree"])
    text = run("measure", write(tmp_path, GRID), "--variant", "star-ring", "--variant", "star-tree").stdout
    assert "star-ring +1" in text
    other = GRID.replace("    tree: {kind: tree}", "    tree: {kind: tree, trees: 1}")
    assert len(json.loads(run("measure", write(tmp_path, other), "--json").stdout)["networks"]) == 2


def test_measure_takes_workers_and_routes_of_the_scenario(tmp_path: Path) -> None:
    """In turn from two racks, all 8 of a rack send to the other over 2 spines, packet by packet: 4 a link."""
    racks, star = measured_grid(tmp_path)
    alone_s = 2 * 15 / 16 * 8e8 / 100e9

    assert (racks["workers"], racks["routing"], racks["seed"]) == (16, "spray", 5)
    assert ring_s(racks) == pytest.approx(4 * alone_s)
    assert ring_s(star) == pytest.approx(alone_s)
    asked = measured_grid(tmp_path, "--workers", "12")[0]
    assert ring_s(asked) == pytest.approx(2 * 11 / 12 * 8e8 / 100e9)  # all in one rack
    told = run("measure", write(tmp_path, GRID)).stdout
    assert "workers as the scenario places them; routes by spray with seed 5." in told


def test_measure_takes_the_seed_of_the_scenario(tmp_path: Path) -> None:
    """With ECMP the busiest link has as many of the workers' flows as its hashes give it."""
    graph = leaf_spine(2, 2, 12, LINK, LINK)
    network = compile_network(graph)
    counts = set()
    for seed in range(1, 8):
        links: Counter[int] = Counter()
        for worker in range(16):
            source, target = (one % 2 * 12 + one // 2 for one in (worker, (worker + 1) % 16))
            links.update(path(network, source, target, flow_key_plain(seed, 0, worker, (worker + 1) % 16)))
        counts.add(most := max(links.values()))
        found = measured_grid(tmp_path, "--set", f"seed={seed}", "--set", "routing=ecmp")[0]
        assert ring_s(found) == pytest.approx(most * 2 * 15 / 16 * 8e8 / 100e9)
    assert len(counts) > 1


def test_an_error_in_a_graph_file_begins_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "zoo.json"
    path.write_text(json.dumps({"nodes": [{"id": "a"}], "links": []}))
    assert run("show", path).stderr.startswith(
        f"{path}: not node-link JSON: 'edges' is missing, there is a list 'links'\n  call it 'edges'"
    )
    path.write_text(json.dumps({"nodes": [{"id": "a"}, {"id": "b"}], "edges": []}))
    told = run("show", path).stderr.splitlines()
    assert told[0].startswith(f"{path}: topology: node 'a': kind is missing")
    assert told[1].startswith(f"{path}: topology: node 'b': kind is missing")


def test_a_scenario_is_estimated_with_its_own_collectives(tmp_path: Path) -> None:
    """Rings in G groups of g take 2 (g − 1) + 2 (G − 1) steps, and one ring of 12 workers takes 22."""
    scene = tmp_path / "own.yaml"
    scene.write_text(
        "name: own\ntopology: {kind: star, hosts: 12}\nworkers: 12\n"
        "workload: {kind: synthetic, elements: 10}\ncodec: {kind: none}\n"
        "variants:\n"
        "  - name: pairs\n"
        "    collective: {kind: hierarchical, group_size: 2, inner: {kind: ring}, outer: {kind: ring}}\n"
        "  - name: fours\n"
        "    collective: {kind: hierarchical, group_count: 3, inner: {kind: ring}, outer: {kind: ring}}\n"
    )
    (found,) = json.loads(run("measure", str(scene), "--bytes", "80MB", "--json").stdout)["networks"]
    seconds = {timed["collective"]: timed for timed in found["estimates"]}

    names = {name for name in seconds if name.startswith("hier")}
    assert names == {"hierarchical (pairs)", "hierarchical (fours)"}
    for name, steps in (("pairs", 2 * (2 - 1) + 2 * (6 - 1)), ("fours", 2 * (4 - 1) + 2 * (3 - 1))):
        latency_s = seconds[f"hierarchical ({name})"]["latency_s"]
        assert latency_s == pytest.approx(steps / 22 * seconds["ring"]["latency_s"])
