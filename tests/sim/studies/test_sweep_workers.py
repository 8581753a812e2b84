"""Who runs the points of a sweep: processes, a cluster; and points whose sources have changed."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.errors import NetfoldError, RunError
from netfold.sim.studies import sweep as make
from netfold.sim.studies import sweep_output as page
from netfold.sim.studies import sweep_workers as task
from netfold.sim.studies.sweep import SweepSettings, run_sweep
from netfold.sim.studies.sweep_workers import (
    Cluster,
    FailedError,
    Limits,
    TaskOutcome,
    WorkerCall,
    WorkerDiedError,
    WorkerPool,
    cluster_of,
    connected,
    dispatch,
    own_versions,
)
from tests import ROOT
from tests.command_line import LONGEST_S, run_python
from tests.docs import prepare
from tests.examples import examples, nightly
from tests.registry import registered
from tests.sim.studies import sweep_fakes as fakes
from tests.sim.studies.sweep_fakes import EXITS, KILLED, OK, RAISES, Plan, attempt, attempts, expected
from tests.sim.studies.sweep_scene import BASE, VERSIONS, Inline, points, scenario, use_inline, wait_inline

UNLIMITED = Limits(1000, float("inf"))
PLANS = st.lists(st.sampled_from([OK, RAISES, KILLED, EXITS]), max_size=3).map(tuple)


def run(executor: Any, folder: Path, plans: list[fakes.Plan], limits: Limits = UNLIMITED) -> dict[int, Any]:
    """What `dispatch` reports of every task; each at most once."""
    found: dict[int, Any] = {}

    def ended(index: int, result: Any) -> None:
        assert index not in found
        found[index] = result

    jobs = [WorkerCall((str(folder), number, plan)) for number, plan in enumerate(plans)]
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
        patch.setattr("netfold.sim.studies.sweep_workers.wait_for_futures", wait_inline(executor))
        all_jobs = [
            WorkerCall(number, bytes_each[number], weight=seed * number % 5) for number in range(len(deaths))
        ]
        dispatch(executor, lambda number: number, all_jobs, Limits(jobs, limit), found.setdefault)

    for number, count in enumerate(deaths):
        assert (found[number] == number) == (count < 2)
    assert len(found) == len(deaths)


def test_the_heaviest_begin_first() -> None:
    order: list[int] = []
    executor = Inline()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.sim.studies.sweep_workers.wait_for_futures", wait_inline(executor))
        jobs = [WorkerCall(number, weight=weight) for number, weight in enumerate([1.0, 5.0, 3.0])]
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
        "from netfold.sim.studies.sweep_workers import WorkerPool\n"
        "from tests.sim.studies import sweep_fakes as fakes\n"
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
        "from netfold.sim.studies.sweep_workers import WorkerPool\nimport os\n"
        "with WorkerPool(1) as pool:\n    pool.submit(os.getpid).result()\n"
    )
    done = run_python(script, check=False)

    assert done.returncode == 1
    assert 'below `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


distributed = pytest.importorskip("distributed", reason="comes with the extra `dask`")


def of_a_cluster(test: Any) -> Any:
    """Mark a test that runs processes of Dask, which warns of much."""
    return nightly(pytest.mark.processes(pytest.mark.filterwarnings("default")(test)))


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    """A cluster of two processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=60
        ) as cluster:
            yield cluster


def test_a_cluster_is_named_by_an_address_or_a_file() -> None:
    assert Cluster("tcp://a:1") == cluster_of("tcp://a:1", None)
    assert Cluster(file=Path(__file__)) == cluster_of("local", Path(__file__))
    with pytest.raises(NetfoldError, match="two schedulers are named"):
        cluster_of("tcp://a:1", Path(__file__))


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (TimeoutError(), "the scheduler has no workers, after "),
        ({"tcp://w": ImportError("no netfold")}, "the worker tcp://w cannot run netfold: no netfold"),
        ({"tcp://w": VERSIONS}, "the worker tcp://w has other versions: "),
    ],
)
def test_workers_of_a_cluster_are_checked(answers: Any, told: str) -> None:
    client = Mock(**{"run.return_value": answers})
    client.wait_for_workers.side_effect = answers if isinstance(answers, Exception) else None
    with pytest.raises(RunError, match=told):
        task._check(client, own_versions())


def test_without_dask_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)

    with (
        pytest.raises(NetfoldError, match=r"^a Dask scheduler needs the package distributed: ") as caught,
        connected(Cluster("tcp://there:8786"), own_versions()),
    ):
        pass
    assert caught.value.hint == "pip install 'netfold[dask]'"


def test_a_cluster_runs_as_many_tasks_as_its_workers_have_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that answers as Dask's: two workers with the same versions."""
    pytest.importorskip("distributed")
    closed = []
    client = SimpleNamespace(
        wait_for_workers=lambda count, timeout: None,
        run=lambda function, on_error: {"a": function(), "b": function()},
        scheduler_info=lambda n_workers: {"workers": {"a": {"nthreads": 2}, "b": {"nthreads": 3}}},
        get_executor=lambda retries, pure: ThreadPoolExecutor(1),
        close=lambda: closed.append(True),
    )
    monkeypatch.setattr("netfold.sim.studies.sweep_workers._client", lambda cluster: client)
    with connected(Cluster("tcp://there:8786"), own_versions()) as (executor, threads, _):
        assert (threads, executor.submit(int, "7").result(), closed) == (5, 7, [])
    assert closed == [True]


@of_a_cluster
def test_a_killed_worker_loses_no_task(local: Any, tmp_path: Path) -> None:
    plans: list[Plan] = [(OK,), (KILLED, OK), (OK,), (EXITS, KILLED, OK), (RAISES,) * 9, *[(OK,)] * 5]
    found: dict[int, Any] = {}
    with connected(Cluster(local.scheduler_address), own_versions()) as (executor, threads, deaths):
        assert threads == 2
        jobs = [WorkerCall((str(tmp_path), number, plan)) for number, plan in enumerate(plans)]
        dispatch(executor, attempt, jobs, Limits(99, float("inf"), deaths), found.setdefault)

    assert isinstance(found.pop(4), FailedError)
    assert found == {number: number for number in range(len(plans)) if number != 4}
    assert attempts(tmp_path, 1) >= 2
    assert attempts(tmp_path, 3) >= 3


@of_a_cluster
def test_a_sweep_there_is_the_sweep_here(local: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the scheduler's file; the workers share no folder with the sweep."""
    with distributed.Client(local, set_as_default=False) as client:
        client.write_scheduler_file(str(tmp_path / "scheduler.json"))
    cluster = cluster_of("local", tmp_path / "scheduler.json")
    text = "sweep: {workers: [2, 4], seeds: 2}\n"
    there = run_sweep(scenario(text), SweepSettings(1, cluster), tmp_path / "there", lambda ended: None)
    use_inline(monkeypatch, Inline())
    here = run_sweep(scenario(text), SweepSettings(1), tmp_path / "here", lambda ended: None)

    assert pl.read_parquet(there / "points.parquet")["status"].to_list() == ["done"] * 8
    for name in ("points.parquet", "sweep.json"):
        assert (there / name).read_bytes() == (here / name).read_bytes()


@of_a_cluster
def test_the_documents_batch_script_sweeps(tmp_path: Path) -> None:
    """With an `srun` that starts one worker."""
    prepare(ROOT / "docs" / "how-to" / "sweep-on-a-cluster.md", tmp_path)
    programs = {
        "srun": 'exec "$@"',
        "dask": f'exec {sys.executable} -m dask "$@"',
        "netfold": f'exec {sys.executable} -m netfold "$@" --no-report',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    activate = tmp_path / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text('export PATH="$PWD:$PATH"\n', "utf-8")
    done = subprocess.run(
        ["bash", "sweep.sh"],
        cwd=tmp_path,
        env={**os.environ, "SLURM_JOB_ID": "7", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )

    assert done.returncode == 0, done.stderr
    assert "cluster: 4 points done: pass" in done.stdout


@of_a_cluster
def test_workers_with_other_versions_are_refused(local: Any) -> None:
    other = replace(own_versions(), python="2.7", netfold="0.0.1")
    with (
        pytest.raises(RunError, match=r"worker tcp://.* has other versions: python .*, here 2\.7, netfold"),
        connected(Cluster(local.scheduler_address), other),
    ):
        pass


@of_a_cluster
def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.sim.studies.sweep_workers.CONNECT_S", 0.5)
    with (
        pytest.raises(NetfoldError, match=r"tcp://127\.0\.0\.1:1 does not answer"),
        connected(Cluster("tcp://127.0.0.1:1"), own_versions()),
    ):
        pass


@of_a_cluster
def test_a_scheduler_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.sim.studies.sweep_workers.WORKERS_S", 0.5)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=True, dashboard_address=None, silence_logs=60
        ) as empty,
        pytest.raises(RunError, match="has no workers"),
        connected(Cluster(empty.scheduler_address), own_versions()),
    ):
        pass


ELEMENTS = 4000
CODEC = """
from dataclasses import dataclass

import numpy as np

import netfold
from helper import TIMES
from netfold.homomorphic.codec import Codec, Decoded, Encoder
from netfold.homomorphic.message import Merge, Message


class Wide:
    def of(self, sums):
        return np.full(sums.total.size, 1e300)


class Worker(Encoder):
    def exchange(self, gradient, round):
        (merged,) = yield (Message(np.tile(gradient, TIMES), Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words[: gradient.size].copy(), gradient)


@netfold.register
@dataclass(frozen=True)
class Mine(Codec):
    kind = "mine"
    merges = frozenset({Merge.FLOAT_ADD})
    is_order_free = False

    def worker(self, rank, workers, seed):
        return Worker()

    def error_bound(self, contributions):
        return Wide()
"""


def digests(base: str) -> set[str]:
    return {one.digest for one in points("sweep: {workers: [2, 3]}\n", base=base)}


def test_sources_beside_a_codec_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helper.py").write_text("TIMES = 1\n")
    (tmp_path / "mine.py").write_text(CODEC.replace("@netfold.register\n", ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    base = BASE.partition("variants:")[0] + "codec: {kind: mine}\ncollective: {kind: parameter_server}\n"

    with registered(importlib.import_module("mine").Mine):
        first = digests(base)
        assert digests(base) == first
        (tmp_path / "helper.py").write_text("TIMES = 4\n")
        assert not digests(base) & first
    for name in ("mine", "helper"):
        monkeypatch.delitem(sys.modules, name)


MODEL = """
import json, pathlib
import torch
from torch import nn

def make():
    width = json.loads(pathlib.Path({data!r}).read_text())
    module = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
    return module, (torch.zeros(16, 4), torch.zeros(16, 2)), nn.MSELoss()
"""
TRAINED = """
name: small
topology: {{kind: star, hosts: 4}}
workers: 2
workload: {{kind: training, model: {model}, steps: 1, batch: 4}}
codec: {{kind: none}}
collective: {{kind: ring}}
sweep: {{workers: [2, 3]}}
"""


@pytest.fixture
def own_model(tmp_path: Path) -> str:
    """A scenario with a model whose width is in a file that the scenario does not name."""
    (tmp_path / "width.json").write_text("8")
    (tmp_path / "mdl.py").write_text(MODEL.format(data=str(tmp_path / "width.json")))
    return TRAINED.format(model=f"{tmp_path}/mdl.py:make")


def elements(out: Path, text: str, **settings: bool) -> list[int]:
    folder = run_sweep(scenario("", base=text), SweepSettings(1, **settings), out, lambda ended: None)
    return [int(one) for one in page.load_sweep(folder).points["elements"].to_list()]


def test_what_a_model_reads_is_not_known(
    tmp_path: Path, own_model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def parameters(width: int) -> int:
        return 4 * width + width + width * 2 + 2

    use_inline(monkeypatch, Inline())
    caplog.set_level(logging.INFO, "netfold")
    assert elements(tmp_path, own_model) == [parameters(8)] * 2
    assert "kept" not in caplog.text
    (tmp_path / "width.json").write_text("80")
    assert elements(tmp_path, own_model) == [parameters(80)] * 2
    assert re.search(
        r"2 points kept from \d{4}-\d\d-\d\d \d\d:\d\d run again, because what .*/mdl\.py reads may have "
        r"changed since; --trust-kept",
        caplog.text,
    )
    caplog.clear()
    (tmp_path / "width.json").write_text("800")
    assert elements(tmp_path, own_model, trusts_kept=True) == [parameters(80)] * 2
    assert "2 points kept from" in caplog.text
    assert "are taken, though what" in caplog.text


def test_a_sweep_that_stops_says_how_to_go_on(
    tmp_path: Path, own_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(one: task.PointTask) -> TaskOutcome:
        raise KeyboardInterrupt

    use_inline(monkeypatch, Inline())
    monkeypatch.setattr(make, "work", stopping)
    with pytest.raises(KeyboardInterrupt) as stop:
        elements(tmp_path, own_model)
    (note,) = stop.value.__notes__
    assert "the same command with --trust-kept (from Python: trust_kept=True) goes on" in note


def test_a_measured_device_is_that_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TRAINED.format(model="mlp").replace("sweep: {workers: [2, 3]}\n", "")
    measured = f"{plain}device: {{kind: measured}}\n"
    here, given = digests(measured), digests(plain)
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    assert not here & digests(measured)
    assert given == digests(plain)
