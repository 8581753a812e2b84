"""Faults of a job's steps: turns, devices, bytes, activities."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

FOLDER = "tests/sim/run/step/"
CLOSED_FORMS = FOLDER + "test_closed_forms.py"
DEADLOCK = FOLDER + "test_deadlock.py"
PARTS = FOLDER + "test_parts.py"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/run/step/turns.py",
        [DEADLOCK, CLOSED_FORMS],
        [
            (
                "the first bucket goes first, whatever its rank",
                "key=lambda place: (waiting[place][0], place)",
                "key=lambda place: place",
            ),
            (
                "there is room for any number of turns",
                "while waiting and self._room[worker]:",
                "while waiting:",
            ),
            (
                "a turn is given as soon as it is asked for",
                "EndOfInstant(self._environment, Stage.TURN)",
                "self._environment.timeout(0)",
            ),
        ],
    ),
    *faults(
        "sim/run/step/unit.py",
        [PARTS, CLOSED_FORMS],
        [
            (
                "a device takes what asked first",
                "heapq.heappush(self._waiting, (rank, ",
                "heapq.heappush(self._waiting, (0, ",
            ),
            (
                "a device chooses before a bucket has its place",
                "EndOfInstant(self._environment, Stage.DEVICE)",
                "EndOfInstant(self._environment, Stage.TURN)",
            ),
        ],
    ),
    *faults(
        "sim/run/step/computing.py",
        [PARTS],
        [
            (
                "every stretch is rounded up by itself",
                "if now_ps > reached_ps:",
                "if now_ps >= reached_ps:",
            ),
            (
                "a pass that was interrupted begins again",
                "began_ps, began_work_ps, reached_ps = now_ps, done_ps, now_ps",
                "began_ps, began_work_ps, reached_ps = now_ps, 0, now_ps",
            ),
            (
                "a pass goes on after a crash",
                "min(reached_ps, self._hosts.crash_ps(worker))",
                "reached_ps",
            ),
        ],
    ),
    *faults(
        "sim/run/step/wire.py",
        [PARTS],
        [
            (
                "operations share bytes equally",
                "self._open[worker].append((log, max(1, payload_bytes)))",
                "self._open[worker].append((log, 1))",
            ),
            (
                "bytes between operations are nobody's",
                "self._unclaimed[worker] += left",
                "self._unclaimed[worker] += 0",
            ),
        ],
    ),
    *faults(
        "sim/run/step/activities.py",
        [PARTS],
        [
            (
                "passes hide the buckets in flight",
                "if not self._buckets[worker]:\n            self._report",
                "self._tell(worker, what, end_ps)\n        if False:\n            self._report",
            ),
        ],
    ),
    *faults(
        "sim/run/step/rounds.py",
        [CLOSED_FORMS, "tests/sim/network/test_charged.py"],
        [
            (
                "encoding takes as long as its largest message",
                "copy_ps + sum(charge_ps(device, message.work) for message in messages)",
                "copy_ps + max(charge_ps(device, message.work) for message in messages)",
            ),
            (
                "decoding takes no time",
                "decode_ps = sum(charge_ps(self._parts.device, message.decode_work) for message in messages)",
                "decode_ps = 0",
            ),
            (
                "encoding never shares the device",
                "passes if is_one else SerialUnit(environment)",
                "SerialUnit(environment)",
            ),
        ],
    ),
]
