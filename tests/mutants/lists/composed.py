"""Faults of collectives that are schedules: orders, cuts, waits, and what their closed forms say."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/sim/collectives/schedules/"
BUILDERS = [T + "test_builders.py"]
TIMES = [T + "test_times.py"]
BEST = ["tests/sim/collectives/test_estimates.py"]
C = "sim/collectives/"

MUTANTS: list[Mutant] = [
    *faults(
        C + "ring/schedule.py",
        BUILDERS,
        [
            ("all channels go forward", "is_forward = channel % 2 == 0", "is_forward = channel >= 0"),
            ("the last step of all merges", "merges=step < n - 1,", "merges=step <= n - 1,"),
            (
                "pieces wait for the first piece of a segment",
                "previous = np.where(place > 0, number - each - pieces,",
                "previous = np.where(place > 0, number - each - pieces - piece,",
            ),
        ],
    ),
    *faults(
        C + "halving_doubling/schedule.py",
        BUILDERS,
        [
            ("even ranks take part", "np.arange(1, 2 * extra, 2)", "np.arange(0, 2 * extra, 2)"),
            ("nobody gives the result back", "    transfers.wait(last, arrived[:extra])", "    pass"),
            ("what is kept is sent", "cells = lows[step + 1][others], size", "cells = lows[step + 1], size"),
        ],
    ),
    *faults(
        C + "tree/schedule.py",
        BUILDERS,
        [
            (
                "the second tree is the first",
                "    if number:\n        ranks",
                "    if number > 1:\n        ranks",
            ),
            (
                "a parent does not wait for its second child",
                "awaited = sent[tree.last[order]]",
                "awaited = sent[tree.children[order, 0]]",
            ),
        ],
    ),
    *faults(
        C + "hierarchical/schedule.py",
        BUILDERS,
        [
            (
                "owners do not wait for what comes from across",
                "            block.wait(np.full(every.size, numbers[transfer]), every)",
                "            pass",
            ),
            (
                "what crosses does not wait for what is reduced inside",
                "ready[outer.source[outer.merges]]]",
                "np.full(int(outer.merges.sum()), NONE)]",
            ),
        ],
    ),
    *faults(
        C + "between_hosts.py",
        TIMES,
        [
            (
                "what is passed on as one costs nothing",
                "    trips = (steps.trips or steps.hops) - 1",
                "    trips = 0",
            ),
            (
                "stages that overlap count the last alone",
                "parts[link] = parts.get(link, 0.0) + count * stage.share",
                "parts[link] = count * stage.share",
            ),
        ],
    ),
    *faults(
        C + "estimate.py",
        BEST,
        [
            (
                "delays count once",
                "return longest_ways_ps(stage.pairs, delays_ps, stage.trips or stage.hops)",
                "return longest_ways_ps(stage.pairs, delays_ps, 1)",
            ),
            (
                "stages are as fast as the first",
                "wire = busy_s if steps.overlaps else sum(wire_s)",
                "wire = busy_s if steps.overlaps else wire_s[0]",
            ),
        ],
    ),
]
