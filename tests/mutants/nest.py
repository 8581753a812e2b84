"""Runs tests on demand, each time in a new process that has already imported all libraries.

A separate script (`python nest.py [LIBRARY …]`, in the copy): it must not import the packages with faults, as
the fault of a process is chosen before it imports them. It reads a JSON object per line, and answers with
one: pytest's exit status, or minus the signal that ended it, and the processor time. A fault may make a test
endless: `limit_s` is the longest time of all tests by the clock, `test_limit_s` that of one, `test_cpu_s` the
processor time of one; after `near_cpu_s` of all no more are begun.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# None of these is one that pytest wants to rewrite, so not hypothesis.
LIBRARIES = ("numpy", "numba", "networkx", "simpy", "pydantic", "polars", "torch", "matplotlib", "pytest")
DATA_BYTES_MAX = 8 << 30  # a fault may request all memory


def main() -> None:
    """Answer until standard input ends."""
    for library in sys.argv[1:] or LIBRARIES:
        import_module(library)
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            run(task)
        os.setpgid(child, child)  # here too: it may have to be killed before it does so itself
        status, cpu_s = wait(child, task["limit_s"])
        print(json.dumps({"number": task["number"], "status": status, "cpu_s": cpu_s}), flush=True)


class Limits:
    """A plugin of pytest: ends a test that computes for too long, and begins none when all have."""

    def __init__(self, task: dict[str, Any], started: str) -> None:
        self._task, self._started = task, started
        self._begin_s: float | None = None

    def pytest_runtest_setup(self, item: Any) -> None:
        """Write the test down, and set its clock; its end is the process's end, in compiled code too."""
        import pytest

        used_s = sum(os.times()[:4])
        if self._begin_s is None:
            self._begin_s = used_s
        if used_s - self._begin_s > self._task["near_cpu_s"]:
            pytest.skip("the time of all tests is over")
        with open(self._started, "a", encoding="utf-8") as file:
            file.write(item.nodeid + "\n")
        signal.setitimer(signal.ITIMER_PROF, self._task["test_cpu_s"])
        signal.setitimer(signal.ITIMER_REAL, self._task["test_limit_s"])


def run(task: dict[str, Any]) -> None:
    """In the new process: switch the fault on, run the tests, exit."""
    os.setpgid(0, 0)  # so that its own children are killed with it
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    output = os.open(task["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.environ["NETFOLD_MUTANT"] = str(task["number"])
    sys.path.insert(0, os.getcwd())
    import pytest

    status = 3
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    try:
        limits = Limits(task, f"{task['output']}.started")
        status = int(pytest.main([*options, *task["tests"]], plugins=[limits]))
    except BaseException:  # this process must not return into the loop of the other
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(child: int, limit_s: float) -> tuple[int, float]:
    """A process's exit status, or minus the signal that ended it; its and its children's processor time."""
    deadline_s = time.monotonic() + limit_s
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline_s:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests have started
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
    main()
