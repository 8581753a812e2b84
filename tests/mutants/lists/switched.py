"""Faults of hierarchies with switches: lanes, halves, phases, and what is refused."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

TESTS = ["tests/sim/collectives/schedules/test_switched.py"]
C = "sim/collectives/hierarchical/switched/"

MUTANTS: list[Mutant] = [
    *faults(
        C + "halves.py",
        TESTS,
        [
            (
                "a lane has only its last stretch",
                "found.setdefault(tuple(own), []).append(stretch)",
                "found[tuple(own)] = [stretch]",
            ),
            ("blocks are not counted", "at = (block + edge) / blocks", "at = edge / blocks"),
            (
                "what goes round is a share too far on",
                "chunk = (every - step + 1) % workers",
                "chunk = (every - step) % workers",
            ),
            (
                "halves wait for what comes before",
                "schedule.merges == merges",
                "schedule.merges | (schedule.merges == merges)",
            ),
        ],
    ),
    *faults(
        C + "run.py",
        TESTS,
        [
            (
                "the group's own sum is taken for the total",
                "total[at] = one.words[first : first + size]",
                "total[at] = total[at]",
            ),
            ("words of a lane begin anew", "                first += size", "                first += 0"),
        ],
    ),
    *faults(
        C + "resolve.py",
        TESTS,
        [
            ("signs of uneven groups are carried", "len(sizes) > 1", "len(sizes) > 99"),
            ("all parts overflow alike", "if len(found) < 2:", "if len(found) < 99:"),
            ("absence is lost", "if codec.may_be_absent:", "if not codec:"),
            ("keys are those of the whole", 'own = f"collective.{self.part}."', 'own = "collective."'),
        ],
    ),
    *faults(
        C + "times.py",
        TESTS,
        [
            (
                "every group takes a link of all",
                "pace.elements_per_s / len(found) / share",
                "pace.elements_per_s / share",
            ),
            ("lanes carry all words", "((inside, 1.0), (across, longest))", "((inside, 1.0), (across, 1.0))"),
        ],
    ),
    *faults(
        C + "shape.py",
        TESTS,
        [("trees pass on packets", "block / stage.chunks * waits", "0 * block / stage.chunks * waits")],
    ),
]
