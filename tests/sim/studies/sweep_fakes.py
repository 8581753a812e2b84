"""Tasks whose processes die on purpose. Workers import this file: it imports little."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

OK, RAISES, KILLED, EXITS = "ok", "raises", "killed", "exits"
EXIT_STATUS = 7

Plan = tuple[str, ...]  # what happens at each attempt; after the last one all goes well


def attempt(task: tuple[str, int, Plan]) -> int:
    """Do what the plan of a task says about this attempt; every attempt leaves a file in the folder."""
    folder, number, plan = task
    for count in range(100):
        try:
            (Path(folder) / f"{number}-{count}").touch(exist_ok=False)
        except FileExistsError:
            continue
        break
    match plan[count] if count < len(plan) else OK:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(EXIT_STATUS)
        case "raises":
            raise ValueError(f"task {number} is wrong")
    return number


def attempts(folder: Path, number: int) -> int:
    return len(list(folder.glob(f"{number}-*")))


def expected(number: int, plan: Plan) -> tuple[int | str, int]:
    """The result of a task, or words of its failure, and its attempts: written down without the code."""
    for count, what in enumerate(plan[:2], 1):
        if what == OK:
            return number, count
        if what == RAISES:
            return f"task {number} is wrong", count
        if count == 2:
            return "SIGKILL" if what == KILLED else f"exit status {EXIT_STATUS}", count
    return number, len(plan) + 1


def pid_and_sleep(folder: str) -> str:
    """Leave this process's number, and sleep at the first attempt."""
    (Path(folder) / f"pid-{os.getpid()}").touch()
    if len(list(Path(folder).glob("pid-*"))) == 1:
        time.sleep(60)
    return "done"


def threads(_: object) -> dict[str, str | None]:
    """What limits the threads of libraries in this process."""
    return {
        name: os.environ.get(name) for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }


class UnpicklableError(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("cannot be sent")


def raise_unpicklable(_: object) -> None:
    raise UnpicklableError("too odd")
