"""Orders of workers that follow the topology: islands are left and entered on one rail."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from netfold.kinds import registered
from netfold.sim.collectives.kinds.ring import Ring
from netfold.sim.collectives.kinds.tree import Tree
from netfold.sim.collectives.schedule_costs import Routed
from netfold.topologies.kind import Topology
from netfold.topologies.network import Network, compile_network
from tests.examples import nightly
from tests.sim.scenes import entry_of, simulated

GPUS = 8


def rails_of(islands: int) -> Network:
    kind = registered(Topology)["rail_optimized"]
    return compile_network(kind(islands_per_pod=islands, gpus_per_island=GPUS, spines=2).graph())


@pytest.mark.parametrize("islands", [1, 2, 5, 32])
def test_islands_are_left_and_entered_on_one_rail_another_one_for_each_channel(islands: int) -> None:
    network, ring = rails_of(islands), Ring(kind="ring", channels=GPUS, order="topology")
    orders = ring.orders(network, range(islands * GPUS))
    assert all(sorted(order) == list(range(islands * GPUS)) for order in orders)
    crossings = Counter[tuple[int, int]]()
    for channel, order in enumerate(orders):
        forward = order[::-1] if channel % 2 else order  # odd channels of a ring go backward
        for worker, following in zip(forward, (*forward[1:], forward[0]), strict=True):
            if worker // GPUS != following // GPUS:
                assert worker % GPUS == following % GPUS
                crossings[worker // GPUS, worker % GPUS] += 1
    # Every network card sends one channel.
    cards = [] if islands == 1 else [(island, rail) for island in range(islands) for rail in range(GPUS)]
    assert crossings == Counter(cards)


@pytest.mark.parametrize(
    "collective", [Ring(kind="ring", channels=3, order="topology"), Tree(kind="tree", order="topology")]
)
def test_racks_are_left_once_whatever_the_placement(collective: Ring | Tree) -> None:
    network = compile_network(
        registered(Topology)["leaf_spine"](leaves=3, hosts_per_leaf=4, spines=2).graph()
    )
    scattered = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]  # hosts of three racks in turn
    for order in collective.orders(network, scattered):
        racks = [scattered[rank] // 4 for rank in order]
        assert racks == sorted(racks)
        assert sorted(order) == list(range(12))


def test_a_ring_on_32_islands_uses_all_rails() -> None:
    network = rails_of(32)
    nodes, workers = range(32 * GPUS), 32 * GPUS
    ring = Ring(kind="ring", channels=GPUS, order="topology")
    outline = ring.outline(workers, orders=ring.orders(network, nodes))
    routed = Routed.by_seed(outline, network, nodes, seed=1)
    loads = np.zeros(len(network.link_names))
    for at, level in enumerate(outline.levels):
        loads += level.times * routed.loads(routed.sent(at, level.share))
    to_rails = [
        number for number, name in enumerate(network.link_names) if name.startswith("gpu") and "rail" in name
    ]
    # What each of 8 network cards must carry of a message that passes all islands: 2 (1 − 1 / n) / 8.
    assert loads[to_rails].max() == pytest.approx(2 * (1 - 1 / workers) / GPUS)


def test_a_ring_runs_at_the_rate_of_all_network_cards() -> None:
    islands, elements = 4, 10**6
    metrics = entry_of(
        simulated(
            {
                "name": "rails",
                "topology": {
                    "kind": "rail_optimized",
                    "islands_per_pod": islands,
                    "spines": 2,
                    "delay": "100ns",
                },
                "workers": islands * GPUS,
                "workload": {"kind": "synthetic", "elements": elements},
                "codec": {"kind": "none"},
                "collective": {"kind": "ring", "channels": GPUS, "order": "topology"},
            }
        )
    )["metrics"]
    workers = islands * GPUS
    wire_us = 2 * (1 - 1 / workers) * elements * 32 / (GPUS * 100e9) * 1e6
    assert wire_us >= 0.85 * metrics["aggregation_time_us"]
    assert metrics["bit_exact"] is not False


@nightly
def test_a_ring_of_256_gpus_runs_at_the_rate_of_all_network_cards() -> None:
    # A minute, and 1 GB. With 64 MB, 510 steps of some us are longer than what the cards carry.
    islands, elements = 32, 64 * 10**6
    workers = islands * GPUS
    topology = {"kind": "rail_optimized", "islands_per_pod": islands, "spines": 8, "switch": "plain"}
    settings = {
        "name": "rails",
        "topology": {**topology, "rate": "400Gbps"},
        "workers": workers,
        "workload": {"kind": "synthetic", "elements": elements, "bucket": "1GB", "payload": "none"},
        "codec": {"kind": "none"},
        "collective": {"kind": "ring", "channels": GPUS, "order": "topology", "frame": "roce-2048"},
    }
    wire_us = 2 * (1 - 1 / workers) * elements * 32 / (GPUS * 400e9) * 1e6
    assert wire_us >= 0.85 * entry_of(simulated(settings))["metrics"]["aggregation_time_us"]
