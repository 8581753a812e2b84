"""Faults of jobs that come and go."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

QUEUE = ["tests/sim/run/coming/test_queue.py"]
STAYS = ["tests/sim/results/test_stays.py"]
ARRIVALS = ["tests/sim/scenario/test_jobs.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/run/coming/arrivals.py",
        QUEUE,
        [
            ("a later job overtakes one that waits", "index = self._queue[0]", "index = self._queue[-1]"),
            (
                "slots are free at once although copies are on their way",
                "if not rules and not running.collective.retransmitted_packets():",
                "if True:",
            ),
            ("jobs that wait are not told of an end", "        self._admit()\n\n    def", "\n    def"),
            (
                "the slots of a job that ends are not reset",
                "        self._simulation.fabric.release(index)\n",
                "",
            ),
            (
                "what a job leaves is not looked for before its slots are reset",
                "self.leaks[index] = running.collective.leaks()",
                "pass",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/switches.py",
        QUEUE,
        [
            (
                "slots behind the last job alone are given out",
                "if self._has_gaps and first - base >= slots:",
                "if False:",
            ),
            ("a range overlaps the next one", "first - base >= slots", "first - base >= slots - 1"),
        ],
    ),
    *faults(
        "sim/plan/placement.py",
        QUEUE,
        [("hosts are not free again", "if one[1] != location", "if True")],
    ),
    *faults(
        "sim/results/stays.py",
        STAYS,
        [
            (
                "jobs that follow each other overlap",
                "another.admitted_ps) < end_ps:",
                "another.admitted_ps) <= end_ps:",
            ),
            (
                "waiting counts as slow",
                "running_ps = self.end_ps - self.admitted_ps",
                "running_ps = self.end_ps - self.arrival_ps",
            ),
            (
                "the 95th percentile is one too low",
                "rank = -(-95 * len(found) // 100)",
                "rank = 95 * len(found) // 100",
            ),
            ("Jain's index without the number of jobs", "(len(values) * squares)", "squares"),
        ],
    ),
    *faults(
        "sim/scenario/arrivals.py",
        ARRIVALS,
        [
            ("gaps are uniform", "-math.log1p(-drawn / 2**_BITS)", "2 * drawn / 2**_BITS"),
            (
                "all templates have the same gaps",
                "purposes.JOB_ARRIVALS, template, number",
                "purposes.JOB_ARRIVALS, 0, number",
            ),
        ],
    ),
]
