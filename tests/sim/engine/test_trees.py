"""Aggregation trees and timed slots of both engines against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Branch
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from tests.reference.engine.fabric import SLOT_TIMER, STREAM_TIMER
from tests.sim.engine.small import (
    FOREVER_PS,
    LINK,
    D,
    Make,
    X,
    aggregate,
    check_sums,
    gradients,
    job,
    link_between,
    run,
    segment,
    star_of,
    start,
)

FABRIC = compile_network(leaf_spine(2, 1, 2, LINK, LINK))  # hosts 0 … 3, leaves 4 and 5, spine 6
TWO_LEVELS: dict[str, Any] = {"switch": 6, "branches": (Branch(4, 0), Branch(5, 0)), "homes": (1, 1, 2, 2)}


@pytest.mark.parametrize("program", [SWITCHML, TREE])
@pytest.mark.parametrize("unit_packets", [1, 3])
def test_two_levels_take_four_hops_and_a_packet_per_uplink(
    engine: Make, program: ProgramSpec, unit_packets: int
) -> None:
    packets = 2 * unit_packets
    sim = engine(FABRIC)
    number = sim.add_job(job(FABRIC, packets, unit_packets=unit_packets, program=program, **TWO_LEVELS))
    words = gradients(4, 4 * packets)
    outcome = aggregate(sim, number, words)

    assert outcome.finished_ps == [(packets + 3) * X + 4 * D] * 4
    check_sums(outcome.results, words)
    counters = sim.switch_counters(number)
    assert (counters["packets"], counters["partials"], counters["results"]) == (
        6 * packets,
        2 * packets,
        packets,
    )
    assert counters["answers"] + counters["stale_results"] + counters["duplicates_dropped"] == 0
    assert not any(row[2] == STREAM_TIMER for row in sim.log)


def test_a_leaf_answers_from_the_result_that_it_keeps(engine: Make) -> None:
    """A worker whose result is lost gets it again from its leaf; the spine hears nothing of it."""
    sim = engine(FABRIC)
    timeouts = {"timeout_ps": 40 * X + 8 * D, "first_timeout_ps": 40 * X + 8 * D}
    number = sim.add_job(job(FABRIC, 1, **timeouts, **TWO_LEVELS))
    words = gradients(4, 4)
    own = [segment(each) for each in words]
    start(sim, number, [[each] for each in own])
    last_link = link_between(FABRIC, 4, 0)
    sim.cut(last_link)
    run(sim, 3)
    sim.flush(last_link)
    sim.restore(last_link)
    (done,) = sim.run(FOREVER_PS)

    assert done.time_ps == 40 * X + 8 * D + 2 * X + 2 * D
    check_sums([own[0].result], words)
    counters = sim.switch_counters(number)
    assert (counters["answers"], counters["partials"], counters["results"]) == (1, 2, 1)


def test_table_add_sends_codes_up_and_lanes_from_there_on(engine: Make) -> None:
    sim = engine(FABRIC)
    number = sim.add_job(job(FABRIC, 1, lanes=8, **TWO_LEVELS))
    table = np.arange(16, dtype=np.int32) * 1000
    codes = [np.array([0x76543210 + rank], np.uint32) for rank in range(4)]
    results = [np.zeros(8, np.int32) for _ in codes]
    own = [
        [segment(each, Merge.TABLE_ADD, result=result, table=table)]
        for each, result in zip(codes, results, strict=True)
    ]
    start(sim, number, own)
    done = run(sim, 4)

    lanes = sum(np.array([(int(code[0]) >> 4 * lane & 15) * 1000 for lane in range(8)]) for code in codes)
    assert all(np.array_equal(result, lanes) for result in results)
    wide = (34 + 32 * 4) * 8000  # ps on the wire
    assert {one.time_ps for one in done} == {X + 3 * wide + 4 * D}


def test_a_slot_that_waits_too_long_answers_with_what_it_has(engine: Make) -> None:
    """Worker 1 comes late: it gets what worker 0 sent, and sends nothing."""
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(job(network, 1, program=TIMED, slot_timer_ps=5 * X))
    words = gradients(2, 4)
    own = [segment(each, holders=np.zeros(1, np.uint32)) for each in words]
    sim.open_stream(number, 0, [own[0]])
    (early,) = sim.run(FOREVER_PS)
    assert early.time_ps == X + D + 5 * X + X + D
    sim.open_stream(number, 1, [own[1]])
    (late,) = sim.run(FOREVER_PS)

    assert late.time_ps == early.time_ps
    for each in own:
        assert np.array_equal(each.result, words[0])
        assert np.array_equal(np.asarray(each.holders), [1])
    (timer,) = [row for row in sim.log if row[2] == SLOT_TIMER]
    assert timer[3:] == (-1, number * 65536, 0, 0, 0)
    counters = sim.switch_counters(number)
    assert (counters["timed_out"], counters["packets"], counters["results"]) == (1, 1, 0)


def test_late_and_expired_packets_get_what_there_is(engine: Make) -> None:
    """Worker 1's packets come when their rows have answered: the first late, or its row gone on."""
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(job(network, 1, program=TIMED, slot_timer_ps=X // 4))
    words = gradients(2, 12)
    own = [segment(each, holders=np.zeros(3, np.uint32)) for each in words]
    down = link_between(network, 2, 1)
    sim.cut(down)
    sim.open_stream(number, 0, [own[0]])
    sim.run(FOREVER_PS)
    sim.flush(down)
    sim.restore(down)
    sim.open_stream(number, 1, [own[1]])
    sim.run(FOREVER_PS)

    assert np.array_equal(own[0].result, words[0])
    assert np.array_equal(np.asarray(own[1].holders), [0, 1, 1])
    assert np.array_equal(own[1].result, np.concatenate([np.zeros(4, np.int32), words[0][4:]]))
    counters = sim.switch_counters(number)
    assert (counters["expired"], counters["late"], counters["timed_out"]) == (1, 2, 3)
