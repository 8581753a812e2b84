"""The ATP truth table on its own."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference.atp.switch import FREE, INT32_MAX, INT32_MIN, AtpReference, Entry, Outcome, Verdict

OWN, OTHER = 7, 8
KEPT = [100, -5]  # what the entry held before
SENT = [3, 20]
ADDED = [103, 15]
COMPLETE, EVICT, ANSWER, CONSUMED, DROPPED, COLLIDED = Verdict


def first_time(switch: AtpReference, bits: int, words: list[int], workers: int = 3) -> Outcome:
    """A packet of unit OWN for entry 4 that is no resend."""
    return switch.data(4, OWN, bits, workers, False, False, words)


TRUTH_TABLE = {  # identity, bitmap, count; resend or not; verdict, bits and words that leave; the entry after
    "claims": ((FREE, 0, 0), False, CONSUMED, 0b010, SENT, (OWN, 0b010, 1, SENT)),
    "adds": ((OWN, 0b001, 1), False, CONSUMED, 0b010, SENT, (OWN, 0b011, 2, ADDED)),
    "completes": ((OWN, 0b101, 2), False, COMPLETE, 0b111, ADDED, (OWN, 0b111, 3, ADDED)),
    "after a fault": ((OWN, 0b001, 2), False, COMPLETE, 0b011, ADDED, (OWN, 0b011, 3, ADDED)),
    "seen": ((OWN, 0b011, 2), False, DROPPED, 0b010, SENT, (OWN, 0b011, 2, KEPT)),
    "seen, complete": ((OWN, 0b111, 3), False, ANSWER, 0b111, KEPT, (OWN, 0b111, 3, KEPT)),
    "collides": ((OTHER, 0b011, 2), False, COLLIDED, 0b010, SENT, (OTHER, 0b011, 2, KEPT)),
    "resend, the last": ((OWN, 0b101, 2), True, EVICT, 0b111, ADDED, (FREE, 0, 0, ADDED)),
    "resend, new": ((OWN, 0b001, 1), True, EVICT, 0b011, ADDED, (FREE, 0, 0, ADDED)),
    "resend, seen": ((OWN, 0b011, 2), True, EVICT, 0b011, KEPT, (FREE, 0, 0, KEPT)),
    "resend, complete": ((OWN, 0b111, 3), True, EVICT, 0b111, KEPT, (FREE, 0, 0, KEPT)),
    "resend, free": ((FREE, 0, 0), True, COLLIDED, 0b010, SENT, (FREE, 0, 0, KEPT)),
    "resend, not its own": ((OTHER, 0b111, 3), True, COLLIDED, 0b010, SENT, (OTHER, 0b111, 3, KEPT)),
}


@pytest.mark.parametrize(
    ("before", "is_resend", "verdict", "bits", "words", "after"), TRUTH_TABLE.values(), ids=TRUTH_TABLE
)
def test_truth_table(
    before: tuple[int, int, int],
    is_resend: bool,
    verdict: Verdict,
    bits: int,
    words: list[int],
    after: tuple[int, int, int, list[int]],
) -> None:
    """Worker 1 of three sends unit OWN to entry 4, whose registers are set by hand."""
    switch = AtpReference()
    identity, bitmap, count = before
    switch.entries[4] = Entry(identity, bitmap, count, False, list(KEPT))

    outcome = switch.data(4, OWN, 0b010, 3, is_resend, False, SENT)
    assert outcome == Outcome(verdict, bits, words, False, 0)
    entry = switch.entries[4]
    assert (entry.identity, entry.bitmap, entry.count, entry.values) == after
    assert set(switch.entries) == {4}


def test_one_worker_overwrites_and_completes() -> None:
    switch = AtpReference()
    switch.entries[4] = Entry(FREE, 0, 0, False, list(KEPT))
    assert first_time(switch, 0b1, SENT, workers=1) == Outcome(COMPLETE, 0b1, SENT, False, 0)
    assert switch.entries[4] == Entry(OWN, 0b1, 1, False, SENT)


@pytest.mark.parametrize("is_resend", [False, True])
@pytest.mark.parametrize("identity", [FREE, OWN, OTHER])
def test_mark_stays_in_an_entry_until_it_is_acknowledged(identity: int, is_resend: bool) -> None:
    """What collides neither leaves its mark nor takes the entry's along."""
    is_own = identity == OWN or (identity == FREE and not is_resend)
    for old, new in product([False, True], repeat=2):
        switch = AtpReference()
        switch.entries[4] = Entry(identity, 0b01 if identity else 0, int(identity != FREE), old, list(KEPT))
        outcome = switch.data(4, OWN, 0b10, 2, is_resend, new, SENT)
        assert outcome.is_marked == ((old or new) if is_own else new)
        assert switch.entries[4].mark == ((old or new) if is_own else old)
        switch.acknowledge(4, switch.entries[4].identity)
        assert switch.entries[4].mark is False


def test_acknowledgement_frees_only_its_own_entry() -> None:
    switch = AtpReference()
    first_time(switch, 0b001, SENT)
    before = Entry(OWN, 0b001, 1, False, SENT)
    switch.acknowledge(4, OTHER)
    switch.acknowledge(5, OWN)
    assert switch.entries[4] == before
    assert switch.claimed() == [4]

    switch.acknowledge(4, OWN)
    assert switch.entries[4] == Entry(FREE, 0, 0, False, SENT)
    assert switch.claimed() == []
    assert first_time(switch, 0b010, [9, 9]).verdict is CONSUMED
    assert switch.entries[4].values == [9, 9]


def test_entry_claimed_by_a_late_first_packet_stays_claimed() -> None:
    """A copy that comes after the acknowledgement: FIFO paths rule it out, only a resend would free it."""
    switch = AtpReference()
    assert first_time(switch, 0b01, [1], workers=2).verdict is CONSUMED
    assert first_time(switch, 0b10, [2], workers=2).verdict is COMPLETE
    switch.acknowledge(4, OWN)
    assert first_time(switch, 0b01, [1], workers=2).verdict is CONSUMED

    assert switch.data(4, OTHER, 0b01, 2, False, False, [5]).verdict is COLLIDED
    assert switch.claimed() == [4]
    switch.clear()
    assert switch.claimed() == []


@pytest.mark.parametrize(
    ("old", "new", "after", "overflowed"),
    [
        (INT32_MAX - 1, 1, INT32_MAX, 0),
        (INT32_MAX - 1, 2, INT32_MAX, 1),
        (-5, INT32_MAX, INT32_MAX - 5, 0),  # only the register's own word sticks
        (INT32_MAX, -1, INT32_MAX, 1),
        (INT32_MAX, 0, INT32_MAX, 0),
        (INT32_MIN + 2, -1, -INT32_MAX, 0),
        (INT32_MIN + 2, -2, INT32_MIN, 0),
        (INT32_MIN + 2, -3, INT32_MIN, 1),
        (-INT32_MAX, INT32_MAX, -INT32_MAX, 1),  # stuck, though no int32 limit was passed
        (INT32_MIN, 1, INT32_MIN, 1),
        (INT32_MIN, 0, INT32_MIN, 0),
        (INT32_MIN, INT32_MIN, INT32_MIN, 1),
    ],
)
def test_saturation_sticks(old: int, new: int, after: int, overflowed: int) -> None:
    switch = AtpReference()
    first_time(switch, 0b01, [old, 0], workers=2)
    outcome = first_time(switch, 0b10, [new, 0], workers=2)

    assert outcome == Outcome(COMPLETE, 0b11, [after, 0], False, overflowed)
    assert switch.entries[4].values == [after, 0]


def test_overwriting_ends_a_saturation() -> None:
    switch = AtpReference()
    first_time(switch, 0b01, [INT32_MAX])
    switch.acknowledge(4, OWN)
    assert first_time(switch, 0b01, [-3]).overflowed_words == 0
    assert switch.entries[4].values == [-3]


def test_short_packets_touch_only_their_own_words() -> None:
    switch = AtpReference()
    first_time(switch, 0b01, [1, 2, 3], workers=2)
    switch.acknowledge(4, OWN)
    assert first_time(switch, 0b01, [10], workers=2).verdict is CONSUMED
    assert first_time(switch, 0b10, [20], workers=2).words == [30]
    assert switch.entries[4].values == [30, 2, 3]


def word(identity: int, worker: int) -> int:
    """Different for every worker of every unit, and so is every sum of them."""
    return (identity % 3 + 1) * 4**worker


@given(
    st.lists(
        st.tuples(st.sampled_from(["data", "resend", "acknowledge"]), st.integers(1, 3), st.integers(0, 3)),
        max_size=60,
    )
)
@examples(200)
def test_what_is_forwarded_holds_the_words_of_its_workers_once_each(
    script: list[tuple[str, int, int]],
) -> None:
    """Any packets in any order: three units of four workers compete for one entry."""
    switch = AtpReference()
    for what, identity, worker in script:
        if what == "acknowledge":
            switch.acknowledge(0, identity)
            continue
        words = [word(identity, worker)]
        outcome = switch.data(0, identity, 1 << worker, 4, what == "resend", False, words)
        holders = [each for each in range(4) if outcome.bits >> each & 1]
        assert worker in holders
        assert outcome.words == [sum(word(identity, each) for each in holders)]
        assert (outcome.verdict is COMPLETE) <= (len(holders) == 4)
        assert outcome.verdict in (COMPLETE, EVICT, ANSWER) or holders == [worker]

        entry = switch.entries[0]
        assert entry.count == entry.bitmap.bit_count()
        assert (entry.identity == FREE) == (entry.bitmap == 0)
