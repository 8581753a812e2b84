"""Runs each fault's tests with its switch on, in several processes, and records which faults were noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import Mutant

KILLED, SURVIVED, ERROR = "killed", "survived", "error"
FAILED, CRASHED = 1, 3  # exit statuses of pytest; it crashes if a fault takes all memory
FIRST_LIMIT_S = 1800.0  # kernels compile
LEAST_LIMIT_S, SLOWER = 120.0, 6.0  # a fault's tests may take so many times as long as without it


class Outcome(NamedTuple):
    """The outcome of one run of tests."""

    number: int
    status: int  # of pytest; -1: took too long; else minus the signal that ended it
    took_s: float
    output: Path

    @property
    def verdict(self) -> str:
        """Whether the fault was noticed; tests that could not be collected are an error."""
        if self.status == 0:
            return SURVIVED
        return KILLED if self.status in (FAILED, CRASHED) or self.status < 0 else ERROR


class Nests:
    """Processes that run tests in a copy (`nest.py`)."""

    def __init__(self, copy: Path, count: int, seed: int, libraries: Sequence[str] = ()) -> None:
        """`libraries` are imported once for all runs of tests; by default all that netfold uses."""
        self._copy, self._count, self._libraries = copy, count, libraries
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(copy),
            "NETFOLD_CACHE": str(copy / ".cache"),
            "HYPOTHESIS_PROFILE": "mutants",
            "NETFOLD_TEST_SEED": str(seed),
            "NETFOLD_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "NETFOLD_MUTANT": "0",
        }
        self._environment.pop("NUMBA_CACHE_DIR", None)
        self._here = threading.local()
        self._started: list[subprocess.Popen[str]] = []
        self._runs = 0
        self._lock = threading.Lock()
        (copy / "outputs").mkdir(exist_ok=True)

    def run(self, number: int, tests: Sequence[str], limit_s: float) -> Outcome:
        """Run tests with a fault on (0: none)."""
        if not hasattr(self._here, "nest"):
            self._here.nest = self._start()
        nest: subprocess.Popen[str] = self._here.nest
        with self._lock:
            self._runs += 1
            output = self._copy / "outputs" / f"{self._runs}-{number}.txt"
        assert nest.stdin is not None
        assert nest.stdout is not None
        task = {"number": number, "tests": list(tests), "output": str(output), "limit_s": limit_s}
        nest.stdin.write(json.dumps(task) + "\n")
        nest.stdin.flush()
        answer = json.loads(nest.stdout.readline())
        return Outcome(number, answer["status"], answer["took_s"], output)

    def each(self, work: Callable[[int], Outcome], count: int) -> list[Outcome]:
        """Call work(0), work(1) … in as many threads as there are nests."""
        with ThreadPoolExecutor(self._count) as pool:
            return list(pool.map(work, range(count)))

    def close(self) -> None:
        """End all processes."""
        for nest in self._started:
            nest.communicate()

    def _start(self) -> subprocess.Popen[str]:
        nest = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nest.py")), *self._libraries],
            cwd=self._copy,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with self._lock:
            self._started.append(nest)
        return nest


def play_without(nests: Nests, tests: Sequence[str]) -> dict[str, Outcome]:
    """Run all tests without a fault; the first alone, as it compiles most kernels."""
    first = nests.run(0, tests[:1], FIRST_LIMIT_S) if tests else None
    others = nests.each(lambda at: nests.run(0, [tests[1 + at]], FIRST_LIMIT_S), len(tests) - 1)
    outcomes = [*([first] if first else []), *others]
    return dict(zip(tests, outcomes, strict=True))


def play_with(
    nests: Nests,
    numbered: Sequence[tuple[int, Mutant]],
    without: dict[str, Outcome],
    report: Callable[[Mutant, Outcome], None],
) -> list[Outcome]:
    """Run every fault's tests with the fault on."""

    def work(at: int) -> Outcome:
        number, mutant = numbered[at]
        limit_s = LEAST_LIMIT_S + SLOWER * sum(without[test].took_s for test in mutant.tests)
        outcome = nests.run(number, mutant.tests, limit_s)
        report(mutant, outcome)
        return outcome

    return nests.each(work, len(numbered))
