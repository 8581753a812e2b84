"""Draws scenarios, runs them in child processes, and counts the outcomes and what of the language came up.

    python -m tests.soak --count 2000 --seed 7          tables, and a command for each finding
    python -m tests.soak --seed 7 --only 1234           one of them, with its scenario

A child process runs one scenario after the other. If one takes too long, it is killed and counted as hung.
The exit status is 1 if anything was found, or if 2,000 scenarios or more leave a key, word, form or pair of
kinds of the language with fewer than five.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing.pool
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.soak.draw import draw
from tests.soak.drawn import Coverage
from tests.soak.plan import PERIOD
from tests.soak.play import FINDINGS, FINE, HUNG, LARGE, REFUSED, TRACEBACK, Verdict, play

TIMEOUT_S = 120.0  # of one scenario: a hundred times what they take; the first one compiles kernels
FIRST_TIMEOUT_S = 900.0


@dataclass
class Child:
    """A process that runs scenarios by their numbers."""

    seed: int
    process: subprocess.Popen[str]
    is_warm: bool = False

    @staticmethod
    def start(seed: int) -> Child:
        """Start a child process."""
        command = [sys.executable, "-m", "tests.soak", "--seed", str(seed), "--child"]
        pipe = subprocess.PIPE
        return Child(seed, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))

    def play(self, number: int) -> Verdict | None:
        """The outcome of a scenario; None if the process did not answer in time, or ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(TIMEOUT_S if self.is_warm else FIRST_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        self.is_warm = True
        return Verdict(**json.loads(line)) if line else None

    def end(self) -> int | None:
        """Kill the process; returns its exit status if it had ended by itself."""
        status = self.process.poll()
        self.process.kill()
        with self.process:  # closes its pipes, and waits
            return status


def verdicts(seed: int, numbers: range) -> Iterator[tuple[int, Verdict]]:
    """The outcome of each scenario."""
    child = Child.start(seed)
    try:
        for number in numbers:
            found = child.play(number)
            if found is None:
                time.sleep(0.2)
                status = child.end()
                found = (
                    Verdict(HUNG, f"no end after {TIMEOUT_S:.0f} s")
                    if status is None
                    else Verdict(TRACEBACK, f"the process ended with status {status}")
                )
                child = Child.start(seed)
            yield number, found
    finally:
        child.end()


def side_by_side(seed: int, numbers: range, jobs: int) -> Iterator[tuple[int, Verdict]]:
    """The same in several processes, as they come."""
    parts = [numbers[first::jobs] for first in range(jobs)]
    queue: multiprocessing.pool.ThreadPool
    with multiprocessing.pool.ThreadPool(jobs) as queue:
        iterators = [verdicts(seed, part) for part in parts if part]
        pending = {index: queue.apply_async(next, (one, None)) for index, one in enumerate(iterators)}
        while pending:
            for index, waiting in list(pending.items()):
                waiting.wait(0.02)
                if not waiting.ready():
                    continue
                if (found := waiting.get()) is None:
                    del pending[index]
                    continue
                pending[index] = queue.apply_async(next, (iterators[index], None))
                yield found


def serve(seed: int) -> None:
    """Run the scenarios whose numbers are on standard input; prints a line of JSON for each."""
    draw(seed, 0)  # the plan of the seed takes seconds
    for line in sys.stdin:
        print(json.dumps(play(draw(seed, int(line))).as_dict()), flush=True)


def table(counts: Counter[str], total: int) -> str:
    """A table of counts, acceptable outcomes first."""
    rows = [(kind, counts[kind]) for kind in (*FINE, *FINDINGS)]
    return "\n".join(f"{kind:24} {count:6} {100 * count / max(1, total):6.1f} %" for kind, count in rows)


@dataclass
class Tally:
    """What came of the scenarios so far."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    drawn: Coverage = field(default_factory=Coverage)
    ran: Coverage = field(default_factory=Coverage)
    refused_parts: int = 0  # scenarios that ran without what was refused
    started: float = field(default_factory=time.perf_counter)

    def add(self, number: int, found: Verdict) -> None:
        """Count an outcome; a finding is printed with its command."""
        self.counts[found.kind] += 1
        drawn = draw(self.seed, number)
        if not drawn.broken:
            self.drawn.add(drawn.scenario)
            self.refused_parts += found.refusals > 0
            if found.ran is not None and found.kind not in (REFUSED, LARGE):
                self.ran.add(found.ran)
        if found.kind in FINDINGS:
            command = f"python -m tests.soak --seed {self.seed} --only {number}"
            print(f"{found.kind}: {found.text}\n  {command}", flush=True)
        if self.counts.total() % 100 == 0:
            spent_s = time.perf_counter() - self.started
            print(f"{self.counts.total()} in {spent_s:.0f} s", file=sys.stderr, flush=True)

    def show(self) -> int:
        """Print the tables; returns the exit status."""
        print(table(self.counts, self.counts.total()))
        print(
            f"{self.refused_parts} of those that ran were refused at first, and ran without what was refused"
        )
        print(self.drawn.table(self.ran))
        rare = self.drawn.rare() if self.counts.total() >= PERIOD else []
        for name, count in rare:
            print(f"TOO RARE: {name}: {count}")
        return int(bool(rare) or any(self.counts[kind] for kind in FINDINGS))


def show_one(seed: int, number: int) -> int:
    """Run one scenario in this process, and print it."""
    drawn = draw(seed, number)
    print(json.dumps(drawn.scenario, indent=1), f"gradients: {drawn.transform}", sep="\n")
    for name, content in drawn.files.items():
        print(f"{name}: {len(content)} bytes", content[:2000].decode(errors="replace"), sep="\n")
    if drawn.broken:
        print(f"it breaks a rule: {drawn.broken}")
    found = play(drawn)
    print(f"{found.kind}: {found.text}")
    return int(found.kind in FINDINGS)


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="number of scenarios")
    parser.add_argument("--seed", type=int, default=1, help="seed of the scenarios")
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument(
        "--only", type=int, help="run only this number, in this process, and print its scenario"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        serve(given.seed)
        return 0
    if given.only is not None:
        return show_one(given.seed, given.only)
    tally = Tally(given.seed)
    numbers = range(given.first, given.first + given.count)
    for number, found in side_by_side(given.seed, numbers, max(1, given.jobs)):
        tally.add(number, found)
    return tally.show()


if __name__ == "__main__":
    sys.exit(main())
