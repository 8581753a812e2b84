"""Faults of schedules: when transfers leave, what is merged with what, and what is told of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LAW = ["tests/sim/engine/test_equivalence.py::test_plans[schedules]"]
RING = ["tests/sim/collectives/test_between_hosts.py"]
ABSENCE = ["tests/sim/collectives/test_absence.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/engine/schedules/progress.py",
        LAW,
        [
            (
                "a lane counts what is delivered as outstanding",
                "lane.outstanding -=",
                "lane.outstanding += 0 *",
            ),
            (
                "a transfer is sent when the first is processed that it waits for",
                "if transfers[waiter].waits == 0:",
                "if transfers[waiter].waits >= 0:",
            ),
            (
                "what arrived before its worker began is forgotten",
                "entry = party.arrived_head",
                "entry = -1",
            ),
            (
                "a merge ends before the packets of its instant",
                "clock.order + LATE",
                "clock.order",
            ),
            (
                "a header travels with the words of nobody",
                "        if cells[cell].workers > 0:\n            total +=",
                "        if cells[cell].workers >= 0:\n            total +=",
            ),
        ],
    ),
    *faults(
        "sim/engine/schedules/cells.py",
        LAW,
        [
            ("signs of all chunks of a transfer have one key", "key + np.uint64(32 * offset)", "key"),
            (
                "weights are those of two workers",
                "survival(cells[arriving].workers, cells[own].workers)",
                "survival(1, 1)",
            ),
            (
                "a merge writes into the target's buffer whatever the order",
                "elif cells[own].state == SCRATCH and schedule.merge != SIGN:",
                "elif cells[own].state == SCRATCH:",
            ),
            (
                "the largest of nobody's words is zero",
                "word = INT32_MIN if merge == MAX else np.int32(0)",
                "word = np.int32(0)",
            ),
            (
                "a worker's words are written into",
                "    if cells[arriving].state == SCRATCH:\n        lift_cell",
                "    if cells[arriving].state >= 0:\n        lift_cell",
            ),
        ],
    ),
    *faults(
        "sim/engine/setup/derived.py",
        LAW,
        [("a transfer lets one follow", "followers[1:][~is_first[1:]]", "-1")],
    ),
    *faults(
        "sim/collectives/scheduled.py",
        RING,
        [
            (
                "hops name the workers the other way round",
                "HostHop(arriving.first, own.first, key)",
                "HostHop(own.first, arriving.first, key)",
            ),
        ],
    ),
    *faults(
        "sim/collectives/scheduled.py",
        ABSENCE,
        [
            (
                "an absent worker counts",
                "present[worker] = not message.is_absent",
                "present[worker] = True",
            ),
            ("parts that disagree are not told", "is_mixed=is_mixed", "is_mixed=False"),
        ],
    ),
]
