"""What holding a plan guarantees, promise by promise."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from netfold.homomorphic.codecs.dense.kinds import FixedPoint
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.switch.profiles import PROFILES
from netfold.topologies.files.node_link import to_json
from netfold.topologies.kinds.leaf_spine import leaf_spine
from tests.sim.scenes import DENSE, LINK, RING, TINY, job_of, job_plan, only, plan, refused

LEAF_SPINE = "topology={kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2}"
FROM_FILE = "topology={kind: file, path: net.json}"


def test_variants_are_resolved_in_order_and_each_by_its_own_settings(tmp_path: Path) -> None:
    text = TINY + "variants:\n  - name: b\n  - {name: a, workers: 2}\n"

    resolved = plan(tmp_path, text=text)

    assert [(one.name, len(job_plan(one).hosts)) for one in resolved.variants] == [("b", 3), ("a", 2)]


def test_every_worker_has_a_host_of_its_own(tmp_path: Path) -> None:
    for placement in ("pack", "spread", "[h3, h0, h2]"):
        variant = only(tmp_path, LEAF_SPINE, f"workers={{count: 3, placement: {placement}}}")
        names = [variant.network.nodes[host] for host in job_plan(variant).hosts]

        expected = {"pack": ["h0", "h1", "h2"], "spread": ["h0", "h2", "h1"]}
        assert names == expected.get(placement, ["h3", "h0", "h2"])


def test_an_in_network_job_fits_its_switch(tmp_path: Path) -> None:
    variant = only(tmp_path, "collective.frame=roce-1024", "collective.slots=64", "collective.timeout=2ms")
    job = job_of(variant)

    assert variant.network.nodes[job.switch] == "s0"
    assert job.hosts == job_plan(variant).hosts
    assert (job.slots_count, job.unit_packets, job.frame.elements) == (64, 4, 256)
    assert job.slots_count % job.unit_packets == 0
    assert (job.timeout_ps, job.first_timeout_ps, job.timeout_max_ps) == (2 * 10**9, 2 * 10**9, 10**11)


def test_a_job_gets_the_nearest_switch_that_can_aggregate(tmp_path: Path) -> None:
    """Uplinks carry what the hosts of a rack send, so all switches are equally fast."""
    graph = leaf_spine(2, 2, 2, LINK, dataclasses.replace(LINK, rate_bps=2 * LINK.rate_bps), "plain")
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
    assert job_of(only(tmp_path, "topology.switch=ideal")).loopback_link == -1


def test_fixed_point_takes_the_networks_unit_for_its_blocks(tmp_path: Path) -> None:
    assert FixedPoint(64) == job_plan(only(tmp_path)).codec
    assert FixedPoint(1024) == job_plan(only(tmp_path, "collective.frame=roce-1024")).codec
    assert FixedPoint(100) == job_plan(only(tmp_path, "codec.block_elements=100")).codec
    assert Lossless() == job_plan(only(tmp_path, "codec={kind: lossless}")).codec


@pytest.mark.parametrize(
    ("frame", "elements_per_s"),
    # Words of a packet per byte on the wire: 64/332, 256/1100 and, in the middle of a message, 256/1106.
    [("udp-256", 2.4096e9), ("udp-1024", 2.9091e9), ("roce-1024", 2.8933e9)],
)
def test_the_bound_of_the_wire(tmp_path: Path, frame: str, elements_per_s: float) -> None:
    (bound,) = job_plan(only(tmp_path, f"collective.frame={frame}")).references
    (slow,) = job_plan(only(tmp_path, f"collective.frame={frame}", "topology.rate=10Gbps")).references

    assert bound.label == "wire bound, dense"
    assert bound.elements_per_s == pytest.approx(elements_per_s, rel=1e-4)
    assert slow.elements_per_s == pytest.approx(elements_per_s / 10, rel=1e-4)


def test_published_figures_come_before_the_bound(tmp_path: Path) -> None:
    published = "published=[{label: paper, elements_per_s: 1e9, source: somewhere}]"

    assert [one.label for one in job_plan(only(tmp_path, published)).references] == [
        "paper",
        "wire bound, dense",
    ]
    assert [one.label for one in job_plan(only(tmp_path, published, RING, DENSE)).references] == ["paper"]


def test_routes_are_the_seeds(tmp_path: Path) -> None:
    first, again, other = (job_of(only(tmp_path, f"seed={seed}")).routes for seed in (1, 1, 2))

    assert first == again != other
    assert len(set(first)) == 3
    assert all(0 <= route < 2**31 for route in first)


def test_routes_that_do_not_fit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.sim.resolve.variant.available_bytes", lambda: 1)

    assert refused(tmp_path) == (
        "tiny.yaml:3: topology: the routes between 1 switches take up to 1.86e-09 GiB, "
        "9.31e-10 GiB of memory are free for them\n"
        "  use fewer switches, or topologies that variants have in common"
    )
