"""Samples and views of an engine, beside what plain Python counts in its tables; jobs that it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Disturbance, Fate, Rule
from netfold.sim.engine.engine_views import (
    BLOCKED,
    DEAD,
    OUTSTANDING,
    SENDERS,
    STATES,
    LookBuffers,
    choose_busiest,
    look,
)
from netfold.switch.programs.inca import INCA
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from tests.examples import examples
from tests.sim.engine.small import (
    A,
    D,
    X,
    atp_job,
    changed,
    compiled,
    flow,
    gradients,
    job,
    link_between,
    message,
    segment,
    star_of,
    start,
)
from tests.sim.engine.test_schedules import operation
from tests.sim.exchanges import ring_schedule

WORKERS, SLOTS, UNITS = 3, 4, 10


def seen_of(engine: Engine, jobs_count: int = 1, with_hosts: bool = True) -> LookBuffers:
    """Buffers for one look; each of the engine's jobs is a job of its own."""
    links, nodes = engine.links_count, len(engine.network.nodes)
    return LookBuffers(
        before_ps=np.zeros(links, np.int64),
        busy_ps=np.zeros(links, np.int64),
        links=np.full(links, -1, np.int32),
        links_busy_ps=np.zeros(links, np.int64),
        waiting=np.zeros((jobs_count, STATES), np.int64),
        owners=np.arange(jobs_count, dtype=np.int64),
        live=np.zeros((jobs_count + 1 + engine.world.flows.size // 64, 64), np.uint8),
        hosts=np.zeros((links, nodes if with_hosts else 0), np.uint8),
    )


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9),
    st.integers(1, 6),
)
def test_the_busiest_links_are_the_first_of_all_in_order(busy: list[tuple[int, int]], kept: int) -> None:
    """Busy longest since the look before; of equal ones those busy longest until then, by number."""
    before, since = np.array(busy, np.int64).T
    seen = LookBuffers(
        before_ps=before,
        busy_ps=before + since,
        links=np.full(kept, 7, np.int32),
        links_busy_ps=np.full(kept, 7, np.int64),
        waiting=np.zeros((1, STATES), np.int64),
        owners=np.zeros(1, np.int64),
        live=np.zeros((1, 1), np.uint8),
        hosts=np.zeros((0, 0), np.uint8),
    )
    choose_busiest(seen)

    ranked = sorted(range(len(busy)), key=lambda link: (-since[link], -before[link], link))
    ranked = [link for link in ranked if since[link] > 0][:kept]
    nobody = [-1] * (kept - len(ranked))
    assert seen.links.tolist() == ranked + nobody
    assert seen.links_busy_ps.tolist() == [since[link] for link in ranked] + [0 for _ in nobody]


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("with_hosts", [False, True])
def test_what_senders_wait_for(loss: float, with_hosts: bool) -> None:
    """Counts of windows, from the first packet to the last; marks of an earlier look are gone."""
    engine = compiled(star_of(WORKERS), loss)
    number = engine.add_job(job(engine.network, SLOTS, timeout_ps=40 * X, first_timeout_ps=40 * X))
    words = gradients(WORKERS, UNITS * 4)
    start(engine, number, [[segment(each)] for each in words])
    seen, at_ps, dead, ended = seen_of(engine), 0, 0, 0
    while ended < WORKERS:
        at_ps += X
        ended += len(engine.run(at_ps))
        in_flight, _ = look(engine.world, seen, at_ps, with_hosts)
        waited_for = engine.outstanding(number)
        for each in waited_for:  # a slot's units are in its two versions in turn
            assert (each.slot, each.version) == (each.unit % SLOTS, each.unit // SLOTS % 2)
        streams = engine.world.streams
        unsent = sum(
            int(stream["units_count"]) - int(stream["completed_count"]) > window
            for stream in streams[streams["is_open"] == 1]
            for window in [sum(unit.worker == stream["worker"] for unit in waited_for)]
        )
        counted = seen.waiting[0]
        assert (counted[OUTSTANDING], counted[SENDERS], counted[BLOCKED]) == (
            len(waited_for),
            WORKERS - ended,
            unsent,
        )
        assert in_flight == sum(each["in_flight_packets"] for each in engine.link_counters())
        assert 0 <= counted[DEAD] <= counted[OUTSTANDING]
        dead += counted[DEAD]
    assert (dead > 0) == (loss > 0)


def test_the_hosts_whose_packets_are_on_a_link() -> None:
    """A gradient is on its worker's link, a result on its target's; a flow's data are its source's."""
    engine = compiled(star_of(WORKERS))
    number = engine.add_job(job(engine.network, SLOTS))
    start(engine, number, [[segment(each)] for each in gradients(WORKERS, UNITS * 4)])
    engine.open_flow(message(4))
    seen = seen_of(engine)
    for at_ps in range(X, 4 * D, X // 2):
        engine.run(at_ps)
        look(engine.world, seen, at_ps, True)

    switch = WORKERS
    up = [link_between(engine.network, host, switch) for host in range(WORKERS)]
    down = [link_between(engine.network, switch, host) for host in range(WORKERS)]
    marked = {link: set(np.flatnonzero(seen.hosts[link]).tolist()) for link in (*up, *down)}
    assert [marked[link] for link in up] == [{0}, {1}, {2}]
    assert [marked[link] for link in down] == [{0}, {0, 1}, {2}]  # host 1 gets the flow of host 0


def test_a_flow_waits_in_vain_where_its_packets_are_lost() -> None:
    """Of three flows the first loses its packet, when it would have arrived; marks lie two by two."""
    network = star_of(WORKERS)
    engine = compiled(network, rules=[Rule(Fate.LOSS, 1.0, (link_between(network, WORKERS, 1),))])
    for source, target in ((0, 1), (1, 0), (2, 0)):
        engine.open_flow(flow(source, target, np.zeros(4, np.int32)))
    seen = seen_of(engine)._replace(live=np.zeros((9, 2), np.uint8))
    for at_ps, waiting, dead in ((2 * (X + D) - 1, 3, 0), (2 * (X + D) + 1, 2, 1)):  # the second arrives
        engine.run(at_ps)
        look(engine.world, seen, at_ps, True)
        assert (seen.waiting[0, OUTSTANDING], seen.waiting[0, DEAD]) == (waiting, dead)


def test_shares_are_those_of_a_jobs_open_transfers() -> None:
    engine = compiled(star_of(WORKERS))
    ring = operation(ring_schedule(WORKERS), WORKERS * 4, Merge.ADD)
    number = engine.open_schedule(ring)
    assert (engine.schedules_share(0), engine.schedules_share(1)) == (0.0, 0.0)
    for worker in range(WORKERS):
        engine.begin(number, worker, np.arange(WORKERS * 4, dtype=np.int32))
    engine.run(X + 2 * D + X + A)  # the first segments have arrived, the second have not

    transfers = ring.schedule.transfers
    assert engine.schedules_share(0) == WORKERS / transfers
    assert engine.schedules_share(1) == 0.0
    assert {one.waiting.packet_bytes for one in engine.waiting_transfers()} == {50}  # of four words
    while engine.run(10**15):
        pass
    assert engine.schedules_share(0) == 0.0


def test_disturbances_are_of_rules_that_struck_and_let_packets_arrive() -> None:
    fates = (Fate.LOSS, Fate.FLIP, Fate.DUPLICATE, Fate.REORDER)
    engine = compiled(
        star_of(WORKERS), rules=[Rule(fate, 0.1, (number, 5)) for number, fate in enumerate(fates)]
    )
    engine.world.rules["struck"] = [4, 3, 0, 2]

    assert engine.disturbances() == [
        Disturbance(Fate.FLIP, 3, (1, 5)),
        Disturbance(Fate.REORDER, 2, (3, 5)),
    ]


NETWORK = star_of(WORKERS)
REFUSED = {
    "inca cannot be run": job(NETWORK, 1, program=INCA),
    "timed runs on one switch with units of one packet": job(NETWORK, 2, unit_packets=2, program=TIMED),
    "switchml has no parameter server": replace(atp_job(NETWORK, 1), program=SWITCHML),
    "atp needs a parameter server": replace(atp_job(NETWORK, 1), server=None),
    "slots_count <= window_max <= entries": atp_job(NETWORK, 4, entries=3),
    "slots with timers need a positive slot_timer_ps": job(NETWORK, 1, program=TIMED),
}


@pytest.mark.parametrize("told", REFUSED)
def test_jobs_that_cannot_be(told: str) -> None:
    with pytest.raises(ValueError, match=told):
        compiled(NETWORK).add_job(REFUSED[told])


def test_windows_and_entries_may_be_as_large_as_the_server_says() -> None:
    """No more slots than its windows have, and no more of these than entries."""
    compiled(NETWORK).add_job(atp_job(NETWORK, 4, entries=4))
    with pytest.raises(ValueError, match="window_max"):
        compiled(NETWORK).add_job(changed(atp_job(NETWORK, 4), window=5))
