"""The plan: every reason why a scenario cannot be run, in full, and what holding a plan guarantees."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from homomorphic.fixed_point import FixedPoint
from homomorphic.lossless import Lossless
from sim.engine.model import Job
from sim.errors import ScenarioError
from sim.plan import RingPlan, VariantPlan
from sim.units import TIME
from switch.profiles import PROFILES
from tests.sim.scenes import DENSE, LINK, RING, TINY, plan
from topologies.exchange import to_json
from topologies.leaf_spine import leaf_spine
from topologies.star import star

LEAF_SPINE = "topology={kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2}"
FROM_FILE = "topology={kind: file, path: net.json}"
COLLECTIVE = "kind: in_network\n  frame: udp-256\n"

MISTAKES = {
    "more workers than hosts": (
        "workers: 3",
        "workers: 5",
        "4: workers: topology 'star': cannot place 5 workers on 4 hosts, one a host; "
        "use at most 4 workers or a larger topology",
    ),
    "unknown host": (
        "workers: 3",
        "workers: {count: 2, placement: [h0, h11]}",
        "4: workers: topology 'star': there is no host 'h11' (did you mean 'h1'?); "
        "there are 4 hosts, from 'h0' to 'h3'",
    ),
    "one host for two workers": (
        "workers: 3",
        "workers: {count: 2, placement: [h0, h0]}",
        "4: workers: topology 'star': host 'h0' is named for 2 workers; a host takes one, so name another",
    ),
    "too few hosts named": (
        "workers: 3",
        "workers: {count: 3, placement: [h0, h1]}",
        "4: workers: topology 'star': 2 hosts are named for 3 workers; name exactly one a worker",
    ),
    "mistyped profile": (
        "switch: tofino1",
        "switch: tofino",
        "3: topology.switch: there is no switch profile 'tofino'\n"
        "  did you mean 'tofino1'? known: plain, ideal, tofino1",
    ),
    "profile like no other": (
        "switch: tofino1",
        "switch: xyz",
        "3: topology.switch: there is no switch profile 'xyz'\n  known: plain, ideal, tofino1",
    ),
    "no programmable switch": (
        "switch: tofino1",
        "switch: plain",
        "3: topology.switch: topology 'star': no switch can aggregate: profiles found are 'plain' on 1; "
        "give one a profile that can\n  programmable profiles: ideal, tofino1",
    ),
    "unknown switch": (
        COLLECTIVE,
        COLLECTIVE + "  switch: s1\n",
        "12: collective.switch: there is no switch 's1'\n  switches: s0",
    ),
    "mistyped switch": (
        COLLECTIVE,
        COLLECTIVE + "  switch: s00\n",
        "12: collective.switch: there is no switch 's00'\n  did you mean 's0'? switches: s0",
    ),
    "a host as the switch": (
        COLLECTIVE,
        COLLECTIVE + "  switch: h1\n",
        "12: collective.switch: there is no switch 'h1'\n  switches: s0",
    ),
    "float sums in a switch": (
        "kind: fixed_point",
        "kind: none",
        "8: codec: codec 'none' needs float_add, which switch registers cannot do (they do add, or, max)\n"
        "  use codec fixed_point or lossless, or a collective between hosts such as ring",
    ),
    "slots that are no whole messages": (
        COLLECTIVE,
        "kind: in_network\n  message_packets: 4\n  slots: 510\n",
        "12: collective.slots: 510 slots cannot be divided into messages of 4 packets\n  use a multiple of 4",
    ),
    "fewer slots than a message": (
        COLLECTIVE,
        "kind: in_network\n  message_packets: 4\n  slots: 2\n",
        "12: collective.slots: 2 slots cannot be divided into messages of 4 packets\n  use a multiple of 4",
    ),
    "a window that is never acknowledged": (
        COLLECTIVE,
        "kind: ring\n  ack_every: 9\n  window: 8\n",
        "12: collective.window: a window of 8 packets is smaller than ack_every, 9: "
        "no acknowledgement would ever be sent\n  use at least 9",
    ),
    "no such link": (
        COLLECTIVE,
        COLLECTIVE + "faults:\n  - {kind: loss, rate: 1%}\n  - kind: loss\n    rate: 1%\n"
        "    links: ['h*', h0->s1]\n",
        "16: faults.1.links: no link matches 'h0->s1'\n"
        "  did you mean 'h0->s0'? links are named like 'h0->s0'",
    ),
    "a pattern like no link": (
        COLLECTIVE,
        COLLECTIVE + "faults: [{kind: loss, rate: 1%, links: ['zz']}]\n",
        "12: faults.0.links: no link matches 'zz'\n  links are named like 'h0->s0'",
    ),
    "too many slots": (
        COLLECTIVE,
        COLLECTIVE + "  slots: 11265\n",
        "9: collective: 11265 slots need register arrays of 22530 entries (two versions), "
        "tofino1 has 22528: 11264 slots at most",
    ),
}


def refused(folder: Path, *sets: str, text: str = TINY) -> str:
    """The error's text, without the folder of the file."""
    with pytest.raises(ScenarioError) as caught:
        plan(folder, *sets, text=text)
    return str(caught.value).removeprefix(f"{folder}/")


def only(folder: Path, *sets: str, text: str = TINY) -> VariantPlan:
    (variant,) = plan(folder, *sets, text=text).variants
    return variant


def job_of(variant: VariantPlan) -> Job:
    assert isinstance(variant.collective, Job)
    return variant.collective


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_full(tmp_path: Path, mistake: str) -> None:
    old, new, told = MISTAKES[mistake]
    assert TINY.count(old) == 1

    assert f"tiny.yaml:{told}" == refused(tmp_path, text=TINY.replace(old, new))


def test_a_switch_that_only_forwards(tmp_path: Path) -> None:
    told = refused(tmp_path, "topology.switch=plain", "collective.switch=s0")

    assert told == (
        "tiny.yaml:9: collective: switch profile 'plain' only forwards; "
        "aggregation needs a programmable switch"
    )


def test_more_workers_than_bits_in_the_bitmap(tmp_path: Path) -> None:
    plan(tmp_path, "topology.hosts=33", "workers=32")

    assert refused(tmp_path, "topology.hosts=33", "workers=33") == (
        "tiny.yaml:9: collective: 33 workers: SwitchML's bitmap is one 32-bit word, so 32 at most"
    )


def test_the_ring_needs_no_switch_and_no_bitmap(tmp_path: Path) -> None:
    variant = only(tmp_path, "topology.hosts=33", "workers=33", "topology.switch=plain", RING, DENSE)

    assert isinstance(variant.collective, RingPlan)


def test_slots_up_to_what_the_registers_hold(tmp_path: Path) -> None:
    assert job_of(only(tmp_path, "collective.slots=11264")).slots_count == 11264
    # The ideal switch has no such limit.
    ideal = only(tmp_path, "collective.slots=100000", "topology.switch=ideal")
    assert job_of(ideal).slots_count == 100_000


def test_a_window_of_one_acknowledgement_is_enough(tmp_path: Path) -> None:
    assert only(tmp_path, "collective={kind: ring, window: 9, ack_every: 9}", DENSE)


def test_an_error_names_where_the_command_line_put_the_value(tmp_path: Path) -> None:
    assert refused(tmp_path, "collective.slots=3", "collective.frame=roce-1024") == (
        "--set: collective.slots: 3 slots cannot be divided into messages of 4 packets\n  use a multiple of 4"
    )


def test_an_unknown_profile_in_a_topology_file(tmp_path: Path) -> None:
    graph = star(4, LINK, "tofino1")
    graph.nodes["s0"]["profile"] = "tofino"
    (tmp_path / "net.json").write_text(to_json(graph))

    told = refused(tmp_path, FROM_FILE)

    assert (
        "there is no switch profile 'tofino'\n  did you mean 'tofino1'? known: plain, ideal, tofino1" in told
    )


def test_variants_are_resolved_in_order_and_each_by_its_own_settings(tmp_path: Path) -> None:
    text = TINY + "variants:\n  - name: b\n  - {name: a, workers: 2}\n"

    resolved = plan(tmp_path, text=text)

    assert [(one.name, len(one.hosts)) for one in resolved.variants] == [("b", 3), ("a", 2)]


# What holding a VariantPlan means: one test per promise of its docstring.


def test_every_node_and_link_is_a_row_and_delays_into_switches_include_a_pass(tmp_path: Path) -> None:
    variant = only(tmp_path, LEAF_SPINE, RING, DENSE)
    network = variant.network

    graph = leaf_spine(2, 2, 2, LINK, LINK)
    assert set(network.nodes) == set(graph.nodes)
    assert set(network.link_names) == {f"{a}->{b}" for a, b in nx.DiGraph(graph).edges}
    for row, name in enumerate(network.link_names):
        source, target = name.split("->")
        assert (source, target) == (
            network.nodes[network.link_source[row]],
            network.nodes[network.link_target[row]],
        )
        pass_ps = 0 if target.startswith("h") else PROFILES["tofino1"].pass_latency_ps
        assert network.delay_ps[row] == 1_000_000 + pass_ps


def test_every_worker_has_a_host_of_its_own(tmp_path: Path) -> None:
    for placement in ("pack", "spread", "[h3, h0, h2]"):
        variant = only(tmp_path, LEAF_SPINE, f"workers={{count: 3, placement: {placement}}}")
        names = [variant.network.nodes[host] for host in variant.hosts]

        expected = {"pack": ["h0", "h1", "h2"], "spread": ["h0", "h2", "h1"]}
        assert names == expected.get(placement, ["h3", "h0", "h2"])


def test_every_switch_profile_exists(tmp_path: Path) -> None:
    # Even of a switch that nothing aggregates on.
    assert "'tofinoo'" in refused(tmp_path, LEAF_SPINE, "topology.switch=tofinoo", RING, DENSE)


def test_an_in_network_job_fits_its_switch(tmp_path: Path) -> None:
    variant = only(tmp_path, "collective.frame=roce-1024", "collective.slots=64", "collective.timeout=2ms")
    job = job_of(variant)

    assert variant.network.nodes[job.switch] == "s0"
    assert job.hosts == variant.hosts
    assert (job.slots_count, job.unit_packets, job.frame.elements) == (64, 4, 256)
    assert job.slots_count % job.unit_packets == 0
    assert (job.timeout_ps, job.first_timeout_ps, job.timeout_max_ps) == (2 * 10**9, 2 * 10**9, 10**11)


def test_the_first_timeout_may_differ(tmp_path: Path) -> None:
    assert job_of(only(tmp_path, "collective.first_timeout=3ms")).first_timeout_ps == 3 * 10**9


def test_a_job_gets_the_nearest_switch_that_can_aggregate(tmp_path: Path) -> None:
    graph = leaf_spine(2, 2, 2, LINK, LINK, "plain")
    graph.nodes["leaf1"]["profile"] = graph.nodes["spine1"]["profile"] = "ideal"
    (tmp_path / "net.json").write_text(to_json(graph))

    # Workers h0, h1, h2: 3 + 3 + 1 hops to leaf1, 2 + 2 + 2 to spine1. On leaf1 alone: 1 + 1.
    spine, leaf = (
        only(tmp_path, FROM_FILE, f"workers={{count: {len(hosts)}, placement: {json.dumps(hosts)}}}")
        for hosts in (["h0", "h1", "h2"], ["h2", "h3"])
    )
    assert spine.network.nodes[job_of(spine).switch] == "spine1"
    assert leaf.network.nodes[job_of(leaf).switch] == "leaf1"


@pytest.mark.parametrize(("frame", "passes"), [("udp-256", 1), ("roce-1024", 10)])
def test_results_pass_a_loopback_link_of_the_switch(tmp_path: Path, frame: str, passes: int) -> None:
    variant = only(tmp_path, f"collective.frame={frame}")
    network, link = variant.network, job_of(variant).loopback_link

    assert network.link_names[link] == "s0->s0"
    assert network.link_source[link] == network.link_target[link] == job_of(variant).switch
    assert network.rate_bps[link] == PROFILES["tofino1"].loopback_rate_bps
    assert network.delay_ps[link] == passes * PROFILES["tofino1"].pass_latency_ps


def test_an_ideal_switch_has_no_loopback(tmp_path: Path) -> None:
    variant = only(tmp_path, "topology.switch=ideal")

    assert job_of(variant).loopback_link == -1
    assert "s0->s0" not in variant.network.link_names


def test_fixed_point_takes_the_networks_unit_for_its_blocks(tmp_path: Path) -> None:
    assert FixedPoint(64) == only(tmp_path).codec
    assert FixedPoint(1024) == only(tmp_path, "collective.frame=roce-1024").codec
    assert FixedPoint(100) == only(tmp_path, "codec.block_elements=100").codec
    assert Lossless() == only(tmp_path, "codec={kind: lossless}").codec


def test_a_fault_decides_over_those_after_it_and_spares_the_inside_of_a_switch(tmp_path: Path) -> None:
    variant = only(
        tmp_path, "faults=[{kind: loss, rate: 5%, links: ['h1->*', 's0->h2']}, {kind: loss, rate: 1%}]"
    )

    rates = dict(zip(variant.network.link_names, variant.loss.tolist(), strict=True))
    special = {"h1->s0": 0.05, "s0->h2": 0.05, "s0->s0": 0.0}
    assert rates == {name: special.get(name, 0.01) for name in variant.network.link_names}
    assert np.float64 == variant.loss.dtype


def test_without_faults_nothing_is_lost(tmp_path: Path) -> None:
    assert only(tmp_path).loss.tolist() == [0.0] * 9


@pytest.mark.parametrize(
    ("frame", "elements_per_s"),
    # Words of a packet per byte on the wire: 64/332, 256/1100 and, in the middle of a message, 256/1106.
    [("udp-256", 2.4096e9), ("udp-1024", 2.9091e9), ("roce-1024", 2.8933e9)],
)
def test_the_bound_of_the_wire(tmp_path: Path, frame: str, elements_per_s: float) -> None:
    (bound,) = only(tmp_path, f"collective.frame={frame}").references
    (slow,) = only(tmp_path, f"collective.frame={frame}", "topology.rate=10Gbps").references

    assert bound.label == "wire bound, dense"
    assert bound.elements_per_s == pytest.approx(elements_per_s, rel=1e-4)
    assert slow.elements_per_s == pytest.approx(elements_per_s / 10, rel=1e-4)


def test_published_figures_come_before_the_bound(tmp_path: Path) -> None:
    published = "published=[{label: paper, elements_per_s: 1e9, source: somewhere}]"

    assert [one.label for one in only(tmp_path, published).references] == ["paper", "wire bound, dense"]
    assert [one.label for one in only(tmp_path, published, RING, DENSE).references] == ["paper"]


def test_routes_are_the_seeds(tmp_path: Path) -> None:
    first, again, other = (job_of(only(tmp_path, f"seed={seed}")).routes for seed in (1, 1, 2))

    assert first == again != other
    assert len(set(first)) == 3
    assert all(0 <= route < 2**31 for route in first)


@pytest.mark.parametrize(("written", "found"), [("0s", "0ps"), ("1ps", "1ps"), ("16825280ps", "16.82528us")])
def test_a_timeout_that_expires_while_all_is_well(tmp_path: Path, written: str, found: str) -> None:
    """It would send everything again and again, and in no time if it is 0."""
    # Up: 512 packets of 332 B in a row, 1 us and a pass. Through: a second pass. Down: one packet, 1 us.
    round_trip_ps = 512 * 332 * 80 + 1_000_000 + 600_000 + 600_000 + 332 * 80 + 1_000_000
    assert round_trip_ps == 16_825_280

    for key in ("timeout", "first_timeout"):
        assert refused(tmp_path, f"collective.{key}={written}") == (
            f"--set: collective.{key}: {found} is too short: a full window's round trip takes 16.82528us "
            "on the idle network, so packets would be sent again without need\n"
            "  use a longer timeout, or a smaller window"
        )
    assert plan(tmp_path, "collective.timeout=16825281ps")


def test_a_ring_has_as_little_use_for_a_short_timeout(tmp_path: Path) -> None:
    # Through the switch: a packet twice, a window once; the acknowledgement is charged as a packet.
    size_bytes = 82 + 1024 + 16 + 4
    trip_ps = size_bytes * 80 * (2 + 511) + 2_600_000 + size_bytes * 80 * 2 + 2_600_000

    ring = "collective={{kind: ring, timeout: {}ps}}"
    assert refused(tmp_path, ring.format(trip_ps), DENSE) == (
        f"--set: collective.timeout: {TIME.format(trip_ps)} is too short: a full window's round trip takes "
        f"{TIME.format(trip_ps)} on the idle network, so packets would be sent again without need\n"
        "  use a longer timeout, or a smaller window"
    )
    assert plan(tmp_path, ring.format(trip_ps + 1), DENSE)


def test_one_worker_is_a_job(tmp_path: Path) -> None:
    assert len(only(tmp_path, "workers=1").hosts) == 1
    assert len(only(tmp_path, "workers=1", RING, DENSE).hosts) == 1
