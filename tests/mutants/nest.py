"""Runs tests on demand, each time in a new process that has already imported all libraries.

A separate script (`python nest.py [LIBRARY …]`, in the copy): it must not import the packages with faults, as
the fault of a process is chosen before it imports them. It reads a JSON object per line, {"number",
"tests", "output", "limit_s"}, and answers with one, {"number", "status", "took_s"}: pytest's exit status, or
-1 beyond the limit.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
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
        begin_s = time.monotonic()
        child = os.fork()
        if child == 0:
            run(task)
        os.setpgid(child, child)  # here too: it may have to be killed before it does so itself
        status = wait(child, task["limit_s"])
        took_s = time.monotonic() - begin_s
        print(json.dumps({"number": task["number"], "status": status, "took_s": took_s}), flush=True)


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
    try:
        status = int(pytest.main(["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *task["tests"]]))
    except BaseException:  # this process must not return into the loop of the other
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(child: int, limit_s: float) -> int:
    """Exit status of a process, minus its signal if one ended it; -1 if it was killed for its time."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
    main()
