"""Faults of the 2-D torus: who owns what, how stages follow each other, and what a plan says of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/sim/collectives/torus_2d/"
SCHEDULE = [T + "test_schedule.py"]
MERGES = [T + "test_schedule.py"]
TIMES = [T + "test_times.py"]
PLANS = [T + "test_plan.py"]

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
        ],
    ),
    *faults(
        "sim/collectives/torus_2d/schedule.py",
        MERGES,
        [
            (
                "a column ends with the part of the next row",
                "[[range(part, part + 1)] for part in _parts(segment, rows)])",
                "[[range(part, part + 1)] for part in (*_parts(segment, rows)[1:], segment * rows)])",
            ),
            (
                "what is sent waits for nothing",
                "waits[transfer] = received",
                "waits[transfer] = None",
            ),
            (
                "words travel round the columns in one stage",
                "(Stage.GATHER_COLUMN, columns, 0),",
                "(Stage.GATHER_COLUMN, columns, 1),",
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
                "for _, traffic in stages)\n        sent",
                "for _, traffic in stages[:1])\n        sent",
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
