"""Network time by cause, from samples written down by hand; and samples of networks that are known."""

from __future__ import annotations

import numpy as np
import pytest
import simpy

from netfold.homomorphic.message import Merge
from netfold.sim.bounds.causes import Cause
from netfold.sim.bounds.network_time import NetworkTime, network_time
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Job, Segment, losses
from netfold.sim.engine.observe.samples import Samples
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.sampler import Sampler
from netfold.sim.plan.frames import frame_of
from tests.sim.scenes import small_star

TEN = 10_000  # ps: the length of a sample


def samples(
    *rows: dict[int, float], waiting: tuple[int, int, int, int] = (8, 0, 0, 2), **flags: bool
) -> Samples:
    """Samples of `TEN` each, one after the other: busy shares by link, and what senders wait for in all."""
    count, width = len(rows), max(map(len, rows))
    links = np.full((count, width), -1, np.int32)
    busy = np.zeros((count, width), np.int64)
    for number, row in enumerate(rows):
        ordered = sorted(row.items(), key=lambda item: -item[1])
        for place, (link, share) in enumerate(ordered):
            links[number, place], busy[number, place] = link, round(share * TEN)
    starts = TEN * np.arange(count, dtype=np.int64)
    return Samples(
        starts,
        starts + TEN,
        links,
        busy,
        np.tile(np.array(waiting, np.float64), (count, 1, 1)),
        np.full(count, flags.get("is_steady", True)),
        np.full(count, flags.get("is_empty", False)),
        np.zeros(9, np.int32),
    )


def split(found: Samples, *spans: tuple[int, int]) -> NetworkTime:
    busy = np.zeros(9, np.int64)
    np.add.at(busy, found.links[found.links >= 0], found.busy_ps[found.links >= 0])
    return network_time(found, 0, spans or [(0, TEN * len(found.start_ps))], busy.tolist())


def shares(found: NetworkTime) -> dict[str, float]:
    """Shares of the covered time by cause that is above 0; links by number."""
    total = found.covered_ps.sum()
    causes = (Cause.WINDOW, Cause.TIMER, Cause.LATENCY, Cause.MERGING)
    parts = {str(cause): float(found.of_cause(cause).sum() / total) for cause in causes}
    for link in set(found.chosen.tolist()):
        parts[str(link)] = float(found.by_link_ps[found.chosen == link].sum() / total)
    assert sum(parts.values()) == pytest.approx(1)
    return {name: pytest.approx(part) for name, part in parts.items() if part}


HELD = (8, 0, 2, 2)  # both senders have more to send
HALF_LOST = (8, 4, 2, 2)


@pytest.mark.parametrize(
    ("row", "waiting", "is_steady", "expected"),
    [
        ({3: 1.0}, HELD, True, {"3": 1.0}),
        ({3: 0.95}, HELD, True, {"3": 1.0}),  # always busy, though a sample may begin in a gap
        ({3: 0.94}, HELD, True, {"window": 1.0}),
        ({3: 0.3}, HELD, True, {"window": 1.0}),
        ({3: 0.3}, HELD, False, {"3": 0.3, "window": 0.7}),  # messages end: they take turns
        ({3: 0.3}, (8, 0, 0, 2), True, {"3": 0.3, "latency": 0.7}),
        ({3: 0.3}, (8, 0, 1, 2), True, {"3": 0.15, "window": 0.5, "latency": 0.35}),
        ({3: 0.2}, HALF_LOST, True, {"timer": 0.5, "window": 0.5}),
        ({3: 0.2}, HALF_LOST, False, {"3": 0.2, "timer": 0.4, "window": 0.4}),
        ({}, (8, 8, 0, 2), True, {"timer": 1.0}),
        ({}, (0, 0, 0, 0), True, {"latency": 1.0}),
    ],
)
def test_one_sample(
    row: dict[int, float], waiting: tuple[int, int, int, int], is_steady: bool, expected: dict[str, float]
) -> None:
    assert shares(split(samples(row or {0: 0.0}, waiting=waiting, is_steady=is_steady))) == expected


def test_an_empty_network_that_nobody_waits_for_is_hosts_that_merge() -> None:
    nobody = (0, 0, 0, 0)
    assert shares(split(samples({2: 0.25}, waiting=nobody, is_empty=True))) == {"2": 0.25, "merging": 0.75}
    assert shares(split(samples({2: 0.25}, waiting=(1, 1, 0, 1), is_empty=True))) == {
        "2": 0.25,
        "timer": 0.75,
    }


def test_of_links_that_are_equally_busy_the_one_that_was_busy_longest_counts() -> None:
    """Link 5 is nearly as busy as 4 in the first sample, and busier over both."""
    found = split(samples({4: 1.0, 5: 0.96}, {5: 0.97, 6: 0.5}))

    assert found.chosen.tolist() == [5, 5]
    assert found.total_ps[[4, 5, 6]].tolist() == [TEN, 1.93 * TEN, 0.5 * TEN]
    assert found.alike(5) == [5]
    assert split(samples({4: 1.0, 5: 0.96}, {5: 0.97, 4: 1.0})).alike(4) == [4, 5]
    assert found.next_busiest([5]) == 4


def test_links_that_samples_do_not_list_are_counted_too() -> None:
    """Lists of two links: 1 and 2 first, then 2 and 3; 3 and 1 were as busy, and 4 was half of the time."""
    listed = samples({1: 1.0, 2: 1.0}, {2: 1.0, 3: 1.0})
    busy = [0, 2 * TEN, 2 * TEN, 2 * TEN, TEN, 9 * TEN, 0, 0, 0]
    found = network_time(listed, 0, [(0, 2 * TEN)], busy)

    assert found.total_ps.tolist()[:5] == [0, 2 * TEN, 2 * TEN, 2 * TEN, TEN]
    assert found.total_ps[5] == 2 * TEN  # most of it was at other times: not above the last one listed
    assert found.alike(1) == [1, 2, 3, 5]
    assert found.next_busiest([1, 2, 3, 5]) == 4
    first = network_time(listed, 0, [(0, TEN)], busy)
    assert first.total_ps.tolist() == [0, TEN, TEN, TEN, TEN, TEN, 0, 0, 0]
    slow = network_time(listed, 0, [(0, 2 * TEN)], [0, 2 * TEN, 2 * TEN, 2 * TEN, 1.5 * TEN, 0, 0, 0, 0])
    assert slow.saved_ps([1, 2, 3]) == pytest.approx(0.5 * TEN)  # link 4 takes as long as before


def test_only_the_jobs_own_time_counts() -> None:
    """Half of the first sample and all of the last one, given in any order."""
    found = split(samples({1: 1.0}, {2: 1.0}, {1: 1.0}), (2 * TEN, 3 * TEN), (TEN // 2, TEN))

    assert found.covered_ps.tolist() == [TEN / 2, 0, TEN]
    assert shares(found) == {"1": 1.0}


def test_a_remedy_saves_half_or_what_the_next_link_leaves() -> None:
    found = split(samples({1: 1.0, 2: 0.8}, {1: 1.0, 2: 0.4}))

    assert found.saved_ps([1]) == pytest.approx(2 * TEN - 1.2 * TEN)
    assert found.saved_ps([1, 2]) == pytest.approx(TEN)
    held = split(samples({1: 0.25}, {1: 0.75}, waiting=HELD))
    assert held.saved_by_windows_ps() == pytest.approx(TEN)
    assert split(samples({1: 0.9}, {1: 0.9}, waiting=HELD)).saved_by_windows_ps() == pytest.approx(0.2 * TEN)


class Aggregation:
    """Two workers on a star that add up words in a switch."""

    def __init__(self, words: int, slots: int, is_sampled: bool, loss: float = 0.0) -> None:
        network = small_star(2)
        environment = simpy.Environment()
        self.engine = Engine(network, 1, losses([loss] * len(network.link_names)))
        self.engine.start_log()
        self.sampler = Sampler(self.engine, 1)
        timeouts = (10**8, 10**8, 10**9)
        job = Job((0, 1), 2, 0, slots, 1, frame_of("udp-256"), *timeouts, routes=(0, 0))
        fabric = Fabric(environment, self.engine, 10**9, ("",), self.sampler if is_sampled else None)
        fabric.add_job(job)
        sent = [np.arange(words, dtype=np.int32)] * 2
        self.results = [np.zeros(words, np.int32) for _ in sent]
        opened = [
            fabric.stream(0, worker, [Segment(sent[worker], self.results[worker], Merge.ADD)])
            for worker in range(2)
        ]
        fabric.run_until(environment.all_of(opened))
        self.end_ps = int(environment.now)


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("slots", [2, 64])
def test_samples_change_nothing(loss: float, slots: int) -> None:
    """The same events at the same times, whether the engine is run in pieces or not."""
    plain, sampled = (Aggregation(6400, slots, is_sampled, loss) for is_sampled in (False, True))

    assert plain.engine.log == sampled.engine.log
    assert plain.end_ps == sampled.end_ps
    assert plain.engine.link_counters() == sampled.engine.link_counters()
    assert all(map(np.array_equal, plain.results, sampled.results))


def test_samples_are_disjoint_and_cover_the_time_that_somebody_waits() -> None:
    run = Aggregation(64_000, 64, is_sampled=True)
    found = run.sampler.samples()

    assert found.start_ps[0] == 0
    assert found.end_ps[-1] == run.end_ps
    assert (found.start_ps[1:] == found.end_ps[:-1]).all()
    lengths = found.end_ps - found.start_ps
    at = np.array([row[0] for row in run.engine.log])
    for start, end, length in zip(found.start_ps, found.end_ps, lengths, strict=True):
        is_jump = not ((at > start + 10**6) & (at < end)).any()  # no event until its end
        assert is_jump or length <= max(10**6, start // 16)
    assert (found.busy_ps <= lengths[:, None]).all()
    assert (np.diff(found.busy_ps, axis=1) <= 0).all()  # the busiest first


def test_busy_times_add_up_to_those_of_the_links() -> None:
    run = Aggregation(64_000, 64, is_sampled=True)
    found = run.sampler.samples()

    for link, counters in enumerate(run.engine.link_counters()):
        assert found.busy_ps[found.links == link].sum() == counters["busy_ps"]


def test_units_of_lost_packets_are_dead_until_their_timers() -> None:
    """All is lost at first: two units of each worker wait until the timer, one sample of all that time."""
    run = Aggregation(128, 2, is_sampled=True, loss=0.9)
    found = run.sampler.samples()
    longest = int((found.end_ps - found.start_ps).argmax())

    assert found.end_ps[longest] - found.start_ps[longest] > 9 * 10**7
    outstanding, dead = found.waiting[longest, 0, :2]
    assert dead == outstanding > 0
    assert found.is_empty[longest]
