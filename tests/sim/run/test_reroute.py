"""Jobs whose network loses links and switches, and gets them back, while they run."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from netfold.sim.engine.engine_data import Segment
from netfold.sim.network.fabric import unread
from netfold.sim.run.variant import VariantResult
from netfold.topologies.graph import hosts
from netfold.topologies.kinds.leaf_spine import LeafSpine
from tests.sim.scenes import entry_of, refused, simulate, verdict_of

TEXT = """\
name: failing
topology:
  {kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 4, rate: 100Gbps, uplink_rate: 25Gbps, delay: 1us}
routing: adaptive
workers: {count: 8, placement: spread}
workload: {kind: synthetic, elements: 100_000, steps: 3}
codec: {kind: none}
collective: {kind: ring}
"""


def failing(folder: Path, *faults: str, sets: tuple[str, ...] = ()) -> VariantResult:
    return simulate(folder, f"faults=[{', '.join('{' + one + '}' for one in faults)}]", *sets, text=TEXT)


def times_ps(result: VariantResult) -> list[int]:
    return [step.end_ps - step.start_ps for step in result.steps]


def dropped(result: VariantResult) -> dict[str, int]:
    return {link.link: link.dropped_packets for link in result.links if link.dropped_packets}


def flow_bps(graph: nx.Graph) -> int:
    """The most that the hosts of the first leaf can send to those of the second."""
    network = nx.DiGraph()
    for a, b, edge in graph.edges(data=True):
        network.add_edge(a, b, capacity=edge["rate_bps"])
        network.add_edge(b, a, capacity=edge["rate_bps"])
    for host in hosts(graph):
        network.add_edge("all", host) if "leaf0" in graph[host] else network.add_edge(host, "others")
    return int(nx.maximum_flow_value(network, "all", "others"))


def test_a_job_on_three_of_four_spines_is_as_fast_as_they_carry(tmp_path: Path) -> None:
    """Links between leaves and spines are the bottleneck: step times are as the most that they carry."""
    fails = "kind: switch_down, switch: spine0, at: 1ms, reroute: 100us"
    result = failing(tmp_path, fails, sets=("workload.elements=300_000",))
    network = LeafSpine(leaves=2, spines=4, hosts_per_leaf=4, rate_bps=10**11, uplink_rate_bps=25 * 10**9)
    whole = network.graph()
    left = nx.restricted_view(whole, ["spine0"], [])
    before_ps, _, after_ps = times_ps(result)

    assert verdict_of(result) == "pass"
    assert after_ps == pytest.approx(before_ps * flow_bps(whole) / flow_bps(left), rel=0.05)
    assert sum(link.lost_packets for link in result.links) > 0


def test_once_a_spine_is_back_and_routes_use_it_all_is_as_before(tmp_path: Path) -> None:
    fails = "kind: switch_down, switch: spine0, at: 300us, for: 200us, reroute: 20us"
    whole, hit = (failing(tmp_path, *faults, sets=("routing=ecmp",)) for faults in ((), (fails,)))

    assert verdict_of(hit) == "pass"
    assert times_ps(hit)[0] > times_ps(whole)[0]
    assert times_ps(hit)[1:] == times_ps(whole)[1:]
    assert dropped(hit).keys() == {"leaf0->spine0", "leaf1->spine0"}
    assert only_where(hit) == "spine0, for 200us, rerouted after 20us"


def only_where(result: VariantResult) -> str:
    (fault,) = result.faults
    return f"{fault.where}, {fault.extent}"


@pytest.mark.parametrize(
    ("fails", "dead"),
    [
        ("kind: switch_down, switch: spine0, at: 300us, reroute: never", "leaf0->spine0"),
        ("kind: switch_down, switch: leaf1, at: 300us, reroute: 20us", "spine0->leaf1"),
        ("kind: link_down, links: [leaf0-spine*], at: 300us, reroute: 20us", "leaf0->spine0"),
    ],
    ids=["never", "hosts are cut off", "a rack is cut off"],
)
def test_where_no_route_leads_round_a_failure_the_job_stalls_and_says_so(
    tmp_path: Path, fails: str, dead: str
) -> None:
    result = failing(tmp_path, fails, sets=("routing=ecmp",))

    assert verdict_of(result) == "stalled"
    assert f"link {dead} has failed: it dropped " in str(entry_of(result)["diagnosis"])


SPINES = (
    "{kind: leaf_spine, leaves: 2, spines: 3, hosts_per_leaf: 2, rate: 100Gbps, delay: 1us, switch: ideal}"
)
IN_SWITCHES = (
    *(f"topology={SPINES}", "routing=ecmp", "workers={count: 4, placement: pack}"),
    *("workload.elements=30_000", "codec={kind: fixed_point}"),
)
SPINE0 = "kind: switch_down, switch: spine0, at: 12us, reroute: 5us"


def aggregated(folder: Path, keys: str, *faults: str, sets: tuple[str, ...] = ()) -> VariantResult:
    collective = f"collective={{kind: in_network, switch: spine0, {keys}}}"
    return failing(folder, *faults, sets=(*IN_SWITCHES, *sets, collective))


@pytest.mark.parametrize("aggregators", ["one", "tree", "core"])
@pytest.mark.parametrize("program", ["switchml", "tree"])
@pytest.mark.parametrize("skew_us", [1, 7])
def test_trees_are_rebuilt_on_other_switches(
    tmp_path: Path, program: str, aggregators: str, skew_us: int
) -> None:
    """The root fails in the first step, and another spine, perhaps the next root, in a later one."""
    fails = (SPINE0, "kind: switch_down, switch: spine1, at: 40us, reroute: 5us")
    if (program, aggregators) == ("tree", "one"):
        fails = fails[:1]  # the second switch would be between switches of the tree
    skew = f"kind: start_skew, worker: 1, delay: {skew_us}us"
    result = aggregated(tmp_path, f"program: {program}, aggregators: {aggregators}", *fails, skew)
    (facts,) = result.facts.values()
    roots = {str(counts["switch"]) for counts in facts.switches if counts["results"]}

    assert verdict_of(result) == "pass"
    assert "spine0" in roots
    assert roots - {"spine0"} if aggregators != "core" else roots >= {"spine1", "spine2"}


def test_workers_with_a_result_send_for_those_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a result for workers of a rack follow each other, so a failure may come between them."""
    repeated = []

    def noted(segment: Segment) -> Segment:
        repeated.append(segment)
        return unread(segment)

    monkeypatch.setattr("netfold.sim.network.fabric.unread", noted)
    for at_ns in range(14_000, 16_000, 250):
        fails = f"kind: switch_down, switch: spine0, at: {at_ns}ns, reroute: 1us"
        small = ("workload.elements=256", "workload.steps=2")

        assert verdict_of(aggregated(tmp_path, "aggregators: one", fails, sets=small)) == "pass"
    assert repeated


@pytest.mark.parametrize(
    ("keys", "workers", "fails", "why"),
    [
        ("program: atp", 3, SPINE0, "spine0, and in_network with program atp does not rebuild it"),
        (
            "aggregators: tree",
            4,
            SPINE0.replace("spine0", "leaf1"),
            "leaf1, and some of its hosts are cut off, too",
        ),
    ],
)
def test_a_tree_that_is_not_rebuilt_is_reported(
    tmp_path: Path, keys: str, workers: int, fails: str, why: str
) -> None:
    sets = (f"workers={workers}", "codec={kind: fixed_point, factor: 1e6}")
    result = aggregated(tmp_path, keys, fails, sets=sets)
    (facts,) = result.facts.values()

    assert verdict_of(result) == "stalled"
    assert f"if it runs for longer than 17us, its tree loses {why}" in facts.warnings


def test_policies_without_other_routes_are_refused(tmp_path: Path) -> None:
    fails = "faults=[{kind: link_down, links: [leaf0-spine0], at: 0s, reroute: 1ms}]"

    assert refused(tmp_path, fails, "routing=valiant", text=TEXT) == (
        "--set: routing: routing valiant finds no other paths after link_down of leaf0-spine0 "
        "(to the end, rerouted after 1ms)\n"
        "  use ecmp or spray or adaptive or flowlet, or faults with reroute: never"
    )
