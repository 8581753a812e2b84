"""A sweep of 64 equal points on one process and on two: how much faster, and what a process costs.

Wall time counts, so other programs disturb it: runs of both kinds take turns, and the best of each counts.
The ratio by processor time says what a quiet machine would show: this process works alone, the workers side
by side.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from netfold.sim.studies.sweep import Ended, SweepSettings, run_sweep, sweep_of

FILE = Path(__file__).with_name("sweep.yaml")
RATIO_MIN = 1.7


class Measured(NamedTuple):
    """One run of the sweep."""

    wall_s: float
    points_s: float  # of all points together, without the start of processes and the table
    first_s: float  # of the slowest first point of a process: it imports and loads compiled code
    cpu_s: float  # processor time, as long as it takes where nothing else runs


def measure(jobs: int, points: int = 64) -> Measured:
    """Run the sweep on so many processes."""
    ended: list[Ended] = []
    out = Path(tempfile.mkdtemp())
    try:
        scenario = sweep_of(FILE, [f"sweep.seeds={points}"])
        started_s, own_s, workers_s = time.perf_counter(), time.process_time(), _children_s()
        run_sweep(scenario, SweepSettings(jobs), out, ended.append)
        wall_s = time.perf_counter() - started_s
        cpu_s = time.process_time() - own_s + (_children_s() - workers_s) / jobs
    finally:
        shutil.rmtree(out)
    assert all(one.result == "pass" for one in ended)
    return Measured(wall_s, sum(one.wall_s for one in ended), max(one.wall_s for one in ended[:jobs]), cpu_s)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(repeats: int = 1) -> None:
    measure(1, points=2)  # compiles
    pairs = [(measure(1), measure(2)) for _ in range(repeats)]
    one, two = (min((pair[place] for pair in pairs), key=lambda run: run.wall_s) for place in (0, 1))
    for jobs, run in ((1, one), (2, two)):
        print(
            f"64 points, --jobs {jobs}: {run.wall_s:.2f} s, of which points {run.points_s / jobs:.2f} s; "
            f"first point of a process {run.first_s:.2f} s, mean {run.points_s / 64:.3f} s"
        )
    print(
        f"two processes: {one.wall_s / two.wall_s:.2f} × as fast (goal {RATIO_MIN} ×), "
        f"by processor time {one.cpu_s / two.cpu_s:.2f} ×"
    )


if __name__ == "__main__":
    main()
