"""Sweeps on a Dask cluster: on this machine, with processes as workers, and one of them killed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from netfold.sim.errors import NetfoldError, RunError
from netfold.sim.sweep.cluster import Cluster, cluster_of, connected
from netfold.sim.sweep.dispatch import FailedError, Job, Limits, dispatch
from netfold.sim.sweep.make import Settings, run_sweep
from netfold.sim.sweep.task import own_versions
from tests.examples import nightly
from tests.sim.sweep.fakes import EXITS, KILLED, OK, RAISES, Plan, attempt, attempts
from tests.sim.sweep.inline import Inline, use_inline
from tests.sim.sweep.scene import scenario

distributed = pytest.importorskip("distributed", reason="comes with the extra `dask`")
pytestmark = [
    nightly,
    pytest.mark.processes,
    pytest.mark.filterwarnings("default"),  # those of Dask are not ours
]


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    """A cluster of two processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=60
        ) as cluster:
            yield cluster


def test_a_killed_worker_loses_no_task(local: Any, tmp_path: Path) -> None:
    plans: list[Plan] = [(OK,), (KILLED, OK), (OK,), (EXITS, KILLED, OK), (RAISES,) * 9, *[(OK,)] * 5]
    found: dict[int, Any] = {}
    with connected(Cluster(local.scheduler_address), own_versions()) as (executor, threads, deaths):
        assert threads == 2
        jobs = [Job((str(tmp_path), number, plan)) for number, plan in enumerate(plans)]
        dispatch(executor, attempt, jobs, Limits(99, float("inf"), deaths), found.setdefault)

    assert isinstance(found.pop(4), FailedError)
    assert found == {number: number for number in range(len(plans)) if number != 4}
    assert attempts(tmp_path, 1) >= 2
    assert attempts(tmp_path, 3) >= 3


def test_a_sweep_there_is_the_sweep_here(local: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the scheduler's file; the workers share no folder with the sweep."""
    with distributed.Client(local, set_as_default=False) as client:
        client.write_scheduler_file(str(tmp_path / "scheduler.json"))
    cluster = cluster_of("local", tmp_path / "scheduler.json")
    text = "sweep: {workers: [2, 4], seeds: 2}\n"
    there = run_sweep(scenario(text), Settings(1, cluster), tmp_path / "there", lambda ended: None)
    use_inline(monkeypatch, Inline())
    here = run_sweep(scenario(text), Settings(1), tmp_path / "here", lambda ended: None)

    assert pl.read_parquet(there / "points.parquet")["status"].to_list() == ["done"] * 8
    for name in ("points.parquet", "sweep.json"):
        assert (there / name).read_bytes() == (here / name).read_bytes()


def test_workers_with_other_versions_are_refused(local: Any) -> None:
    other = replace(own_versions(), python="2.7", netfold="0.0.1")
    with (
        pytest.raises(RunError, match=r"worker tcp://.* has other versions: python .*, here 2\.7, netfold"),
        connected(Cluster(local.scheduler_address), other),
    ):
        pass


def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.sim.sweep.cluster.CONNECT_S", 0.5)
    with (
        pytest.raises(NetfoldError, match=r"tcp://127\.0\.0\.1:1 does not answer"),
        connected(Cluster("tcp://127.0.0.1:1"), own_versions()),
    ):
        pass


def test_a_scheduler_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.sim.sweep.cluster.WORKERS_S", 0.5)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=True, dashboard_address=None, silence_logs=60
        ) as empty,
        pytest.raises(RunError, match="has no workers"),
        connected(Cluster(empty.scheduler_address), own_versions()),
    ):
        pass
