"""The routing of a scenario: where it is refused, where it does not apply, and what it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenes import DENSE, RING, TINY, job_plan, measure, only, plan, refused

SPINES = TINY.replace("{kind: star, hosts: 4,", "{kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 2,")
PLACED = "workers={count: 4, placement: spread}"


def test_a_scenario_without_routing_has_equal_cost_paths(tmp_path: Path) -> None:
    assert only(tmp_path).network.policy.kind == "ecmp"


def test_variants_share_the_routes_of_a_topology_and_a_policy(tmp_path: Path) -> None:
    text = SPINES + "variants:\n  - name: a\n  - {name: b, routing: spray}\n  - {name: c, routing: ecmp}\n"
    a, b, c = plan(tmp_path, text=text).variants

    assert (a.network.policy.kind, b.network.policy.kind) == ("ecmp", "spray")
    assert a.network.tables is c.network.tables
    assert a.network.tables is not b.network.tables


def test_an_unknown_policy(tmp_path: Path) -> None:
    assert "allowed: ecmp, spray, valiant, dimension_order" in refused(tmp_path, "routing=fastest")


def test_dimension_order_is_refused_where_there_are_no_dimensions(tmp_path: Path) -> None:
    assert refused(tmp_path, "routing=dimension_order") == (
        "--set: routing: routing dimension_order needs the sizes of the dimensions, "
        "and this topology has none\n"
        "  use routing: ecmp, or a torus or a hypercube"
    )


@pytest.mark.parametrize("routing", ["spray", "valiant"])
def test_jobs_on_switches_are_told_that_the_policy_is_not_for_them(tmp_path: Path, routing: str) -> None:
    told = job_plan(only(tmp_path, f"routing={routing}", text=SPINES)).warnings
    between_hosts = job_plan(only(tmp_path, f"routing={routing}", RING, DENSE, text=SPINES)).warnings

    assert [warning for warning in told if "routing" in warning] == [
        f"routing {routing} is for packets between hosts: packets between workers and switches that add "
        "them up keep one shortest path per worker, as the switches need them in order"
    ]
    assert not [warning for warning in between_hosts if "routing" in warning]
    assert not [warning for warning in job_plan(only(tmp_path, text=SPINES)).warnings if "routing" in warning]


def test_a_sprayed_ring_counts_reordering_and_others_do_not(tmp_path: Path) -> None:
    """Two flows leave each leaf, over links of the rate of the hosts': sprayed packets queue at spines."""
    sets = (RING, DENSE, PLACED, "workload.elements=200000")
    plain, sprayed = (measure(tmp_path, f"routing={one}", *sets, text=SPINES) for one in ("ecmp", "spray"))

    assert "packets_reordered" not in plain
    assert sprayed["packets_reordered"] > 0
    assert sprayed["packets_retransmitted_in_vain"] <= sprayed["packets_retransmitted"]
    assert sprayed["bit_exact"] == plain["bit_exact"]
    assert sprayed["packets"] >= plain["packets"]
