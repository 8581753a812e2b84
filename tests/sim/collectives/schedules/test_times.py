"""Times on idle networks against closed forms, on a star with equal links."""

from __future__ import annotations

import pytest

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.between_hosts import Steps, pace_of
from netfold.sim.collectives.halving_doubling.spec import steps_of as halving_steps
from netfold.sim.collectives.ring.spec import steps_of as ring_steps
from netfold.sim.collectives.tree.spec import steps_of as tree_steps
from tests.reference.collectives.programs import Kind
from tests.sim.collectives.schedules.cases import Case, exchanged, flat
from tests.sim.exchanges import FRAME, messages_of
from tests.sim.scenes import BYTE_PS, LINK, small_star

PACKET_PS = 100 * BYTE_PS
ACK_PS = FRAME.ack_bytes * BYTE_PS
RING, HALVING, TREE = Kind("ring"), Kind("halving_doubling"), Kind("tree")


def time_ps(case: Case, **changes: int) -> int:
    messages = messages_of(Merge.ADD, case.workers, case.size)
    return exchanged(case, small_star(case.workers), messages, **changes).end_ps


def way_ps(packets: int) -> int:
    """Packets one after the other over two links; the first is waited for twice."""
    return (packets + 1) * PACKET_PS + 2 * LINK.delay_ps


@pytest.mark.parametrize("workers", [2, 4, 8, 16])
@pytest.mark.parametrize("packets", [1, 3])
def test_halving_and_doubling(workers: int, packets: int) -> None:
    """2 log2 n exchanges, of M / 2, M / 4 … M / n words and back; all but the first wait for an ACK.

    Each message of more than 16 packets has its own acknowledgements in between: there are none here.
    """
    found = time_ps(flat(HALVING, workers, workers * packets * FRAME.elements), ack_every=512)

    sizes = [workers * packets >> (step + 1) for step in range(workers.bit_length() - 1)]
    exchanges = 2 * sum(map(way_ps, sizes))
    assert found == exchanges + (2 * len(sizes) - 1) * ACK_PS


@pytest.mark.parametrize("workers", [4, 8, 13])
@pytest.mark.parametrize("trees", [1, 2])
def test_long_messages_on_trees_take_as_many_words_as_the_busiest_worker_sends(
    workers: int, trees: int
) -> None:
    """2 M on two trees and 3 M on one, and the time of a chunk for each way."""
    packets, pieces = 2400, 150
    case = flat(Kind("tree", trees=trees, pieces=pieces), workers, packets * FRAME.elements)
    found = time_ps(case, ack_every=512, window=4096)

    chunk = packets // (trees * pieces)
    most = (2 if trees == 2 else 3) * packets * PACKET_PS
    ways = 2 * (workers.bit_length() - 1)
    assert most <= found <= 1.1 * most + 3 * ways * way_ps(chunk)
    pace = pace_of(
        small_star(workers),
        range(workers),
        tree_steps(workers, trees, chunk * FRAME.elements),
        lambda *flow: 0,
        FRAME,
    )
    assert pace.time_ps(case.size) == pytest.approx(most + ways * way_ps(1) + (ways - 1) * chunk * PACKET_PS)
    # On one tree, what goes up is ready first and delays what goes down.
    assert pace.time_ps(case.size) * 0.95 < found < pace.time_ps(case.size) * (1.1 if trees == 2 else 1.2)


@pytest.mark.parametrize(
    ("steps", "words", "ways"),
    [
        (ring_steps(8), 2 * 7 / 8, 14),
        (ring_steps(8, 2), 2 * 7 / 8, 14),
        (halving_steps(8), 2 * 7 / 8, 6),
        (halving_steps(12), 2 + 2 * 7 / 8, 8),
        (tree_steps(8), 2, 6),
        (tree_steps(8, 1), 3, 6),
    ],
)
def test_the_closed_forms_say_so(steps: Steps, words: float, ways: int) -> None:
    workers = 1 + max(max(pair) for stage in steps.stages for pair in stage.pairs)
    pace = pace_of(small_star(workers), range(workers), steps, lambda *flow: 0, FRAME)

    assert pace.elements_per_s == pytest.approx(FRAME.elements / (PACKET_PS * 1e-12) / words)
    assert pace.latency_ps == ways * way_ps(1)


def test_stages_that_overlap_count_what_the_busiest_link_carries_in_all() -> None:
    inside, across = ring_steps(4), ring_steps(2)
    one = Steps.chain([inside, across])
    network, nodes = small_star(4), range(4)
    apart, together = (
        pace_of(network, nodes, steps, lambda *flow: 0, FRAME) for steps in (one, one._replace(overlaps=True))
    )

    wire = FRAME.elements / (PACKET_PS * 1e-12)
    assert apart.elements_per_s == pytest.approx(wire / (2 * 3 / 4 + 2 * 1 / 2))
    assert together.elements_per_s == pytest.approx(apart.elements_per_s)  # workers 0 and 1 are in both
    other = Steps.chain([inside, across._replace(pairs=[(2, 3)], channels=[0])])
    assert pace_of(network, nodes, other, lambda *flow: 0, FRAME).elements_per_s == pytest.approx(
        apart.elements_per_s
    )
