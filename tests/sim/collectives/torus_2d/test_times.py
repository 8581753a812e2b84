"""Times of the 2-D torus on idle networks against closed forms."""

from __future__ import annotations

import pytest

from netfold.homomorphic.carrier import MessageSize
from netfold.homomorphic.message import Merge
from netfold.sim.collectives.between_hosts import carrier_of, in_turn, pace_of, traffic_of
from netfold.sim.collectives.ring.spec import SCHEDULE as RING
from netfold.sim.collectives.torus_2d.grid import Grid
from netfold.sim.collectives.torus_2d.spec import steps_of
from netfold.sim.workload.devices.kinds.fixed import FixedDevice, NoDevice
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network
from tests.sim.exchanges import FRAME, messages_of, torus
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, Started, small_star

PACKET_PS = 100 * BYTE_PS
ACK_PS = FRAME.ack_bytes * BYTE_PS
WAY_PS = 2 * (PACKET_PS + LINK.delay_ps)
EVEN = ((2, 1), (2, 3), (3, 2), (4, 4), (1, 5))


def time_ps(start: Started, workers: int, words: int, network: Network | None = None) -> int:
    """When the last worker has the sums of dense words."""
    messages = messages_of(Merge.ADD, workers, words)
    return Exchanged(network or small_star(workers), start).run([[(one,)] for one in messages]).end_ps


@pytest.mark.parametrize(("rows", "columns"), EVEN)
@pytest.mark.parametrize("packets", [1, 3])
def test_time_of_a_torus_on_an_idle_network(rows: int, columns: int, packets: int) -> None:
    """2 (C − 1) steps of M / C words in the rows, 2 (R − 1) of M / (R C) in the columns.

    The packets of a step follow each other on both links, and the first is waited for twice; all steps but
    the first wait for an ACK on the same link.
    """
    workers = rows * columns
    found = time_ps(torus(workers, rows), workers, workers * packets * FRAME.elements)

    in_row_ps = (rows * packets + 1) * PACKET_PS + 2 * LINK.delay_ps
    in_column_ps = (packets + 1) * PACKET_PS + 2 * LINK.delay_ps
    steps = 2 * (columns - 1) + 2 * (rows - 1)
    closed_ps = 2 * (columns - 1) * in_row_ps + 2 * (rows - 1) * in_column_ps
    assert closed_ps + (steps - 1) * ACK_PS == found


@pytest.mark.parametrize(("rows", "columns"), EVEN)
def test_it_is_charged_for_merging(rows: int, columns: int) -> None:
    """C − 1 times M / C words in the rows and R − 1 times M / (R C) in the columns: read two, write one."""
    workers, words = rows * columns, 16 * rows * columns
    device = FixedDevice(0, 0, memory_bps=8 * 10**9)  # a byte a nanosecond
    free, charged = (time_ps(torus(workers, rows, device=one), workers, words) for one in (None, device))

    merged = (columns - 1) * words // columns + (rows - 1) * words // workers
    merges = columns - 1 + rows - 1
    # While a worker merges, the ACK before the next chunk is gone.
    assert free + 3 * 4 * merged * 1000 - merges * ACK_PS == charged


@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (2, 4), (4, 2), (8, 1), (1, 1)])
def test_the_closed_form_says_so_too(rows: int, columns: int) -> None:
    workers, network = rows * columns, small_star(8)
    nodes = list(range(workers))
    carrier = in_turn(
        [
            carrier_of(
                network, traffic_of(network, nodes, one.flows, lambda *flow: 0), FRAME, NoDevice(), one
            )
            for one in steps_of(Grid.of(workers, rows)).stages
        ]
    )
    ways = 2 * (rows + columns - 2)
    header_way_ps = 2 * (FRAME.overhead_bytes * BYTE_PS + LINK.delay_ps)
    assert carrier.latency_ps == max(1, ways * header_way_ps)
    if workers == 1:
        return
    pace = pace_of(network, nodes, steps_of(Grid.of(workers, rows)), lambda *flow: 0, FRAME)
    around = RING.pace(network, nodes, 1, 0, FRAME)
    assert pace.latency_ps == ways * WAY_PS
    assert pace.elements_per_s == pytest.approx(around.elements_per_s)
    assert carrier.rate_bps == pytest.approx(32 * pace.elements_per_s)


@pytest.mark.parametrize("lengths", [(4, 4, 3), (3, 2), (3, 3, 2, 2)])
def test_rows_of_unequal_length_take_about_as_long_as_it_says(lengths: tuple[int, ...]) -> None:
    """Up to a quarter longer: workers of short rows begin their columns while long rows are still busy."""
    workers, rows, words = sum(lengths), len(lengths), 500 * sum(lengths) * FRAME.elements
    network, nodes = small_star(workers), list(range(workers))
    found = time_ps(torus(workers, rows, ack_every=100, window=8192), workers, words)

    pace = pace_of(network, nodes, steps_of(Grid(lengths)), lambda *flow: 0, FRAME)
    shortest, longest = min(lengths), max(lengths)
    in_rows, in_columns = 2 * (1 - 1 / longest), 2 * (rows - 1) / (rows * shortest)
    packet_words = words / FRAME.elements * PACKET_PS
    rate_ps = pace.time_ps(words) - pace.latency_ps
    assert rate_ps == pytest.approx((in_rows + in_columns) * packet_words)
    assert rate_ps < found < 1.25 * pace.time_ps(words)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("size", [64, 40_000])
def test_codecs_that_choose_by_time_are_told_about_what_it_takes(rows: int, size: int) -> None:
    """Two racks of four on one uplink each: all columns of 2 × 4 share it, and no row does.

    In other grids, and on a ring, some hops of a chain cross the racks, and all are taken to be as long.
    """
    workers = 8
    network = compile_network(leaf_spine(2, 1, 4, LINK, uplink=LINK))
    nodes = [node for node, name in enumerate(network.nodes) if name.startswith("h")]
    stages = [
        (one, traffic_of(network, nodes, one.flows, lambda *flow: 0))
        for one in steps_of(Grid.of(workers, rows)).stages
    ]
    carriers = [carrier_of(network, traffic, FRAME, NoDevice(), one) for one, traffic in stages]
    told = in_turn(carriers).time_ps([MessageSize(size)])

    assert nodes == list(range(workers))
    found = time_ps(torus(workers, rows, ack_every=100), workers, size, network)
    if rows == 2:
        assert told == pytest.approx(found, rel=0.1)
    assert 0.9 * found < told < 1.6 * found


def test_its_stages_are_on_links_of_their_own() -> None:
    """2 × 4 on two racks: the columns' four streams share an uplink, the rows' none."""
    network = compile_network(leaf_spine(2, 1, 4, LINK, uplink=LINK))
    rows, columns = steps_of(Grid.of(8, 2)).stages
    loads = [traffic_of(network, range(8), one.flows, lambda *flow: 0).load for one in (rows, columns)]

    assert [max(load.values()) for load in loads] == [1, 4]
    pace = pace_of(network, range(8), steps_of(Grid.of(8, 2)), lambda *flow: 0, FRAME)
    wire = FRAME.elements / (PACKET_PS * 1e-12)
    # 6 steps of a quarter at the rate of a link, and 2 of an eighth at a quarter of it.
    assert pace.elements_per_s == pytest.approx(wire / (6 / 4 + 2 / 8 * 4))
