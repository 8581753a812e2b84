"""Timeouts by default, and which of several equal ways packets take: what the documents promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic.kernels.keyed import mix_plain, splitmix64_plain
from netfold.sim.plan.crowding import crowding_warnings
from netfold.sim.run.run import VariantResult
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network, path, planned_key
from tests.sim.scenes import (
    DENSE,
    LINK,
    RING,
    TINY,
    job_of,
    job_plan,
    measure,
    only,
    plan,
    refused,
    run,
    simulate,
)

# Eight spines: that all of many ways go over one of them by chance is out of the question.
SPINES = """\
name: spines
seed: 7
topology: {kind: leaf_spine, leaves: 2, spines: 8, hosts_per_leaf: 8}
workers: {count: 16, placement: spread}
workload: {kind: synthetic, elements: 2000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: udp-256}
"""
TREE = ("collective.aggregators=tree", "collective.switch=leaf0")


def used(result: VariantResult) -> set[str]:
    """Uplinks of leaf 1 that carried anything."""
    return {
        link.link
        for link in result.links
        if link.source == "leaf1" and link.packets and "spine" in link.target
    }


def test_a_ring_waits_for_four_windows(tmp_path: Path) -> None:
    """512 packets of 1126 B at 100 Gbps, and there and back; SwitchML as released 10 ms."""
    ring = job_plan(only(tmp_path, RING, DENSE)).collective

    assert ring.timeout_ps == pytest.approx(4 * (512 * 1126 * 80 + 5 * 10**6), rel=0.02)
    assert job_of(only(tmp_path, "collective.timeout=released")).timeout_ps == 10**10


SLOW = "topology={kind: star, hosts: 16, links: [{match: h3-s0, rate: 10Gbps}]}"
SHARED = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 8, uplink_rate: 40Gbps}"


@pytest.mark.parametrize(
    ("network", "keys", "windows"),
    [
        (SLOW, "kind: halving_doubling", 2 * 4),  # with each of 4 partners, to reduce and to gather
        (SLOW, "kind: ring", 1),
        (SLOW, "kind: torus_2d, rows: 4", 2),  # to the next of its row, and of its column
        (SLOW, "kind: hierarchical, group_size: 4, inner: {kind: ring}, outer: {kind: ring}", 2),
        (SLOW, "kind: hierarchical, group_size: 4, inner: {kind: halving_doubling}, outer: {kind: ring}", 3),
        (SHARED, "kind: halving_doubling", 2 * 8 / 4),  # of 8 pairs, on a link that is four times as fast
    ],
)
def test_a_timeout_counts_the_windows_of_all_pairs_on_a_link(
    tmp_path: Path, network: str, keys: str, windows: float
) -> None:
    """512 packets of 1126 B each at 10 Gbps, all before the last; several buckets have as many each."""
    window_ps = 512 * 1126 * 800
    sets = (network, "workers=16", DENSE)
    for buckets in (1, 3):
        more = f"overlap.buckets_in_flight={buckets}"
        found = job_plan(only(tmp_path, *sets, f"collective={{{keys}}}", more)).collective
        expected = 4 * (buckets * windows * window_ps + 4 * 10**6)

        assert found.timeout_ps == pytest.approx(expected, rel=0.02)


def test_the_workers_of_a_tree_go_the_same_way(tmp_path: Path) -> None:
    """sim/README: one key picks among equal ways for all workers of a job."""
    job = job_of(only(tmp_path, *TREE, text=SPINES))
    assert len({*job.routes, *(branch.route for branch in job.branches)}) == 1

    # A switch that only forwards leaves the streams of leaf 1 apart; they still share one way.
    alone = simulate(tmp_path, *TREE, "workers={count: 2, placement: [h0, h8]}", text=SPINES)
    assert len(used(alone)) == 1
    assert len(used(simulate(tmp_path, *TREE, text=SPINES))) == 1


def test_the_workers_of_one_switch_go_ways_of_their_own(tmp_path: Path) -> None:
    """sim/README: equal-cost paths are chosen by a hash per worker and job."""
    one = simulate(tmp_path, "collective.aggregators=one", "collective.switch=leaf0", text=SPINES)

    assert len(used(one)) > 2


def test_rings_go_ways_of_their_own(tmp_path: Path) -> None:
    """Eight workers of each rack send to the other rack: by worker, by job, and by seed."""
    rings = ("collective={kind: ring}", "codec={kind: none}")
    found = used(simulate(tmp_path, *rings, text=SPINES))
    assert len(found) > 2

    assert found != used(simulate(tmp_path, *rings, "seed=8", text=SPINES))
    pairs = (
        "jobs=["
        + ", ".join(f"{{name: j{n}, workers: {{count: 2, placement: [h{n}, h{8 + n}]}}}}" for n in range(8))
        + "]"
    )
    assert len(used(simulate(tmp_path, *rings, pairs, text=SPINES))) > 2


LOSSY = """\
name: lossy
seed: 1
topology: {kind: star, hosts: 4}
workers: 3
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective: {kind: in_network, timeout: released}
faults: [{kind: loss, rate: 1%}]
variants:
  - name: switchml
  - name: ring
    collective: {kind: ring, timeout: 1ms}
"""
NOTE = (
    "switchml: packets are lost and timeouts differ, some as released: 1ms (ring), 10ms (switchml); "
    "timers decide such comparisons; to exclude them, use collective.timeout: auto, or give all jobs the same"
)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((), [NOTE]),
        (("faults=[{kind: burst_loss, good_to_bad: 1%, bad_to_good: 20%}]",), [NOTE]),
        (("variants.switchml.collective.timeout=1ms",), []),  # the ring's by default is the same
        (
            ("variants.switchml.collective.timeout=2ms", "variants.ring.collective.timeout=3ms"),
            [],
        ),  # on purpose
    ],
)
def test_timers_that_decide_are_told_of(tmp_path: Path, sets: tuple[str, ...], expected: list[str]) -> None:
    assert run(tmp_path, *sets, text=LOSSY).summary["warnings"] == expected


FOUR_SPINES = TINY.replace(
    "{kind: star, hosts: 4,", "{kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 2,"
)
PLACED = "workers={count: 4, placement: spread}"


def test_variants_share_the_routes_of_a_topology_and_a_policy(tmp_path: Path) -> None:
    text = (
        FOUR_SPINES + "variants:\n  - name: a\n  - {name: b, routing: spray}\n  - {name: c, routing: ecmp}\n"
    )
    a, b, c = plan(tmp_path, text=text).variants

    assert (a.network.policy.kind, b.network.policy.kind) == ("ecmp", "spray")
    assert a.network.tables is c.network.tables
    assert a.network.tables is not b.network.tables


def test_dimension_order_is_refused_where_there_are_no_dimensions(tmp_path: Path) -> None:
    assert refused(tmp_path, "routing=dimension_order") == (
        "--set: routing: routing dimension_order needs the sizes of the dimensions, "
        "and this topology has none\n"
        "  use routing: ecmp, or a torus or a hypercube"
    )


@pytest.mark.parametrize("routing", ["spray", "valiant"])
def test_jobs_on_switches_are_told_that_the_policy_is_not_for_them(tmp_path: Path, routing: str) -> None:
    told = job_plan(only(tmp_path, f"routing={routing}", text=FOUR_SPINES)).warnings
    between_hosts = job_plan(only(tmp_path, f"routing={routing}", RING, DENSE, text=FOUR_SPINES)).warnings

    assert [warning for warning in told if "routing" in warning] == [
        f"routing {routing} is for packets between hosts: packets between workers and switches that add "
        "them up keep one shortest path per worker, as the switches need them in order"
    ]
    assert not [warning for warning in between_hosts if "routing" in warning]
    assert not [
        warning for warning in job_plan(only(tmp_path, text=FOUR_SPINES)).warnings if "routing" in warning
    ]


def test_a_sprayed_ring_counts_reordering_and_others_do_not(tmp_path: Path) -> None:
    """Two flows leave each leaf, over links of the rate of the hosts': sprayed packets queue at spines."""
    sets = (RING, DENSE, PLACED, "workload.elements=200000")
    plain, sprayed = (
        measure(tmp_path, f"routing={one}", *sets, text=FOUR_SPINES) for one in ("ecmp", "spray")
    )

    assert "packets_reordered" not in plain
    assert sprayed["packets_reordered"] > 0
    assert sprayed["packets_retransmitted_in_vain"] <= sprayed["packets_retransmitted"]
    assert sprayed["bit_exact"] == plain["bit_exact"]
    assert sprayed["packets"] >= plain["packets"]


STREAMS = TINY.replace(
    "{kind: star, hosts: 4,", "{kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 3,"
)
ONE = ("collective.switch=leaf1", "collective.aggregators=one")


@pytest.mark.parametrize(
    ("spines", "told"),
    [
        ([0] * 8, (8, 1)),
        ([0, 1, 2] * 3, (9, 3)),
        ([0, 1, 2, 3] * 2, None),  # half of 8
        ([5, 5, 5], (3, 1)),
        ([5, 5], None),
        ([5, 5, 1], None),
    ],
)
def test_flows_on_fewer_than_half_of_what_they_could_fill(
    spines: list[int], told: tuple[int, int] | None
) -> None:
    """9 hosts on each of two leaves, 8 spines: 8 links up from the leaf, and 8 down to the other."""
    network = compile_network(leaf_spine(2, 8, 9, LINK, LINK))
    ways = [path(network, host, 9 + host, planned_key(spine)) for host, spine in enumerate(spines)]
    found = crowding_warnings(network, ways)

    assert [sentence.split(":")[0] for sentence in found] == [
        f"hashes put {told[0]} flows on {told[1]} of the 8 links from tier {low} to tier {high} "
        "that their shortest paths have"
        for low, high in ((1, 2), (2, 1))
        if told
    ]


def test_streams_to_a_switch_are_told_when_they_share_a_spine(tmp_path: Path) -> None:
    """Three workers of leaf0 whose switch is leaf1, over four spines: one in 16 seeds puts them on one."""
    crowded = []
    for seed in range(1, 41):
        variant = only(tmp_path, f"seed={seed}", *ONE, text=STREAMS)
        leaf = variant.network.nodes.index("leaf0")
        spines = set()
        for worker in range(3):
            draw = mix_plain(seed, 7, 0, worker, -1, 0) >> 34
            key = draw - draw % 840 + (worker - 1) % 840
            spines.add(splitmix64_plain(key * 2**32 + leaf) % 4)
        told = [one for one in job_plan(variant).warnings if one.startswith("hashes put 3 flows on 1 of ")]

        assert bool(told) == (len(spines) == 1)
        crowded.append(bool(told))

    assert 0 < sum(crowded) < 10
