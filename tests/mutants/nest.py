"""Runs tests on demand, each time in a new process that has already imported all libraries.

A separate script (`python nest.py [LIBRARY …]`, in the copy): it must not import the packages with faults, as
the fault of a process is chosen before it imports them. It reads a JSON object per line, {"number",
"tests", "output", "limit_s", "cpu_s"}, and answers with one, {"number", "status", "cpu_s"}: pytest's exit
status, or minus the signal that ended it. A fault may make a test endless: `limit_s` is the longest time of
all tests together, `cpu_s` the processor time of one, which does not depend on what else the machine does.
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


class Limit:
    """A plugin of pytest: a test that computes for too long ends the process, compiled code or not."""

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s

    def pytest_runtest_logstart(self) -> None:
        """Start the clock anew."""
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s)


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
        status = int(pytest.main([*options, *task["tests"]], plugins=[Limit(task["cpu_s"])]))
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
