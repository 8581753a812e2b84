"""Faults of the 2-D torus: who owns what, how stages follow each other, and what a plan says of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/sim/collectives/torus_2d/"
SCHEDULE = [T + "test_torus_schedule.py"]
MERGES = [T + "test_torus_merges.py"]
TIMES = [T + "test_torus_times.py"]
PLANS = [T + "test_torus_plans.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/collectives/torus_2d/grid.py",
        SCHEDULE,
        [
            (
                "short rows come first",
                "(short + 1,) * longer + (short,) * (rows - longer)",
                "(short,) * (rows - longer) + (short + 1,) * longer",
            ),
            (
                "words are cut by the longest rows alone",
                "lengths = sorted(set(self.lengths))",
                "lengths = [self.columns]",
            ),
            (
                "the flattest grid counts as the squarest",
                "return divisors[-1] if divisors else root",
                "return divisors[0] if divisors else root",
            ),
            (
                "parts of a segment are as long as those of the first",
                "first + (end - first) * part // rows for first, end",
                "first + (edges[1] - edges[0]) * part // rows for first, end",
            ),
            (
                "rows begin to reduce a segment at its owner",
                "self.grid.worker(row, (at + 1) % length) for row",
                "self.grid.worker(row, at) for row",
            ),
        ],
    ),
    *faults(
        "sim/collectives/torus_2d/run.py",
        SCHEDULE,
        [
            (
                "lanes are cut as the codes that they were",
                "((bound - bounds[0]) * times for bound in ends)",
                "(bound - bounds[0] for bound in ends)",
            ),
            (
                "rows of other lengths keep a result of their own",
                'return finished.stored("message", joined)',
                "return joined",
            ),
            (
                "a column ends with the part of the next row",
                "return Ring(members, row, [[range(part, part + 1)] for part in parts]",
                "return Ring(members, row, [[range(part, part + 1)] for part in (*parts[1:], parts[0])]",
            ),
        ],
    ),
    *faults(
        "sim/collectives/torus_2d/run.py",
        MERGES,
        [
            (
                "hops of columns name the owners",
                "into, taken = ring.roots[(owner + 1) % members], ring.roots[ring.at]",
                "into, taken = ring.members[(owner + 1) % members], ring.members[ring.at]",
            ),
            (
                "progress of a codec's merge counts a chunk too many for each part",
                "operation.finished.expected = 2 * (self.workers - 1)",
                "operation.finished.expected = 2 * self.workers",
            ),
        ],
    ),
    *faults(
        "sim/collectives/host_messages.py",
        MERGES,
        [
            (
                "joined parts that disagreed count as sound",
                "is_mixed = first.is_mixed or any(\n            one.is_mixed or one.workers",
                "is_mixed = any(\n            one.workers",
            ),
        ],
    ),
    *faults(
        "sim/collectives/torus_2d/spec.py",
        TIMES,
        [
            (
                "columns take as long as if rows were equally long",
                "parts = grid.rows * shortest * most",
                "parts = grid.rows * grid.columns * most",
            ),
            (
                "rows take all the words",
                "chunks=grid.columns, merges",
                "chunks=1, merges",
            ),
        ],
    ),
    *faults(
        "sim/collectives/torus_2d/spec.py",
        PLANS,
        [
            (
                "columns that do not fit are ignored",
                "if columns is not None and columns != grid.columns:",
                "if columns is not None and columns > workers:",
            ),
            (
                "chunks of further rows take no memory",
                "_IN_FLIGHT_BYTES * (grid.rows - 1)",
                "_IN_FLIGHT_BYTES * 0",
            ),
        ],
    ),
    *faults(
        "sim/collectives/between_hosts.py",
        PLANS,
        [
            (
                "a timeout covers the first stage alone",
                "for _, traffic in stages)\n        timeout_ps",
                "for _, traffic in stages[:1])\n        timeout_ps",
            ),
            (
                "codecs learn of the ways of the first stage alone",
                "latency_ps = sum(one.latency_ps for one in carriers)",
                "latency_ps = carriers[0].latency_ps",
            ),
        ],
    ),
    *faults(
        "sim/collectives/between_hosts.py",
        TIMES,
        [
            (
                "stages overlap",
                "elements_per_s = 1 / sum(1 / pace.elements_per_s for pace in paces)",
                "elements_per_s = slowest.elements_per_s",
            ),
        ],
    ),
]
