"""Runs the tests near each fault with its switch on, in several processes: which faults are noticed?"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants.fault import Fault, Record, Verdict, read_records
from tests.mutants.nearby import near_tests
from tests.mutants.tree import Copy, Sources

KILLED, SURVIVED, ERROR = "killed", "survived", "error"
DROPPED, UNDECIDED = "dropped", "undecided"  # it does not compile; there was no time
PASSED, FAILED, CRASHED = 0, 1, 3  # exit statuses of pytest; it crashes if a fault takes all memory
TEST_CPU_S = 60.0  # of one test: a fault may make it endless
TEST_LIMIT_S = 300.0  # of one test by the clock: it may wait for what never comes
NEAR_CPU_S = 25.0  # of the closest file of tests, and once more of the others near: no test begins later
LIMIT_S, FIRST_LIMIT_S = 1800.0, 3600.0  # by the clock: other work may have the processors
COMPILING_S = 20.0  # runs that take no longer may have compiled something: it does not matter
NEVER_S = float("inf")
UNREAD = re.compile(r"^ERROR ([^\s:]+\.py)(?: |$)", re.M)  # a file of tests that could not be collected


LIBRARIES_FOR_CHANGES = (
    "numpy",
    "numba",
    "pydantic",
    "pytest",
)  # the others take too long where time is short


class Outcome(NamedTuple):
    """The outcome of one run of tests."""

    status: int  # of pytest; else minus the signal that ended it
    cpu_s: float
    output: Path

    @property
    def verdict(self) -> str:
        """Whether a fault was noticed; tests that could not be collected are an error."""
        if self.status == PASSED:
            return SURVIVED
        return KILLED if self.status in (FAILED, CRASHED) or self.status < 0 else ERROR

    def text(self) -> str:
        """What pytest printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def started(self) -> list[str]:
        """The tests that were begun, in order."""
        path = Path(f"{self.output}.started")
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def noticed_by(self) -> str:
        """The test that failed or in which the process ended, which was the last; or a file that is none."""
        unread = UNREAD.search(self.text())
        return unread[1] if unread else ["", *self.started()][-1]


class OutOfTimeError(Exception):
    """The time for all faults has passed."""


class Nests:
    """Processes that run tests in a copy (`nest.py`)."""

    def __init__(
        self, copy: Path, count: int, libraries: Sequence[str] = (), original: Path | None = None
    ) -> None:
        """`libraries` are imported once for all runs of tests; by default all that netfold uses.

        With an `original`, kernels are those compiled for it: no compiled file of the copy may have a fault.
        """
        self._copy, self._count, self._libraries = copy, count, libraries
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(copy),
            "HYPOTHESIS_PROFILE": "mutants",
            "NETFOLD_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "NETFOLD_MUTANT": "0",
        }
        if original is None:
            self._environment["NETFOLD_CACHE"] = str(copy / ".cache")
            self._environment.pop("NUMBA_CACHE_DIR", None)
        else:
            self._environment["NUMBA_CACHE_LOCATOR_CLASSES"] = "netfold_switch.Locator"
            self._environment["NETFOLD_ORIGINAL"] = str(original)
        self._here = threading.local()
        self._started: list[subprocess.Popen[str]] = []
        self._runs = 0
        self._lock = threading.Lock()
        self._outputs = Path(tempfile.mkdtemp(prefix="outputs-", dir=copy))

    def run(
        self,
        number: int,
        tests: Sequence[str],
        limit_s: float = LIMIT_S,
        near_cpu_s: float = NEAR_CPU_S,
        test_cpu_s: float = TEST_CPU_S,
    ) -> Outcome:
        """Run tests with a fault on (0: none), in so much time by the clock, and so much computing."""
        if not hasattr(self._here, "nest"):
            self._here.nest = self._start()
        nest: subprocess.Popen[str] = self._here.nest
        with self._lock:
            self._runs += 1
            output = self._outputs / f"{self._runs}-{number}.txt"
        assert nest.stdin is not None
        assert nest.stdout is not None
        task = {
            "number": number,
            "tests": list(tests),
            "output": str(output),
            "limit_s": limit_s,
            "near_cpu_s": near_cpu_s,
            "test_cpu_s": test_cpu_s,
            "test_limit_s": max(TEST_LIMIT_S, test_cpu_s),
        }
        nest.stdin.write(json.dumps(task) + "\n")
        nest.stdin.flush()
        answer = json.loads(nest.stdout.readline())
        return Outcome(answer["status"], answer["cpu_s"], output)

    def each(self, work: Callable[[int], None], numbers: Sequence[int]) -> None:
        """Call work(number) for each, in as many threads as there are nests."""
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(work, numbers))

    def close(self) -> None:
        """End all processes, which have nothing left to do."""
        for nest in self._started:
            nest.kill()
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


class Player:
    """Plays the faults of a copy: a test that fails counts if it passes without the fault."""

    def __init__(self, copy: Copy, nests: Nests, deadline_s: float = NEVER_S) -> None:
        """`deadline_s` is when all must end, by the monotonic clock."""
        self.copy, self.nests, self._deadline_s = copy, nests, deadline_s
        self._lock = threading.Lock()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._without: dict[str, bool] = {}

    def play(self, number: int) -> Verdict:
        """Run the closest file of tests of a fault; if it notices nothing, the others near."""
        near = near_tests(self.copy.faults[number - 1].file, self.copy.folder)
        try:
            verdict = self._with(number, near[:1])
            if verdict.verdict == SURVIVED and near[1:]:
                more = self._with(number, near[1:])
                verdict = more._replace(tests=(*verdict.tests, *more.tests))
        except OutOfTimeError:
            return Verdict(UNDECIDED)
        return verdict

    def warm_up(self, number: int) -> None:
        """Run the closest tests of a fault without it: alone, as they compile many kernels."""
        for test in near_tests(self.copy.faults[number - 1].file, self.copy.folder)[:1]:
            self.passes_without(test)

    def passes_without(self, test: str) -> bool:
        """Whether a test passes without a fault; faults that do not compile are dropped on the way."""
        with self._lock:
            lock = self._locks[test]
        with lock:
            while test not in self._without:
                outcome = self._run(0, [test], FIRST_LIMIT_S, FIRST_LIMIT_S)
                with self._lock:
                    dropped = self.copy.drop_what_does_not_compile(outcome.text()) if outcome.status else []
                for fault in dropped:
                    say(f"dropped, as it does not compile: {fault.label}")
                if not dropped:
                    self._without[test] = outcome.status == PASSED
                if not dropped and outcome.status != PASSED:
                    say(f"{test} is left out: it fails without any fault:\n{end_of(outcome.text())}")
            return self._without[test]

    def _with(self, number: int, tests: Sequence[str]) -> Verdict:
        """The verdict of tests, again and again without those that fail without the fault."""
        while tests and number not in self.copy.dropped:
            with self._lock:
                broken = [test for test, passes in self._without.items() if not passes]
            outcome = self._run(number, [*tests, *(f"--deselect={test}" for test in broken)])
            ran = tuple(dict.fromkeys(test.partition("::")[0] for test in outcome.started()))
            if outcome.verdict == SURVIVED:
                self._note_passed(outcome.started())
                return Verdict(SURVIVED, tests=ran)
            self._note_passed(outcome.started()[:-1])
            noticed_by = outcome.noticed_by() or tests[0]
            if self.passes_without(noticed_by):
                output = end_of(outcome.text()) if outcome.verdict == ERROR else ""
                return Verdict(outcome.verdict, noticed_by, ran, output)
            tests = [test for test in tests if test != noticed_by]
        return Verdict(DROPPED if number in self.copy.dropped else SURVIVED)

    def _note_passed(self, tests: Sequence[str]) -> None:
        """What passes with another fault is not broken."""
        with self._lock:
            for test in tests:
                self._without.setdefault(test, True)

    def _run(
        self,
        number: int,
        tests: Sequence[str],
        near_cpu_s: float = NEAR_CPU_S,
        test_cpu_s: float = TEST_CPU_S,
    ) -> Outcome:
        for may_compile in (True, False):
            left_s = self._deadline_s - time.monotonic()
            kernels = self._kernels_count()
            limit_s = min(LIMIT_S if number else FIRST_LIMIT_S, left_s)
            outcome = self.nests.run(number, tests, limit_s, near_cpu_s, test_cpu_s)
            if time.monotonic() >= self._deadline_s:
                raise OutOfTimeError
            has_compiled = outcome.cpu_s > COMPILING_S and self._kernels_count() > kernels
            if not (may_compile and number and has_compiled and outcome.status != FAILED):
                break  # else the time went into compiling, which is done now
        return outcome

    def _kernels_count(self) -> int:
        return sum(1 for _ in self.copy.folder.glob(".cache/**/*.nbc"))


def play(
    sources: Sources,
    faults: Sequence[Fault],
    folder: Path,
    jobs: int,
    record: Path | None,
    libraries: Sequence[str] = (),
    deadline_s: float = NEVER_S,
    original: Path | None = None,
) -> list[Record]:
    """Play faults in a copy; verdicts are added to the file `record` as they come; those in it are kept."""
    copy = Copy(folder.resolve(), faults, sources)
    if not copy.is_made():
        copy.make()
    records = {each.fault: each for each in (read_records(record) if record else [])}
    numbers = [number for number, fault in enumerate(faults, start=1) if fault not in records]
    nests = Nests(copy.folder, jobs, libraries, original)
    player = Player(copy, nests, deadline_s)
    lock = threading.Lock()

    def work(number: int) -> None:
        begin_s = time.monotonic()
        fault = faults[number - 1]
        made = Record(fault, player.play(number))
        with lock:
            records[fault] = made
            say(f"{made.verdict.verdict:9}{time.monotonic() - begin_s:6.0f} s  {fault.label}")
            if record is not None:
                with record.open("a", encoding="utf-8") as file:
                    file.write(made.line() + "\n")

    try:
        if deadline_s == NEVER_S and not (copy.folder / ".cache").exists():
            nests.each(player.warm_up, numbers[:1])
        random.Random(len(faults)).shuffle(numbers)  # so that what is done so far is a fair sample too
        nests.each(work, numbers)
    finally:
        nests.close()
    return [records[fault] for fault in faults]


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def end_of(text: str) -> str:
    """The last lines of an output."""
    return "\n".join(text.splitlines()[-25:])
