"""Estimated times, against what each collective puts on the links of networks with a known bound."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.estimate import Estimate
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.errors import NetfoldError
from netfold.sim.scenario.models import AnyCollectiveSection
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import Network, compile_network
from tests.reference.collectives.programs import Kind
from tests.sim.collectives.schedules.cases import exchanged, flat
from tests.sim.exchanges import FRAME, messages_of
from tests.sim.scenes import LINK, small_star

WORDS = 10**8 // 4
RATE = LINK.rate_bps
WAY_S = 2e-6  # a star's two links


def best(network: Network, workers: int, **keys: Any) -> Estimate:
    section = TypeAdapter(AnyCollectiveSection).validate_python(keys)
    found = COLLECTIVES[section.kind].estimate
    assert found is not None
    return found(section, network, range(workers), WORDS, 0)


@pytest.mark.parametrize(
    ("keys", "shares", "ways"),
    [
        ({"kind": "ring"}, 2 * 7 / 8, 14),
        ({"kind": "ring", "channels": 2}, 2 * 7 / 8, 14),
        ({"kind": "halving_doubling"}, 2 * 7 / 8, 6),
        ({"kind": "tree"}, 2, 6),
        ({"kind": "tree", "trees": 1}, 3, 6),
        ({"kind": "torus_2d", "rows": 2}, 2 * 7 / 8, 8),
        ({"kind": "all_gather"}, 7, 7),
        ({"kind": "parameter_server", "servers": 8}, 2 * 7 / 8, 2),
        ({"kind": "in_network", "program": "switchml"}, 1, 1),  # up to the switch, and down
        (
            {"kind": "hierarchical", "group_size": 4, "inner": {"kind": "ring"}, "outer": {"kind": "ring"}},
            2 * 7 / 8,
            8,
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_on_a_star_it_is_the_closed_form(keys: dict[str, Any], shares: float, ways: int) -> None:
    """The ideal ring of 100 MB over 8 workers takes 14.028 ms: 14 segment times and 14 times 2 us."""
    found = best(compile_network(star(8, LINK, "ideal")), 8, **keys)

    assert found.busy_s == pytest.approx(shares * 32 * WORDS / RATE)
    assert found.latency_s == pytest.approx(ways * WAY_S)
    assert found.seconds == pytest.approx(found.busy_s + found.latency_s)
    if keys == {"kind": "ring"}:
        assert found.seconds == pytest.approx(14.028e-3)


@pytest.mark.parametrize(("workers", "ms"), [(8, 14.028), (64, 16.002), (1024, 20.076)])
def test_the_ideal_ring(workers: int, ms: float) -> None:
    if workers <= 64:
        assert best(small_star(workers), workers, kind="ring").seconds == pytest.approx(ms / 1000, rel=1e-4)


def test_a_thin_uplink_bounds_what_crosses_it() -> None:
    """Two racks of four with one uplink at a tenth of a host's rate."""
    thin = LinkSpec(RATE // 10, LINK.delay_ps, LINK.buffer_bytes)
    network = compile_network(leaf_spine(2, 1, 4, LINK, thin, "ideal"))
    whole = 32 * WORDS / (RATE // 10)
    ring = {"kind": "ring"}
    for keys, share in (
        (ring, 2 * 7 / 8),
        ({"kind": "hierarchical", "inner": ring, "outer": ring}, 1.0),  # 2 (1 − 1 / 2) · M / 4, four times
        ({"kind": "hierarchical", "inner": {"kind": "tree"}, "outer": ring}, 1.0),
        ({"kind": "in_network", "program": "switchml"}, 1.0),
    ):
        found = best(network, 8, **keys)
        assert "leaf" in found.link
        assert "spine" in found.link
        assert found.busy_s == pytest.approx(share * whole)


def test_plain_switches_aggregate_nothing() -> None:
    with pytest.raises(NetfoldError, match="no switch can run switchml; profiles found: plain"):
        best(small_star(8), 8, kind="in_network", program="switchml")


@pytest.mark.parametrize("kind", ["ring", "halving_doubling", "tree"])
def test_no_run_is_faster(kind: str) -> None:
    case = flat(Kind(kind), 8, 8 * 50 * FRAME.elements)
    section = TypeAdapter(AnyCollectiveSection).validate_python({"kind": kind})
    found = COLLECTIVES[kind].estimate
    assert found is not None
    bound = found(section, small_star(8), range(8), case.size, 0)

    end_ps = exchanged(case, small_star(8), messages_of(Merge.ADD, 8, case.size)).end_ps
    headers = FRAME.overhead_bytes / (4 * FRAME.elements)
    assert bound.seconds * 1e12 < end_ps < 2 * (1 + headers) * bound.seconds * 1e12 + 1e8


def test_one_worker_needs_no_time() -> None:
    for kind in ("ring", "halving_doubling", "tree"):
        assert best(small_star(2), 1, kind=kind).seconds == 0
