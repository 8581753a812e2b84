"""The compiled switch program: its truth table row by row, and the accident it cannot survive."""

from __future__ import annotations

import numpy as np
import pytest

from switch.programs.switchml import (
    ADD,
    ANSWER,
    COMPLETE,
    CONSUMED,
    DROPPED,
    MAX,
    OR,
    Registers,
    new_registers,
    process_packet,
)

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
KEPT = [70, -7]  # what the register held before
SENT = [5, INT32_MAX]
ADDED = [75, INT32_MAX - 7]


def send(
    registers: Registers,
    row: int,
    worker: int,
    words: list[int],
    *,
    workers: int,
    merge: int = ADD,
    exponent: int = 0,
) -> int:
    """One packet for a row (2 · slot + version) of the registers; returns the verdict."""
    return process_packet(registers, row, worker, workers, merge, exponent, np.array(words, np.int32))


@pytest.mark.parametrize(
    ("workers", "bitmap", "counter", "values_after", "counter_after", "verdict"),
    [
        pytest.param(3, 0b000, 0, SENT, 2, CONSUMED, id="zero bitmap, zero counter: overwrite, count from n"),
        pytest.param(3, 0b000, 2, SENT, 1, CONSUMED, id="zero bitmap, counter 2: overwrite, a fault"),
        pytest.param(3, 0b000, 1, SENT, 0, COMPLETE, id="zero bitmap, counter 1: overwrite, a fault"),
        pytest.param(3, 0b001, 2, ADDED, 1, CONSUMED, id="others, counter 2: merge"),
        pytest.param(3, 0b101, 1, ADDED, 0, COMPLETE, id="others, counter 1: merge, the last"),
        pytest.param(3, 0b101, 0, ADDED, 2, CONSUMED, id="others, zero counter: merge, a fault"),
        pytest.param(3, 0b111, 0, KEPT, 0, ANSWER, id="seen, zero counter: read, the slot is complete"),
        pytest.param(3, 0b010, 2, KEPT, 2, DROPPED, id="seen, counter 2: read, not complete yet"),
        pytest.param(1, 0b000, 0, SENT, 0, COMPLETE, id="one worker, new: no counter"),
        pytest.param(1, 0b000, 1, SENT, 1, COMPLETE, id="one worker, new, odd counter: no counter"),
        pytest.param(1, 0b010, 0, KEPT, 0, ANSWER, id="one worker, seen"),
        pytest.param(1, 0b010, 1, KEPT, 1, ANSWER, id="one worker, seen, odd counter: no counter"),
    ],
)
def test_truth_table(
    workers: int, bitmap: int, counter: int, values_after: list[int], counter_after: int, verdict: int
) -> None:
    """Worker 1 sends version 0 of slot 2, whose registers are set by hand; it had sent version 1 before."""
    registers = new_registers(4, 2)
    registers.bitmap[[4, 5]] = bitmap, 0b111
    registers.counter[[4, 5]] = counter, 9
    registers.exponent[[4, 5]] = 3, -1
    registers.values[[4, 5]] = KEPT, [11, 12]

    assert send(registers, 4, 1, SENT, workers=workers, exponent=-4) == verdict
    assert registers.values[4].tolist() == values_after
    assert registers.counter[4] == counter_after
    assert registers.exponent[4] == (-4 if bitmap == 0 else 3)
    assert registers.bitmap[[4, 5]].tolist() == [bitmap | 0b010, 0b101]
    # Nothing else of the other version changes, and no other slot.
    assert (registers.values[5].tolist(), registers.counter[5], registers.exponent[5]) == ([11, 12], 9, -1)
    for array in registers:
        assert not np.delete(array, [4, 5], axis=0).any()


@pytest.mark.parametrize(
    ("merge", "old", "new", "expected"),
    [
        (ADD, INT32_MAX, 1, INT32_MIN),
        (ADD, INT32_MIN, -1, INT32_MAX),
        (ADD, INT32_MIN, INT32_MIN, 0),
        (ADD, -5, 3, -2),
        (OR, 0b1100, 0b0110, 0b1110),
        (OR, INT32_MIN, 1, INT32_MIN + 1),
        (MAX, -1, 1, 1),  # signed: as unsigned words −1 would be the larger
        (MAX, INT32_MAX, INT32_MIN, INT32_MAX),
    ],
)
def test_merges_of_one_word(merge: int, old: int, new: int, expected: int) -> None:
    """In particular INT32_MAX + 1 wraps to −2147483648: nothing in SwitchML saturates."""
    registers = new_registers(1, 1)
    send(registers, 0, 0, [old], workers=2, merge=merge)
    send(registers, 0, 1, [new], workers=2, merge=merge)

    assert [expected] == registers.values[0].tolist()


def test_exponents_take_the_signed_maximum() -> None:
    registers = new_registers(1, 1)
    for worker, exponent in enumerate([-100, -128, 17, 4]):
        send(registers, 0, worker, [0], workers=5, exponent=exponent)

    assert registers.exponent[0] == 17
    send(registers, 1, 0, [0], workers=5, exponent=-128)
    assert registers.exponent.tolist() == [17, -128]  # the other version starts anew


def test_all_bits_of_the_bitmap_are_workers() -> None:
    """32 workers fill the word; the last completes, whichever it is, and readies the other version."""
    registers = new_registers(1, 1)
    order = [31, *range(31)]
    verdicts = [
        send(registers, 0, worker, [1 << worker if worker < 31 else 0], workers=32) for worker in order
    ]
    assert verdicts == [CONSUMED] * 31 + [COMPLETE]
    assert registers.bitmap.tolist() == [2**32 - 1, 0]
    assert registers.values[0].tolist() == [INT32_MAX]

    assert [send(registers, 0, worker, [9], workers=32) for worker in order] == [ANSWER] * 32
    send(registers, 1, 31, [9], workers=32)
    assert registers.bitmap.tolist() == [2**31 - 1, 2**31]


def test_short_packets_leave_the_rest_of_the_register_alone() -> None:
    registers = new_registers(1, 3)
    send(registers, 0, 0, [1, 2, 3], workers=2)
    send(registers, 0, 1, [10], workers=2)
    assert registers.values[0].tolist() == [11, 2, 3]

    send(registers, 1, 0, [], workers=2)
    send(registers, 1, 1, [4, 5], workers=2)
    assert registers.values[1].tolist() == [4, 5, 0]
    assert registers.counter[1] == 0


def test_late_duplicate_corrupts_a_slot_for_good() -> None:
    """A's first packet comes again after A moved on: only reordering paths can do that, and nothing notices.

    The rounds should give 10 + 20 = 30, 1 + 2 = 3 and 100 + 200 = 300.
    """
    registers = new_registers(1, 1)
    a, b = 0, 1

    def sent(worker: int, version: int, word: int) -> int:
        return send(registers, version, worker, [word], workers=2)

    def broadcast(version: int) -> list[int]:
        return [int(word) for word in registers.values[version]]

    assert [sent(a, 0, 10), sent(b, 0, 20)] == [CONSUMED, COMPLETE]
    assert broadcast(0) == [30]
    assert sent(a, 1, 1) == CONSUMED
    assert sent(a, 0, 10) == CONSUMED  # the late duplicate
    assert registers.bitmap.tolist() == [3, 0]
    assert registers.counter.tolist() == [1, 1]

    assert sent(b, 1, 2) == COMPLETE
    assert broadcast(1) == [2]
    assert [sent(a, 0, 100), sent(b, 0, 200)] == [DROPPED, COMPLETE]
    assert broadcast(0) == [240]
