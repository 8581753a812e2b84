"""The loads of the benchmark do exactly the stated work; `make bench` measures their speed."""

from __future__ import annotations

import numpy as np

from netfold.homomorphic.message import Merge
from tests.bench import loads, nspy, rings


def test_w1_takes_the_ideal_time_and_two_hops_a_packet() -> None:
    run = loads.w1(1000)

    assert run.simulated_ms == (1000 * 80_000 + 80_000 + 2 * 10**6) / 1e9
    assert run.packet_hops == 16_000
    # Acknowledgements: the 15 full batches of 64, the last packet, two hops each, less what is under way.
    assert run.packet_hops <= run.events <= run.packet_hops + 2 * 8 * 16


def test_w2_takes_six_hops_or_fewer_on_all_hosts() -> None:
    run, theirs = loads.w2(50, k=4), nspy.w2(50, k=4)

    assert sorted(loads.permutation(16)) == list(range(16))
    assert all(host != target for host, target in enumerate(loads.permutation(16)))
    assert run.packet_hops == theirs.packet_hops
    assert 2 * 16 * 50 < run.packet_hops <= 6 * 16 * 50
    assert run.packet_hops <= run.events <= run.packet_hops * 1.1
    # Packets are sent at once or at the rate of the link, and ns.py's first one waits for its own time on it.
    assert abs(theirs.simulated_ms - run.simulated_ms - 8e-5) < 1e-9


def test_w4_sums_every_word_in_two_events_a_packet() -> None:
    buffers = loads.w4_words(256 * 1000)
    run = loads.w4(buffers)

    assert run.events == run.packet_hops == 2 * 8 * 1000
    right = sum(words for words, _ in buffers)
    assert all(np.array_equal(sums, right) for _, sums in buffers)


def test_nspy_carries_the_same_packets() -> None:
    run = nspy.w1(50)

    assert run.packet_hops == 2 * 8 * 50


def test_w3_takes_the_ideal_time_and_a_packet_more_for_each_step() -> None:
    hosts, words = 8, 8 * 10 * rings.FRAME.elements
    run, _ = rings.ring(hosts, words)

    assert run.simulated_ms == rings.stored_ms(hosts, words)
    assert run.packet_hops == 2 * 2 * 7 * 8 * 10
    assert run.packet_hops <= run.events <= 1.2 * run.packet_hops


def test_rings_merge_the_words_of_all() -> None:
    run, result = rings.ring(5, 1000, times=2, merge=Merge.ADD)

    assert set(result.tolist()) == {15}
    assert run.packet_hops == 2 * 2 * 2 * 4 * 5
