"""Which link or host is the bottleneck, and the time below which no round can be."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import simpy

from netfold.homomorphic.merge import Merge
from netfold.sim.checks.bottleneck import (
    BottleneckCause,
    NetworkTime,
    Piece,
    critical_path,
    network_time,
)
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Job, Segment, Sender, losses
from netfold.sim.engine.engine_views import Samples
from netfold.sim.network.fabric import Fabric, Sampler
from netfold.sim.plan.plan import frame_of
from netfold.sim.results.records import PhaseRecord, RoundRecord
from netfold.topologies.drawing_layout import tier_links
from netfold.topologies.kinds.bcube import BCube
from netfold.topologies.kinds.fat_tree import FatTree
from netfold.topologies.kinds.torus import Torus
from netfold.topologies.planes import Planes
from tests.sim.results.builders import RING, rounds
from tests.sim.scenes import simulate, small_star

PACKET_BYTES = 332  # of udp-256: 64 words and 76 B of headers, FCS, preamble and gap
CASE = """\
name: known
seed: 7
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 4
workload: {kind: synthetic, elements: 100000}
codec: {kind: fixed_point, factor: 1.0e+6}
collective: {kind: in_network, frame: udp-256, slots: 512}
"""
RACKS = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2, switch: ideal, delay: 1us, "


class Found(NamedTuple):
    """The bounds of a job, and its mean aggregation time of a step in microseconds."""

    parts: tuple[dict[str, Any], ...]
    time_us: float

    @property
    def first(self) -> dict[str, Any]:
        return self.parts[0]

    def share(self, cause: str, where: str | None = None) -> float:
        return sum(
            part["share"]
            for part in self.parts
            if part["cause"] == cause and (where is None or part["where"] == where)
        )


def bounds_of(folder: Path, *sets: str, job: int = 0) -> Found:
    """The bounds of a job of the case with changed values."""
    result = simulate(folder, *sets, text=CASE).jobs[job]
    steps = result.journal.steps
    assert all(check.verdict == "pass" for check in result.checks)
    found = Found(
        tuple(dict(part) for part in result.facts.bounds),
        sum(step.aggregation_ps for step in steps) / len(steps) / 1e6,
    )
    assert abs(sum(part["share"] for part in found.parts) - 1) < 1e-9
    assert abs(sum(part["time_us"] for part in found.parts) - found.time_us) < 1e-6 * found.time_us
    assert list(found.parts) == sorted(found.parts, key=lambda part: -part["share"])
    return found


UNITS = 1563  # packets of 64 words that hold 100,000
TRIP_US = 2 * (1 + PACKET_BYTES * 8e-5)  # to the switch and back: each link takes 1 us and 26.56 ns


def helps(before: Found, after: Found, by: float | None, within: float = 0.02) -> None:
    """A remedy made it as much faster as was predicted."""
    assert before.time_us / after.time_us == pytest.approx(by, rel=within)


def no_help(before: Found, after: Found, within: float = 0.02) -> None:
    assert after.time_us == pytest.approx(before.time_us, rel=within)


def test_links_of_workers(tmp_path: Path) -> None:
    """Each link carries the packets once: 1563 · 332 B at 100 Gbps; the last has one more link to go."""
    found = bounds_of(tmp_path)

    assert found.time_us == pytest.approx((UNITS - 1) * PACKET_BYTES * 8e-5 + TRIP_US, rel=1e-6)
    assert (found.first["cause"], found.first["where"], found.first["alike"]) == ("link", "h0->s0", 7)
    # From the first packet up to the last one down some link is busy; the rest is the last one's delay.
    assert found.first["share"] == pytest.approx(1 - 1 / found.time_us, abs=2e-3)
    assert found.first["busy"] == pytest.approx(UNITS * PACKET_BYTES * 8e-5 / found.time_us, abs=1e-3)
    assert found.first["hosts"] == 1
    helps(found, bounds_of(tmp_path, "topology.rate=200Gbps"), found.first["faster"], 0.05)
    no_help(found, bounds_of(tmp_path, "collective.slots=1024"))


def test_racks_without_oversubscription_are_bound_by_all_their_links(tmp_path: Path) -> None:
    """Four racks of 8: each way, a packet goes over every link of a host and every link of a leaf once."""
    racks = "topology={kind: leaf_spine, leaves: 4, spines: 1, hosts_per_leaf: 8, switch: ideal, "
    even = ("workers=32", "workload.elements=400000", racks + "rate: 100Gbps, uplink_rate: 100Gbps}")
    found = bounds_of(tmp_path, *even)

    assert found.first["alike"] == 2 * 32 + 2 * 4 - 1
    faster = racks + "rate: 200Gbps, uplink_rate: 200Gbps}"
    helps(found, bounds_of(tmp_path, *even, faster), found.first["faster"], 0.05)


def test_oversubscribed_uplinks(tmp_path: Path) -> None:
    """Of two racks, each sends one stream of sums up; the uplink has a quarter of a worker's rate."""
    slow = RACKS + "rate: 100Gbps, uplink_rate: 25Gbps}"
    found = bounds_of(tmp_path, slow)

    assert found.first["cause"] == "link"
    assert found.first["where"] in ("leaf0->spine0", "spine0->leaf0")
    assert found.first["alike"] == 3  # up and down, of both racks
    assert found.first["share"] > 0.95
    faster = bounds_of(tmp_path, RACKS + "rate: 100Gbps, uplink_rate: 50Gbps}")
    helps(found, faster, found.first["faster"], 0.05)
    no_help(found, bounds_of(tmp_path, RACKS + "rate: 200Gbps, uplink_rate: 25Gbps}"))


def test_the_link_of_a_parameter_server(tmp_path: Path) -> None:
    """Three workers send all to one server, so its link carries three times what theirs do, in and out."""
    server = ("workers=3", "codec={kind: none}", "collective={kind: parameter_server, frame: udp-256}")
    found = bounds_of(tmp_path, *server)

    assert found.first["cause"] == "link"
    assert {found.first["where"]} <= {"s0->h3", "h3->s0"}
    assert found.first["alike"] == 1
    assert found.first["share"] > 0.9
    assert found.time_us > 3 * UNITS * PACKET_BYTES * 8e-5
    assert max(part["hosts"] for part in found.parts if part["where"] == found.first["where"]) in (1, 3)


def test_few_slots(tmp_path: Path) -> None:
    """8 packets each round trip of 2.05 us: no link is busy for more than 8 · 26.56 ns of it."""
    few = bounds_of(tmp_path, "collective.slots=8")

    assert few.time_us == pytest.approx(UNITS / 8 * TRIP_US, rel=0.01)
    assert few.first["cause"] == "window"
    assert few.first["share"] > 0.95
    helps(few, bounds_of(tmp_path, "collective.slots=16"), few.first["faster"], 0.03)
    no_help(few, bounds_of(tmp_path, "collective.slots=8", "topology.rate=400Gbps"), 0.07)


def test_loopback_port(tmp_path: Path) -> None:
    """Each result passes the loopback port once, 332 B at a quarter of the links' rate."""
    rate = 25

    def slow(loopback: int, links: int = 100) -> Found:
        profile = f"profiles=[{{name: slow, like: tofino1, loopback_rate: {loopback}Gbps}}]"
        return bounds_of(tmp_path, profile, "topology.switch=slow", f"topology.rate={links}Gbps")

    found = slow(rate)
    assert (found.first["cause"], found.first["where"]) == ("loopback", "s0->s0")
    assert found.first["share"] > 0.95
    assert found.time_us == pytest.approx(UNITS * PACKET_BYTES * 8e-3 / rate, rel=0.05)
    helps(found, slow(2 * rate), found.first["faster"], 0.05)
    no_help(found, slow(rate, links=50), 0.03)


def test_timers(tmp_path: Path) -> None:
    """All that is sent in the first microsecond is lost, so all wait for the timers, 5 ms."""
    lost = ("faults=[{kind: loss, rate: 100%, until: 1us}]", "workload.elements=10000")
    found = bounds_of(tmp_path, *lost, "collective.timeout=5ms")

    assert found.first["cause"] == "timer"
    assert found.first["share"] == pytest.approx(5000 / found.time_us, abs=0.01)
    helps(found, bounds_of(tmp_path, *lost, "collective.timeout=2.5ms"), found.first["faster"])
    no_help(found, bounds_of(tmp_path, *lost, "collective.timeout=5ms", "topology.rate=400Gbps"))


def test_latency_of_a_small_message_around_a_large_ring(tmp_path: Path) -> None:
    """2 · 15 steps of 2 us and of two packets' time on the wire: nobody has more to send."""
    ring = ("topology.hosts=16", "workers=16", "workload.elements=16", "codec={kind: none}")
    small = bounds_of(tmp_path, *ring, "collective={kind: ring, frame: udp-256}")

    assert small.time_us == pytest.approx(30 * 2, rel=0.02)
    assert small.first["cause"] == "latency"
    assert small.first["share"] > 0.95
    later = bounds_of(tmp_path, *ring, "collective={kind: ring, frame: udp-256}", "topology.delay=2us")
    assert later.time_us / small.time_us == pytest.approx(2, rel=0.02)
    helps(later, small, later.first["faster"])
    no_help(small, bounds_of(tmp_path, *ring, "collective={kind: ring}", "topology.rate=400Gbps"))


SLOW = "device={kind: fixed, forward: 0ps, backward: 0ps, memory_rate: 10Gbps}"


def test_devices_that_encode_and_decode(tmp_path: Path) -> None:
    """Every worker takes as long, so none is a straggler; memory of twice the rate halves it."""
    found = bounds_of(tmp_path, SLOW)
    network_us = bounds_of(tmp_path).time_us

    assert found.first["cause"] == "device"
    assert found.share("device") == pytest.approx(1 - network_us / found.time_us, abs=0.01)
    assert found.share("straggler") == 0
    fast = bounds_of(tmp_path, SLOW.replace("10Gbps", "20Gbps"))
    assert found.time_us - fast.time_us == pytest.approx(found.share("device") * found.time_us / 2, rel=0.01)
    no_help(found, bounds_of(tmp_path, SLOW, "collective.slots=1024"))


def test_a_straggler(tmp_path: Path) -> None:
    """What worker 2 takes longer is a straggler's; as long as the others take, all devices do."""
    usual = bounds_of(tmp_path, SLOW)
    found = bounds_of(tmp_path, SLOW, "faults=[{kind: slow_host, worker: 2, factor: 5}]")
    device_us = usual.share("device") * usual.time_us

    assert (found.first["cause"], found.first["where"]) == ("straggler", "h2")
    assert sorted(found.first["stage"].split(" and ")) == ["decode", "encode"]
    assert found.first["time_us"] == pytest.approx(4 * device_us, rel=0.01)
    assert found.share("device") * found.time_us == pytest.approx(device_us, rel=0.01)
    helps(found, usual, found.first["faster"])


def test_a_worker_that_is_late(tmp_path: Path) -> None:
    found = bounds_of(tmp_path, "faults=[{kind: start_skew, worker: 1, delay: 100us}]")

    assert (found.first["cause"], found.first["where"]) == ("straggler", "h1")
    assert found.first["time_us"] == pytest.approx(100, rel=1e-6)
    helps(found, bounds_of(tmp_path), found.first["faster"])


def test_two_jobs_share_a_link(tmp_path: Path) -> None:
    """Each job has a worker in each rack; both send through leaf0->spine0 and are bound by it."""
    racks = RACKS + "rate: 100Gbps, uplink_rate: 25Gbps}"
    jobs = (
        "jobs=[{name: a}, {name: b}]",
        "workers={count: 2, placement: spread}",
        "codec={kind: none}",
        "collective={kind: ring, frame: udp-256}",
    )
    alone = bounds_of(tmp_path, racks, *jobs, "jobs=[{name: a}]")
    shared = [bounds_of(tmp_path, racks, *jobs, job=job) for job in (0, 1)]

    for found in shared:
        assert found.first["cause"] == "link"
        assert "spine0" in found.first["where"]
        assert found.first["share"] > 0.9
        assert found.first["hosts"] == 2
        assert found.time_us == pytest.approx(2 * alone.time_us, rel=0.05)
    assert alone.first["hosts"] == 1


def test_two_that_are_close(tmp_path: Path) -> None:
    """Devices take as long as the network: half of the time is named for each."""
    network_us = bounds_of(tmp_path).time_us
    once = bounds_of(tmp_path, SLOW)
    rate = 10 * once.share("device") * once.time_us / network_us
    found = bounds_of(tmp_path, SLOW.replace("10Gbps", f"{rate:.3f}Gbps"))

    assert found.share("device") == pytest.approx(0.5, abs=0.01)
    assert found.share("link") == pytest.approx(0.5, abs=0.05)
    assert {part["cause"] for part in found.parts[:3]} == {"device", "link"}


@pytest.mark.parametrize(("kind", "workers"), [("ring", 8), ("halving_doubling", 32)])
def test_merging_is_not_taken_for_latency(tmp_path: Path, kind: str, workers: int) -> None:
    """Each worker merges all but one n-th of the words: 12 B a word, at 5 Gbps, while nothing is sent."""
    slow = "device={kind: fixed, forward: 0ps, backward: 0ps, memory_rate: 5Gbps}"
    sets = (f"topology.hosts={workers}", f"workers={workers}", "workload.elements=1000000", slow)
    found = bounds_of(tmp_path, *sets, "codec={kind: none}", f"collective={{kind: {kind}}}")

    merging_us = (1 - 1 / workers) * 1e6 * 12 * 8 / 5e9 * 1e6
    assert found.first["cause"] == "merging"
    assert found.share("merging") * found.time_us == pytest.approx(merging_us, rel=0.02)
    assert found.share("latency") < 0.02


def a_round(bucket: int, start_ps: int, end_ps: int) -> RoundRecord:
    return replace(rounds(RING)[0], step=0, bucket=bucket, start_ps=start_ps, end_ps=end_ps)


def phases(worker: int, bucket: int, *spans: tuple[str, int, int]) -> list[PhaseRecord]:
    """Phases by name or, for a wait, by what is waited for."""
    found = []
    for name, start_ps, end_ps in spans:
        kind, _, label = name.partition(" ")
        found.append(PhaseRecord("v", 0, bucket, worker, kind, label, start_ps, end_ps, 0))
    return found


def times(pieces: list[Piece]) -> Counter[tuple[str, int, str]]:
    """Time by cause, worker and stage."""
    found: Counter[tuple[str, int, str]] = Counter()
    for piece in pieces:
        worker = piece.worker if piece.cause is BottleneckCause.STRAGGLER else -1
        found[str(piece.cause or "network"), worker, piece.stage] += piece.end_ps - piece.start_ps
    return found


CRITICAL = {
    # Workers encode for 10, 10 and 30: until 30 the straggler's 20 beyond the median count.
    "the network begins with the last worker": (
        [a_round(0, 0, 60)],
        [
            *phases(0, 0, ("encode", 0, 10), ("network", 10, 50), ("decode", 50, 60)),
            *phases(1, 0, ("encode", 0, 10), ("network", 10, 50), ("decode", 50, 60)),
            *phases(2, 0, ("encode", 0, 30), ("network", 30, 50), ("decode", 50, 60)),
        ],
        {
            ("device", -1, "encode"): 10,
            ("straggler", 2, "encode"): 20,
            ("network", -1, ""): 20,
            ("device", -1, "decode"): 10,
        },
    ),
    # Worker 1 computes until 35, and nothing is known of it for 5 more.
    "what a late worker did before": (
        [a_round(0, 10, 80)],
        [
            *phases(0, -1, ("backward", 0, 10)),
            *phases(1, -1, ("backward", 0, 35)),
            *phases(0, 0, ("network", 10, 80)),
            *phases(1, 0, ("network", 40, 80)),
        ],
        {("straggler", 1, "backward"): 25, ("straggler", 1, "idle"): 5, ("network", -1, ""): 40},
    ),
    # Decoding waits from 30 to 50 for the device, which encodes another bucket from 32 to 50.
    "waits are what the device or the network does meanwhile": (
        [a_round(0, 0, 60)],
        [
            *phases(0, 0, ("wait network", 0, 5), ("network", 5, 30)),
            *phases(0, 0, ("wait device", 30, 50), ("decode", 50, 60)),
            *phases(0, 1, ("encode", 32, 50)),
        ],
        {
            ("network", -1, ""): 30,
            ("device", -1, "idle"): 2,
            ("device", -1, "encode"): 18,
            ("device", -1, "decode"): 10,
        },
    ),
    # The second round counts from the end of the first.
    "rounds that overlap count once": (
        [a_round(0, 0, 50), a_round(1, 20, 80), a_round(2, 30, 40)],
        [
            *phases(0, 0, ("network", 0, 50)),
            *phases(0, 1, ("encode", 20, 60), ("network", 60, 80)),
            *phases(0, 2, ("network", 30, 40)),
        ],
        {("network", -1, ""): 70, ("device", -1, "encode"): 10},
    ),
    # Worker 1 is last into the first operation, worker 0 into the second, after decoding for longer. The
    # median of two is their mean.
    "several operations are walked back through their last workers": (
        [a_round(0, 0, 100)],
        [
            *phases(0, 0, ("encode", 0, 10), ("network", 10, 40), ("decode", 40, 60), ("network", 60, 100)),
            *phases(1, 0, ("encode", 0, 20), ("network", 20, 40), ("decode", 40, 50), ("network", 50, 100)),
        ],
        {
            ("device", -1, "encode"): 15,
            ("straggler", 1, "encode"): 5,
            ("network", -1, ""): 20 + 40,
            ("device", -1, "decode"): 15,
            ("straggler", 0, "decode"): 5,
        },
    ),
}


@pytest.mark.parametrize("name", CRITICAL)
def test_the_critical_path(name: str) -> None:
    rounds_, phases_, expected = CRITICAL[name]
    path = critical_path(rounds_, phases_)

    assert times(path) == expected
    spans = sorted((piece.start_ps, piece.end_ps) for piece in path)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_a_worker_that_begins_after_the_end_was_not_waited_for() -> None:
    late = phases(1, 0, ("network", 70, 80), ("decode", 80, 90))
    path = critical_path(
        [a_round(0, 0, 100)], [*phases(0, 0, ("network", 0, 60), ("decode", 60, 100)), *late]
    )

    assert times(path)["network", -1, ""] == 60


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
        np.zeros(count, np.int64),
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
    causes = (BottleneckCause.WINDOW, BottleneckCause.TIMER, BottleneckCause.LATENCY, BottleneckCause.MERGING)
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
        sender = Sender(frame_of("udp-256"), slots, 10**8, 1, 10**8, 10**9)
        job = Job((0, 1), 2, 0, 1, sender, routes=(0, 0))
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


SPINES = "topology={kind: leaf_spine, leaves: 4, spines: 4, hosts_per_leaf: 2, switch: ideal, "
TREE = "collective={kind: in_network, aggregators: tree, frame: udp-256"
FLOAT_RING = ("codec={kind: none}", "collective={kind: ring}")


@pytest.mark.parametrize(
    ("uplinks", "sets", "used", "told"),
    [
        ("25Gbps", (TREE + "}",), 4, "use more trees"),  # every leaf is linked to the tree's root
        ("25Gbps", (TREE + ", trees: 4}",), 16, ""),
        ("400Gbps", (TREE + "}",), 4, ""),  # the links of hosts are the bottleneck
        ("97Gbps", FLOAT_RING, 4, ""),  # links of hosts are as busy
        ("25Gbps", FLOAT_RING, 4, "use routing: spray, or more channels"),  # a flow leaves every leaf
        ("25Gbps", (*FLOAT_RING, "routing=spray"), 16, ""),
    ],
)
def test_few_links_of_the_bottlenecks_tier_are_told(
    tmp_path: Path, uplinks: str, sets: tuple[str, ...], used: int, told: str
) -> None:
    topology = f"{SPINES}rate: 100Gbps, uplink_rate: {uplinks}}}"
    (job,) = simulate(tmp_path, topology, "workers=8", *sets, text=CASE).jobs
    warnings = [warning for warning in job.facts.warnings if warning.startswith("the bottleneck is ")]

    assert job.facts.links_used is not None
    assert job.facts.links_used["leaf→spine"] == {"used": used, "links": 16}
    assert set(job.facts.links_used) == {"leaf→spine", "spine→leaf"}
    assert len(warnings) == bool(told)
    assert all(
        f"only {used} of 16 links " in text and text.endswith(f"are used: {told}") for text in warnings
    )


@pytest.mark.parametrize(
    ("topology", "counts"),
    [
        (FatTree(k=4), {"edge→agg": 16, "agg→edge": 16, "agg→core": 16, "core→agg": 16}),
        (Planes(FatTree(k=4), 2), {"edge→agg": 32, "agg→edge": 32, "agg→core": 32, "core→agg": 32}),
        (Torus(dimensions=(3, 4)), {"s→s": 48}),
        (BCube(n=2, k=1), {}),  # servers alone are linked to its switches
    ],
    ids=["fat tree", "planes", "torus", "bcube"],
)
def test_links_between_switches_by_what_they_join(topology: Any, counts: dict[str, int]) -> None:
    assert {name: len(ends) for name, ends in tier_links(topology.graph()).items()} == counts
