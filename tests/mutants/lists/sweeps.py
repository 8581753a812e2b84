"""Faults of sweeps: points, what runs them, and what is kept."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

POOL, POINTS, SWEEP = (f"tests/sim/sweep/test_{name}.py" for name in ("pool", "points", "sweep"))

MUTANTS: list[Mutant] = [
    *faults(
        "sim/sweep/dispatch.py",
        [POOL],
        [
            ("a task that died is not sent again", "if deaths[index] < DEATHS_MAX:", "if deaths[index] < 1:"),
            ("a task may kill three processes", "DEATHS_MAX = 2 ", "DEATHS_MAX = 3 "),
            (
                "tasks that do not fit run all the same",
                "used + jobs[index].bytes <= limits.bytes",
                "used <= limits.bytes",
            ),
            (
                "the lightest begin first",
                "key=lambda index: -jobs[index].weight",
                "key=lambda index: jobs[index].weight",
            ),
        ],
    ),
    *faults(
        "sim/sweep/pool.py",
        [POOL],
        [
            (
                "a process has the threads of its parent",
                'os.environ.update(dict.fromkeys(_THREADS, "1"))',
                "pass",
            ),
            ("a process outlives its parent", "    parent.join()\n    os._exit(1)", "    parent.join()"),
            (
                "tasks that wait are not cancelled",
                "                    call[0].cancel()",
                "                    pass",
            ),
        ],
    ),
    *faults(
        "sim/sweep/points.py",
        [POINTS],
        [
            (
                "the repeats forget the scenario's seed",
                "dict.fromkeys([scenario.seed])",
                "dict.fromkeys([1])",
            ),
            (
                "points are not checked together",
                "self._wrong |= {str(one): one for one in _each(error)}",
                "raise",
            ),
            (
                "the same point twice is not noticed",
                "if (same := known.setdefault(point.digest, point)) is not point:",
                "if (same := known.setdefault(point.digest, point)) is None:",
            ),
        ],
    ),
    *faults(
        "sim/sweep/task.py",
        [POINTS],
        [
            (
                "the files of a point do not count",
                "for path, one in sorted(files.items())}",
                "for path, one in sorted(files.items())[:0]}",
            ),
            (
                "the sources of netfold do not count",
                "[versions.python, versions.netfold, versions.sources, dict(versions.packages)]",
                "[versions.python, versions.netfold, dict(versions.packages)]",
            ),
        ],
    ),
    *faults(
        "sim/sweep/store.py",
        [SWEEP],
        [
            ("the file of another point is taken", 'or found["digest"] != digest', ""),
            (
                "a kept point without its run is enough",
                "(self._keeps_runs and not self.run_folder(digest).is_dir())",
                "False",
            ),
        ],
    ),
]
