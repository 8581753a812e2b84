"""Draws scenarios, runs them in a child process, and counts the outcomes.

    python -m tests.soak --count 2000 --seed 7          a table, and a command for each finding
    python -m tests.soak --seed 7 --only 1234           one of them, with its scenario

A child process runs one scenario after the other. If one takes too long, it is killed and counted as hung.
The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.soak.draw import draw
from tests.soak.play import FINDINGS, FINE, HUNG, TRACEBACK, Verdict, play

TIMEOUT_S = 120.0  # of one scenario: a hundred times what they take; the first one compiles kernels
FIRST_TIMEOUT_S = 600.0


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


def serve(seed: int) -> None:
    """Run the scenarios whose numbers are on standard input; prints a line of JSON for each."""
    for line in sys.stdin:
        print(json.dumps(play(draw(seed, int(line))).as_dict()), flush=True)


def table(counts: Counter[str], total: int) -> str:
    """A table of counts, acceptable outcomes first."""
    rows = [(kind, counts[kind]) for kind in (*FINE, *FINDINGS)]
    return "\n".join(f"{kind:24} {count:6} {100 * count / max(1, total):6.1f} %" for kind, count in rows)


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="number of scenarios")
    parser.add_argument("--seed", type=int, default=1, help="seed of the scenarios")
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument(
        "--only", type=int, help="run only this number, in this process, and print its scenario"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        serve(given.seed)
        return 0
    if given.only is not None:
        drawn = draw(given.seed, given.only)
        print(
            json.dumps(drawn.scenario, indent=1),
            f"gradients: {drawn.transform}",
            *drawn.files.values(),
            sep="\n",
        )
        found = play(drawn)
        print(f"{found.kind}: {found.text}")
        return int(found.kind in FINDINGS)
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    for number, found in verdicts(given.seed, range(given.first, given.first + given.count)):
        counts[found.kind] += 1
        if found.kind in FINDINGS:
            print(
                f"{found.kind}: {found.text}\n  python -m tests.soak --seed {given.seed} --only {number}",
                flush=True,
            )
        if counts.total() % 100 == 0:
            print(f"{counts.total()} in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    print(table(counts, counts.total()))
    return int(any(counts[kind] for kind in FINDINGS))


if __name__ == "__main__":
    sys.exit(main())
