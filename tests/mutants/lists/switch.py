"""Faults of switch programs, their arithmetic, and what fits."""

from __future__ import annotations

from tests.mutants.mutant import Harmless, Mutant, faults

KEPT = "tests/sim/engine/test_equivalence.py::test_kept_plans"
CLEARED = (
    "    registers.slots[rows] = np.zeros((), SLOT)\n"
    '    registers.slots["turn"][rows] = -1\n'
    '    registers.slots["timer_order"][rows] = -1\n'
)

MUTANTS: list[Mutant] = [
    *faults(
        "switch/programs/switchml.py",
        ["tests/switch/programs/test_switchml.py"],
        [
            ("a packet leaves the other version's bit", "    slots[row ^ 1].bitmap &= ~bit\n", ""),
            (
                "a duplicate completes a slot",
                "return ANSWER if count == 0 else DROPPED",
                "return ANSWER if count <= 1 else DROPPED",
            ),
            (
                "the first packet counts from n",
                "children - 1 if count == 0 else count - 1",
                "children if count == 0 else count - 1",
            ),
            ("a reused slot stays answered", "        slots[row].is_answered = 0\n", ""),
            (
                "exponents merge by minimum",
                "max(slots[row].exponent, exponent)\n    return verdict, MERGE",
                "min(slots[row].exponent, exponent)\n    return verdict, MERGE",
            ),
        ],
    ),
    *faults(
        "switch/programs/tree.py",
        ["tests/switch/programs/test_tree.py"],
        [
            (
                "a slot is not free when it is complete",
                "    slot.bitmap = np.uint64(0)\n    return COMPLETE",
                "    return COMPLETE",
            ),
            ("a duplicate is merged", "        return DROPPED, READ", "        return DROPPED, MERGE"),
        ],
    ),
    *faults(
        "switch/programs/timed.py",
        ["tests/switch/programs/test_timed.py"],
        [
            (
                "a packet of an older turn starts the row anew",
                "    if turn < slot.turn:\n",
                "    if turn < slot.turn - 2:\n",
            ),
            ("a row that starts anew has answered", "        slot.is_emitted = 0\n", ""),
            (
                "a late packet is answered as a lost one",
                "(ANSWER if is_seen else LATE)",
                "(ANSWER if is_seen else ANSWER)",
            ),
        ],
    ),
    *faults(
        "switch/programs/atp.py",
        ["tests/switch/programs/test_atp.py"],
        [
            (
                "a resend claims a free entry",
                "if entry.identity != identity and (is_resend or entry.identity != FREE):",
                "if entry.identity != identity and entry.identity != FREE:",
            ),
            (
                "an acknowledgement frees any entry",
                "    if entries.rows[row].identity == identity:\n",
                "    if entries.rows[row].identity != FREE:\n",
            ),
            (
                "a freed entry keeps its count",
                "    entry.bitmap = np.uint32(0)\n    entry.count = 0",
                "    entry.bitmap = np.uint32(0)",
            ),
        ],
    ),
    *faults(
        "switch/arithmetic.py",
        ["tests/switch/test_arithmetic.py"],
        [
            (
                "saturation stops one short of the smallest word",
                "        total = np.int64(values[i]) + np.int64(words[i])\n        clamped = min(max(total, np.int64(-(2**31)))",
                "        total = np.int64(values[i]) + np.int64(words[i])\n        clamped = min(max(total, np.int64(1 - 2**31))",
            ),
            (
                "a word sticks only at the top",
                "if old >= WORD_MAX or old <= -WORD_MAX:",
                "if old >= WORD_MAX or old < -WORD_MAX:",
            ),
            (
                "wrapping counts sums of unlike signs",
                "np.int32((old ^ total) & (word ^ total))",
                "np.int32((old ^ total) | (word ^ total))",
            ),
            (
                "a narrow lane sticks only at the top",
                "(old >= most or old <= -most)",
                "old >= most",
            ),
            (
                "narrow lanes saturate one short of the smallest",
                "clamped = min(max(total, -most - 1), most)",
                "clamped = min(max(total, -most), most)",
            ),
            (
                "narrow lanes that wrap count nothing",
                "        overflowed += clamped != total\n        values[i] = total if",
                "        overflowed += clamped != total and overflow != WRAP\n        values[i] = total if",
            ),
            (
                "all carries of a word are one",
                "carried += int(np.uint32((tops >> np.uint32(3)) * _ONES) >> np.uint32(28))",
                "carried += int(tops != 0)",
            ),
            (
                "lanes of 16 bits are added as words",
                "    if lane_bits == 16:\n        return add_narrow(values.view(np.int16), words.view(np.int16), 32767, overflow)\n",
                "",
            ),
        ],
    ),
    *faults(
        "switch/registers.py",
        ["tests/sim/engine/test_equivalence.py"],
        [
            (
                "cleared rows have had a first turn",
                'registers.slots["turn"][rows] = -1',
                'registers.slots["turn"][rows] = 0',
            ),
        ],
    ),
    *faults(
        "switch/registers.py",
        [f"{KEPT}[reboot_of_waiting_timers]"],
        [
            (
                "timers of cleared rows still fire",
                CLEARED,
                '    armed = registers.slots["timer_order"][rows].copy()\n'
                + CLEARED.replace('"timer_order"][rows] = -1', '"timer_order"][rows] = armed'),
            ),
        ],
    ),
]
HARMLESS: list[Harmless] = [
    Harmless(
        "switch/programs/timed.py",
        "    if turn < slot.turn:\n",
        "    if turn < slot.turn - 1:\n",
        "A row has even turns or odd ones: an older one is older by two at least.",
    ),
    Harmless(
        "switch/registers.py",
        '    registers.slots["timer_order"][rows] = -1\n',
        "",
        "0 would be left, the order of the run's first packet: no timer has it.",
    ),
]
