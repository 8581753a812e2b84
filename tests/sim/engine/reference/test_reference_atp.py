"""The plain-Python ATP is exact, whatever is lost, doubled, cleared or collides, in ints or in floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.engine.interface import Job
from tests.examples import examples
from tests.reference.atp.atp_packet import Contribution, first_entries
from tests.reference.engine.chunk import JobNumber
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.link import Packet
from tests.sim.engine.reference.atp import (
    ELEMENTS,
    Cluster,
    aggregate,
    atp_job,
    check_sums,
    float_segment,
    gradients,
    network,
    segment,
    with_server,
)
from tests.sim.engine.reference.small import D, X

INT32_MAX = 2**31 - 1


class Doubling(Fabric):
    """Every fourth packet on a link, chosen by its key, is followed at once by a copy of its own fate."""

    def put(self, packet: Packet, link_index: int) -> None:
        hop = packet.hops
        copy = replace(packet, key=packet.key ^ 1)
        super().put(packet, link_index)
        if self.key(99, packet.key, hop) % 4 == 0:
            super().put(copy, link_index)


@pytest.mark.parametrize("loss", [0.0, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_sums_are_exact_under_loss(loss: float, seed: int) -> None:
    cluster = Cluster([atp_job(4, 16)], loss=loss, seed=seed)
    aggregate(cluster, gradients(4, 400 * ELEMENTS, seed))

    lost = sum(link.counters.lost_packets for link in cluster.fabric.links)
    sent_again = sum(worker.counters["retransmitted_packets"] for worker in cluster.jobs[0].workers)
    assert (lost > 0) == (sent_again > 0) == (loss > 0)
    counters = cluster.jobs[0].switch_counters()
    assert (counters["evictions"] > 0) == (loss > 0)
    assert counters["collisions"] == 0


@given(st.integers(1, 4), st.integers(1, 6), st.booleans(), st.floats(0, 0.3), st.integers(0, 2**32))
@examples(25)
def test_sums_do_not_depend_on_loss_window_or_entries(
    workers: int, window: int, is_adaptive: bool, loss: float, seed: int
) -> None:
    """Two streams of two segments; hardly more entries than places in the window: two jobs collide."""
    job = with_server(atp_job(workers, window), entries=window + 1, is_adaptive=is_adaptive)
    cluster = Cluster([job, job], loss=loss, seed=seed)
    for stream in range(2):
        words = [gradients(workers, 61, seed + stream), gradients(workers, 45, seed + 7)]
        own = [[[segment(each[:30]), segment(each[30:])] for each in of_job] for of_job in words]
        for number, segments in enumerate(own):
            cluster.open(segments, number)
        cluster.run()
        for segments, of_job in zip(own, words, strict=True):
            check_sums(segments, of_job)
        cluster.check_ended(2 * workers * (stream + 1))


@pytest.mark.parametrize("seed", [1, 2])
def test_three_jobs_compete_for_few_entries(seed: int) -> None:
    """Sixteen units of each on their way and 24 entries: most collide, none is wrong."""
    job = with_server(atp_job(4, 16), entries=24)
    cluster = Cluster([job] * 3, loss=0.01, seed=seed)
    words = [gradients(4, 400 * ELEMENTS, number) for number in range(3)]
    own = [[[segment(each)] for each in of_job] for of_job in words]
    for number, segments in enumerate(own):
        cluster.open(segments, number)
    cluster.run()

    for segments, of_job in zip(own, words, strict=True):
        check_sums(segments, of_job)
    cluster.check_ended(12)
    assert sum(job.switch_counters()["collisions"] for job in cluster.jobs) > 1000


def test_copies_right_behind_change_nothing() -> None:
    """On every link, of packets, forwarded ones, acknowledgements and results; some of them are lost, too."""
    cluster = Cluster([atp_job(4, 16)], loss=0.01, make=Doubling)
    aggregate(cluster, gradients(4, 400 * ELEMENTS))

    counters = cluster.jobs[0].switch_counters()
    assert counters["duplicates_dropped"] > 100
    assert counters["answers"] > 10
    assert all(worker.counters["stale_results"] > 100 for worker in cluster.jobs[0].workers)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cleared_switch_under_loss_costs_time_but_no_word(seed: int) -> None:
    cluster = Cluster([atp_job(4, 16)], loss=0.01, seed=seed)
    words = gradients(4, 400 * ELEMENTS)
    own = [[segment(each)] for each in words]
    cluster.open(own)
    cluster.run(until_ps=5 * 4 * (X + D))
    while not any(0 < entry.count < 4 for entry in cluster.switch.entries.values()):
        cluster.fabric.step()
    cluster.jobs[0].clear(switch=0)
    assert cluster.switch.claimed() != []
    cluster.jobs[0].clear(cluster.jobs[0].job.job.switch)
    assert cluster.switch.claimed() == []
    cluster.run()

    check_sums(own, words)
    cluster.check_ended(4)


def test_first_entries_collide_as_chance_says() -> None:
    """One entry of each of J other jobs among M: 1 − (1 − 1/M)^J of this job's entries are taken."""
    entries, others, places, seeds = 100, 60, 20, 200
    wires = network(1)
    taken = 0
    for seed in range(seeds):
        fabric = Fabric(wires, (), seed)
        one = with_server(atp_job(1, 1), entries=entries)
        occupied = {first_entries(fabric, JobNumber(one, number))[0] for number in range(1, others + 1)}
        mine = first_entries(fabric, JobNumber(with_server(one, window_max=places), 0))
        assert len(set(mine)) == places
        taken += len(occupied.intersection(mine))

    share = 1 - (1 - 1 / entries) ** others
    sigma = (share * (1 - share) / (seeds * places)) ** 0.5
    assert abs(taken / (seeds * places) - share) < 3 * sigma


def test_collided_unit_moves_its_place_to_an_entry_of_its_own() -> None:
    """The second job finds the only entry taken, and is offered the other one for what follows."""
    jobs = [with_server(atp_job(2, 1), entries=2) for _ in range(2)]
    seed = next(seed for seed in range(99) if len(set(map(tuple, entries_of(jobs, seed)))) == 1)
    cluster = Cluster(jobs, seed=seed)
    words = gradients(2, 4 * ELEMENTS)
    own = [[[segment(each)] for each in words] for _ in jobs]
    for number, segments in enumerate(own):
        cluster.open(segments, number)
    cluster.run()

    for segments in own:
        check_sums(segments, words)
    cluster.check_ended(4)
    first, second = (job.switch_counters() for job in cluster.jobs)
    assert (first["collisions"], first["results"]) == (0, 4)
    assert (second["collisions"], second["results"], second["server_packets"]) == (2, 3, 5)
    other = 1 - cluster.jobs[0].workers[0].entries[0]
    assert [worker.entries for worker in cluster.jobs[1].workers] == [[other], [other]]


def entries_of(jobs: Sequence[Job], seed: int) -> list[list[int]]:
    """First entries of each job."""
    wires = network(2)
    fabric = Fabric(wires, (), seed)
    return [first_entries(fabric, JobNumber(job, number)) for number, job in enumerate(jobs)]


def test_proposals_are_entries_that_the_job_has_not_used_until_none_is_found() -> None:
    """Five entries, three of them first ones: each of the others once, then 64 tries in vain."""
    job = JobNumber(with_server(atp_job(1, 3), entries=5), 0)
    cluster = Cluster([job.job])
    server = cluster.jobs[0].server
    first = first_entries(cluster.fabric, job)
    proposals = [server.propose() for _ in range(2)]
    tries = server.tries

    assert sorted([*first, *proposals]) == [0, 1, 2, 3, 4]
    candidates = [cluster.fabric.key(15, 0, number) % 5 for number in range(tries)]
    assert list(dict.fromkeys(entry for entry in candidates if entry not in first)) == proposals
    assert server.propose() == -1
    assert server.tries == tries + 64


@pytest.mark.parametrize(("stream", "answers"), [(0, 0), (1, 1), (2, 1)])
def test_server_answers_stragglers_of_the_last_two_streams(stream: int, answers: int) -> None:
    """After three streams: a copy of a packet of one of them comes late to the server."""
    cluster = Cluster([atp_job(1, 1)])
    server = cluster.jobs[0].server
    late: list[tuple[Contribution, Packet]] = []
    receive = server.receive

    def keep(data: Contribution, packet: Packet) -> None:
        late.append((data, packet))
        receive(data, packet)

    server.receive = keep  # type: ignore[method-assign]
    for _ in range(3):
        aggregate(cluster, gradients(1, ELEMENTS))
    receive(*late[stream])
    cluster.run()

    assert cluster.jobs[0].workers[0].counters["stale_results"] == answers
    assert cluster.jobs[0].switch_counters()["server_packets"] == 4


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_units_whose_sum_saturates_are_sent_again_as_floats(loss: float) -> None:
    """Of three units the second overflows at the switch: its floats are added, the others stay ints."""
    cluster = Cluster([atp_job(2, 3)], loss=loss)
    words = [np.arange(3 * ELEMENTS, dtype=np.int32) - 5 for _ in range(2)]
    for each in words:
        each[ELEMENTS + 1] = 2**30
    own = [[float_segment(each, each / 8)] for each in words]
    cluster.open(own)
    cluster.run()

    cluster.check_ended(2)
    second = slice(ELEMENTS, 2 * ELEMENTS)
    for (each,) in own:
        assert each.is_float is not None
        assert each.is_float.tolist() == [0, 1, 0]
        assert each.result.view(np.float32)[second].tolist() == (words[0][second] / 4).tolist()
        rest = np.delete(np.arange(3 * ELEMENTS), second)
        assert np.array_equal(each.result[rest], 2 * words[0][rest])
    counters = cluster.jobs[0].switch_counters()
    assert counters["requests"] >= 1
    if loss == 0:
        # Floats go when the request comes; the result of the third unit, right behind it, makes a gap of the
        # second, so they go once more.
        assert (counters["requests"], counters["overflowed_words"], counters["server_packets"]) == (1, 1, 7)
        request_ps = (2 + 3) * X + 4 * D
        assert cluster.done[-1][0] == request_ps + 4 * (X + D) + X


def test_without_floats_a_saturated_word_sticks() -> None:
    """2^31 − 1 + 1 is not −2^31, as where addition wraps, and what follows brings it not back."""
    cluster = Cluster([atp_job(3, 1)])
    own = [[segment(np.array([first, 7], np.int32))] for first in (INT32_MAX, 1, -100)]
    cluster.open(own)
    cluster.run()

    assert all(each.result.tolist() == [INT32_MAX, 21] for (each,) in own)
    assert cluster.jobs[0].switch_counters()["overflowed_words"] == 2


@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_units_that_one_host_cannot_quantise_are_floats_everywhere(window: int, loss: float) -> None:
    """Also if the others have not sent them yet when they are asked to."""
    units = 8
    cluster = Cluster([atp_job(3, window)], loss=loss)
    words = gradients(3, units * ELEMENTS)
    own = [
        [float_segment(each, np.arange(each.size) / 4 + worker, are_floats=[2, 5] if worker == 1 else [])]
        for worker, each in enumerate(words)
    ]
    cluster.open(own[:2])
    cluster.run(until_ps=X + D)
    cluster.jobs[0].open(2, own[2])
    cluster.run()

    cluster.check_ended(3)
    total = np.sum(words, axis=0)
    for (each,) in own:
        assert each.is_float is not None
        assert each.is_float.tolist() == [0, 0, 1, 0, 0, 1, 0, 0]
        for unit in range(units):
            at = slice(unit * ELEMENTS, (unit + 1) * ELEMENTS)
            if unit in (2, 5):
                expected = np.arange(at.start, at.stop) * 0.75 + 3
                assert each.result.view(np.float32)[at].tolist() == expected.tolist()
            else:
                assert np.array_equal(each.result[at], total[at])
