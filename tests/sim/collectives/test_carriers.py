"""How long collectives take for messages, as codecs are told that choose by it."""

from __future__ import annotations

from dataclasses import replace

from netfold.homomorphic.carrier import MessageSize
from netfold.sim.collectives.between_hosts import HostCarrier
from netfold.sim.collectives.in_network.carrier import WindowCarrier

NS, US, GBPS = 10**3, 10**6, 10**9
SHORT = WindowCarrier(
    unit_elements=100, latency_ps=5 * US, rate_bps=32 * GBPS, window_words=400, sends_exponents_ahead=True
)
LONG = replace(SHORT, window_words=8000)


def plain(*messages: int) -> list[MessageSize]:
    return [MessageSize(words) for words in messages]


def test_messages_to_a_switch_follow_each_other_in_whole_units() -> None:
    """A word is 1 ns."""
    assert LONG.time_ps(plain(50, 130)) == 5 * US + 300 * NS
    assert LONG.time_ps(plain(1000)) == 5 * US + 1000 * NS
    assert LONG.time_ps(plain(0)) == LONG.time_ps([]) == 0


def test_a_window_waits_for_its_first_answer_or_for_the_link() -> None:
    # Three windows: each of the first two waits 5.1 us for its first answer.
    assert SHORT.time_ps(plain(1000)) == 2 * 5100 * NS + 5 * US + 200 * NS
    assert SHORT.time_ps(plain(800)) == 5100 * NS + 5 * US + 400 * NS
    assert LONG.time_ps(plain(20_000)) == 2 * 8 * US + 5 * US + 4 * US


def test_exponents_go_a_window_ahead() -> None:
    """It takes a round trip, or its own time where that is longer."""
    assert SHORT.time_ps([MessageSize(400, 100)]) == 5100 * NS + 5 * US + 400 * NS
    assert LONG.time_ps([MessageSize(20_000, 100)]) == 8 * US + 2 * 8 * US + 5 * US + 4 * US


def test_exponents_have_an_operation_of_their_own_where_they_cannot_go_ahead() -> None:
    own, others = MessageSize(400, 100), MessageSize(400, 50)
    without = replace(SHORT, sends_exponents_ahead=False)
    staged_ps = SHORT.time_ps(plain(100)) + SHORT.time_ps(plain(400))

    assert without.time_ps([own]) == SHORT.time_ps([others]) == staged_ps
    assert SHORT.time_ps([own, *plain(90)]) == SHORT.time_ps(plain(100, 90)) + SHORT.time_ps(plain(400))


def test_each_message_on_a_ring_waits_for_the_one_before_it() -> None:
    ring = HostCarrier(latency_ps=5 * US, rate_bps=32 * GBPS)

    assert ring.time_ps(plain(50, 0, 130)) == 5 * US + 50 * NS + 5 * US + 130 * NS
    assert ring.time_ps([MessageSize(1000, 64)]) == 5 * US + 16 * NS + 5 * US + 1000 * NS
