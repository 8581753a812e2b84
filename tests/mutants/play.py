"""Runs the tests near each fault with its switch on, in several processes: which faults are noticed?"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants.fault import Fault, Verdict
from tests.mutants.nearby import near_tests
from tests.mutants.records import Record, read_records
from tests.mutants.tree import Copy, Sources

KILLED, SURVIVED, ERROR = "killed", "survived", "error"
DROPPED, UNDECIDED = "dropped", "undecided"  # it does not compile; there was no time
PASSED, FAILED, CRASHED = 0, 1, 3  # exit statuses of pytest; it crashes if a fault takes all memory
FIRST_LIMIT_S = 3600.0  # kernels compile
LEAST_CPU_S, SLOWER = 30.0, 4.0  # a fault's tests may take so many times as long as without it
COMPILING_S = 20.0  # tests that take no longer may have compiled something: it does not matter
LEAST_LIMIT_S, WAITING = 300.0, 20.0  # the same by the clock: other work may have the processors
NEAR_CPU_S = 60.0  # of the tests near a fault, the closest that take no longer
NEVER_S = float("inf")
NAMED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M)


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
        """Whether the fault was noticed; tests that could not be collected are an error."""
        if self.status == PASSED:
            return SURVIVED
        return KILLED if self.status in (FAILED, CRASHED) or self.status < 0 else ERROR

    def text(self) -> str:
        """What pytest printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")


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
            "NETFOLD_TEST_SEED": "1",
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
        (copy / "outputs").mkdir(exist_ok=True)

    def run(self, number: int, tests: Sequence[str], limit_s: float, cpu_s: float) -> Outcome:
        """Run tests with a fault on (0: none), in `limit_s` altogether and `cpu_s` of computing each."""
        if not hasattr(self._here, "nest"):
            self._here.nest = self._start()
        nest: subprocess.Popen[str] = self._here.nest
        with self._lock:
            self._runs += 1
            output = self._copy / "outputs" / f"{self._runs}-{number}.txt"
        assert nest.stdin is not None
        assert nest.stdout is not None
        task = {
            "number": number,
            "tests": list(tests),
            "output": str(output),
            "limit_s": limit_s,
            "cpu_s": cpu_s,
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


class Player:
    """Plays the faults of a copy; what counts are tests that pass without a fault, which is tried once."""

    def __init__(self, copy: Copy, nests: Nests, deadline_s: float = NEVER_S) -> None:
        """`deadline_s` is when all must end, by the monotonic clock."""
        self.copy, self.nests, self._deadline_s = copy, nests, deadline_s
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()
        self._kept = copy.folder / "without.json"
        self._without = {
            test: Outcome(status, cpu_s, Path(output))
            for test, (status, cpu_s, output) in (
                json.loads(self._kept.read_text(encoding="utf-8")) if self._kept.exists() else {}
            ).items()
        }

    def warm_up(self, number: int) -> None:
        """Run the closest test of a fault without it: alone, as it compiles many kernels."""
        for test in near_tests(self.copy.faults[number - 1].file, self.copy.folder)[:1]:
            self.without(test)

    def play(self, number: int) -> Verdict:
        """Run the closest test of a fault; if it notices nothing, the others near."""
        try:
            return self._play(number)
        except OutOfTimeError:
            return Verdict(UNDECIDED)

    def without(self, test: str) -> Outcome:
        """The outcome of a file of tests without a fault; drops faults that do not compile on the way."""
        with self._lock:
            lock = self._locks[test]
        with lock:
            while test not in self._without:
                kernels = self._kernels_count()
                outcome = self._run(0, [test], FIRST_LIMIT_S, FIRST_LIMIT_S)
                if outcome.cpu_s > COMPILING_S and kernels < self._kernels_count():
                    outcome = self._run(0, [test], FIRST_LIMIT_S, FIRST_LIMIT_S)  # as long as it takes
                dropped = [] if outcome.status == PASSED else self._drop(outcome)
                if not dropped:
                    self._keep(test, outcome)
            return self._without[test]

    def broken(self) -> dict[str, Outcome]:
        """Tests that fail without any fault."""
        return {test: outcome for test, outcome in self._without.items() if outcome.status != PASSED}

    def _play(self, number: int) -> Verdict:
        near = near_tests(self.copy.faults[number - 1].file, self.copy.folder)
        usable = [test for test in near[:1] if self.without(test).status == PASSED]
        verdict = self._with(number, usable) if usable else None
        if verdict is None or verdict.verdict == SURVIVED:
            others = self._others(near[1:], usable)
            if others:
                more = self._with(number, others)
                verdict = more._replace(tests=(*usable, *more.tests))
        if number in self.copy.dropped:
            return Verdict(DROPPED)
        if verdict is None:
            return Verdict(ERROR, output="no test near it passes without it") if near else Verdict(SURVIVED)
        return verdict

    def _drop(self, outcome: Outcome) -> list[str]:
        with self._lock:
            dropped = [fault.label for fault in self.copy.drop_what_does_not_compile(outcome.text())]
        for label in dropped:
            say(f"dropped, as it does not compile: {label}")
        return dropped

    def _kernels_count(self) -> int:
        return sum(1 for _ in self.copy.folder.glob(".cache/**/*.nbc"))

    def _keep(self, test: str, outcome: Outcome) -> None:
        with self._lock:
            self._without[test] = outcome
            kept = {name: (each.status, each.cpu_s, str(each.output)) for name, each in self._without.items()}
            self._kept.write_text(json.dumps(kept), encoding="utf-8")
        if outcome.status != PASSED:
            say(f"{test} fails without any fault:\n{end_of(outcome.text())}")

    def _others(self, tests: Sequence[str], before: Sequence[str]) -> list[str]:
        """The next closest tests, while all together take no longer than NEAR_CPU_S."""
        chosen: list[str] = []
        total_s = sum(self.without(test).cpu_s for test in before)
        for test in tests:
            outcome = self.without(test)
            if total_s + outcome.cpu_s > NEAR_CPU_S and (chosen or before):
                break
            if outcome.status == PASSED:
                chosen.append(test)
                total_s += outcome.cpu_s
        return chosen

    def _run(self, number: int, tests: Sequence[str], limit_s: float, cpu_s: float) -> Outcome:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise OutOfTimeError
        outcome = self.nests.run(number, tests, min(limit_s, left_s), cpu_s)
        if time.monotonic() >= self._deadline_s:
            raise OutOfTimeError
        return outcome

    def _with(self, number: int, tests: Sequence[str]) -> Verdict:
        times_s = [self.without(test).cpu_s for test in tests]
        limit_s, cpu_s = LEAST_LIMIT_S + WAITING * sum(times_s), LEAST_CPU_S + SLOWER * max(times_s)
        outcome = self._run(number, tests, limit_s, cpu_s)
        text = outcome.text()
        named = NAMED.search(text)
        noticed_by = (named[1] if named else " ".join(tests)) if outcome.verdict == KILLED else ""
        output = end_of(text) if outcome.verdict == ERROR else ""
        return Verdict(outcome.verdict, noticed_by, tuple(tests), output)


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
        if numbers and deadline_s == NEVER_S:
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
