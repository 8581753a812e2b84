"""What bounds a job is found where it is known; its remedy helps as much as is said; nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.bounds.known import PACKET_BYTES, RACKS, Found, bounds_of

UNITS = 1563  # packets of 64 words that hold 100,000
TRIP_US = 2 * (1 + PACKET_BYTES * 8e-5)  # to the switch and back: each link takes 1 us and 26.56 ns


def helps(before: Found, after: Found, by: float | None, within: float = 0.02) -> None:
    """A remedy made it as much faster as was predicted."""
    assert by is not None
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
    helps(
        found, bounds_of(tmp_path, RACKS + "rate: 100Gbps, uplink_rate: 50Gbps}"), found.first["faster"], 0.05
    )
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


def test_hosts_that_merge(tmp_path: Path) -> None:
    """A ring merges three quarters of the words at each worker: 300 kB of arrivals, read and written."""
    ring = ("codec={kind: none}", "collective={kind: ring}")
    quick, found = bounds_of(tmp_path, *ring), bounds_of(tmp_path, *ring, SLOW.replace("10Gbps", "4Gbps"))

    assert found.first["cause"] == "merging"
    assert found.share("merging") == pytest.approx(
        1 - quick.time_us / found.time_us - found.share("device"), abs=0.05
    )
    # Three merges one after the other; where one begins, a sample of 1/16 of the time before holds both.
    assert found.first["time_us"] == pytest.approx(3 * 300_000 * 8 / 4e3, rel=1 / 16)


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
    assert found.share("merging") * found.time_us == pytest.approx(merging_us, rel=0.02)
    assert found.share("latency") < 0.02
