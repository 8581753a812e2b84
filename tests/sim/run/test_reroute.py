"""Jobs whose network loses links and switches, and gets them back, while they run."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

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


def test_policies_without_other_routes_are_refused(tmp_path: Path) -> None:
    fails = "faults=[{kind: link_down, links: [leaf0-spine0], at: 0s, reroute: 1ms}]"

    assert refused(tmp_path, fails, "routing=valiant", text=TEXT) == (
        "--set: faults.0.reroute: routing valiant finds no other paths when links have failed\n"
        "  use routing: ecmp or spray or adaptive or flowlet, or reroute: never"
    )
