"""The pool of processes and what runs tasks on it: a process that dies costs its task a try, others none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.sweep.dispatch import FailedError, Job, Limits, dispatch
from netfold.sim.sweep.pool import WorkerDiedError, WorkerPool
from tests import ROOT
from tests.examples import examples, nightly
from tests.sim.sweep import fakes
from tests.sim.sweep.fakes import EXITS, KILLED, OK, RAISES, attempt, attempts, expected
from tests.sim.sweep.inline import Inline, wait_inline

UNLIMITED = Limits(1000, float("inf"))
PLANS = st.lists(st.sampled_from([OK, RAISES, KILLED, EXITS]), max_size=3).map(tuple)


def run(executor: Any, folder: Path, plans: list[fakes.Plan], limits: Limits = UNLIMITED) -> dict[int, Any]:
    """What `dispatch` reports of every task; each at most once."""
    found: dict[int, Any] = {}

    def ended(index: int, result: Any) -> None:
        assert index not in found
        found[index] = result

    jobs = [Job((str(folder), number, plan)) for number, plan in enumerate(plans)]
    dispatch(executor, attempt, jobs, limits, ended)
    return found


def check(found: dict[int, Any], folder: Path, plans: list[fakes.Plan]) -> None:
    assert sorted(found) == list(range(len(plans)))
    for number, plan in enumerate(plans):
        result, count = expected(number, plan)
        if isinstance(result, int):
            assert found[number] == result
        else:
            assert isinstance(found[number], FailedError)
            assert result in str(found[number])
        assert attempts(folder, number) == count


@pytest.mark.slow
@pytest.mark.processes
@examples(4)
@given(plans=st.lists(PLANS, min_size=3, max_size=7), size=st.integers(1, 3))
def test_no_task_is_lost_or_doubled_whoever_dies(plans: list[fakes.Plan], size: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        with WorkerPool(size) as pool:
            found = run(pool, Path(name), plans, Limits(size, float("inf")))
        check(found, Path(name), plans)


@given(
    deaths=st.lists(st.integers(0, 3), max_size=12),
    bytes_each=st.lists(st.integers(0, 10), min_size=12, max_size=12),
    jobs=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_tasks_that_run_at_a_time_fit_the_limits(
    deaths: list[int], bytes_each: list[int], jobs: int, seed: int
) -> None:
    limit = 8
    left = list(deaths)

    def dies(number: int) -> bool:
        sizes = [bytes_each[one] for _, _, one in executor.waiting] + [bytes_each[number]]
        assert len(sizes) <= jobs
        assert sum(sizes) <= limit or len(sizes) == 1
        left[number] -= 1
        return left[number] >= 0

    executor = Inline(seed, dies)
    found: dict[int, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.sim.sweep.dispatch.wait", wait_inline(executor))
        all_jobs = [
            Job(number, bytes_each[number], weight=seed * number % 5) for number in range(len(deaths))
        ]
        dispatch(executor, lambda number: number, all_jobs, Limits(jobs, limit), found.setdefault)

    for number, count in enumerate(deaths):
        assert (found[number] == number) == (count < 2)
    assert len(found) == len(deaths)


def test_the_heaviest_begin_first() -> None:
    order: list[int] = []
    executor = Inline()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.sim.sweep.dispatch.wait", wait_inline(executor))
        jobs = [Job(number, weight=weight) for number, weight in enumerate([1.0, 5.0, 3.0])]
        dispatch(executor, order.append, jobs, Limits(1, 0), lambda *_: None)

    assert order == [1, 2, 0]


@pytest.mark.slow
@pytest.mark.processes
def test_a_process_serves_many_tasks_until_it_or_the_pool_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one thread each, after an error that cannot be sent, and in another one once it was killed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    (tmp_path / "other").mkdir()
    pool = WorkerPool(1)
    found = [pool.submit(fakes.threads, None) for _ in range(3)]
    with pytest.raises(RuntimeError, match="UnpicklableError: too odd"):
        pool.submit(fakes.raise_unpicklable, None).result(timeout=20)
    first = pool.submit(os.getpid).result()
    future = pool.submit(fakes.pid_and_sleep, str(tmp_path))
    pid = wait_for_pid(tmp_path)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"SIGKILL.*memory"):
        future.result(timeout=20)
    assert pool.submit(fakes.pid_and_sleep, str(tmp_path)).result(timeout=20) == "done"

    assert all(set(one.result().values()) == {"1"} for one in found)
    assert first == pid
    assert not is_alive(pid)
    assert os.environ["OMP_NUM_THREADS"] == "8"
    assert "NUMBA_NUM_THREADS" not in os.environ

    running, waiting = (
        pool.submit(fakes.pid_and_sleep, str(tmp_path / "other")),
        pool.submit(fakes.threads, None),
    )
    pid = wait_for_pid(tmp_path / "other")
    pool.kill()
    assert waiting.cancelled()
    assert isinstance(running.exception(timeout=20), WorkerDiedError)
    assert not is_alive(pid)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(fakes.threads, None)


def wait_for_pid(folder: Path) -> int:
    for _ in range(400):
        found = [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError("the task did not begin")


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.processes
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """In the middle of a task, when that one is killed and can tell them nothing."""
    code = (
        "from netfold.sim.sweep.pool import WorkerPool\nfrom tests.sim.sweep import fakes\n"
        f"WorkerPool(1).submit(fakes.pid_and_sleep, {str(tmp_path)!r}).result()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    pid = wait_for_pid(tmp_path)
    parent.kill()
    parent.wait()

    deadline_s = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not is_alive(pid)


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (-signal.SIGKILL, "ended by SIGKILL (as the system does when memory runs out)"),
        (-signal.SIGSEGV, "ended by SIGSEGV"),
        (-200, "ended by signal 200"),
        (3, "ended with exit status 3"),
    ],
)
def test_how_a_process_died(exit_code: int, words: str) -> None:
    assert str(WorkerDiedError(exit_code)) == f"its process {'was ' if exit_code < 0 else ''}{words}"


@nightly
@pytest.mark.processes
def test_a_script_without_a_guard_is_told_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from netfold.sim.sweep.pool import WorkerPool\nimport os\n"
        "with WorkerPool(1) as pool:\n    pool.submit(os.getpid).result()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert 'below `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]
