"""Points on a Dask cluster: its client is an executor, and Dask sends the tasks of a lost worker to another.

Dask comes with the extra `netfold[dask]`, and is imported when a scheduler is named.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netfold.errors import NetfoldError, RunError
from netfold.sim.sweep.task import Versions, own_versions

RETRIES = 3  # of a task whose worker raised an error that is not the task's
CONNECT_S = 20.0
WORKERS_S = 60.0  # how long to wait for the first worker
LOCAL = "local"


@dataclass(frozen=True)
class Cluster:
    """A Dask scheduler: its address, or the file that it wrote."""

    address: str = ""
    file: Path | None = None


def cluster_of(scheduler: str, file: Path | None) -> Cluster | None:
    """The cluster that is asked for; None for processes on this machine.

    Raises
    ------
    NetfoldError
        It is neither "local" nor an address, or there are two.
    """
    if file is not None:
        if scheduler != LOCAL:
            raise NetfoldError("two schedulers are named", "use --scheduler or --scheduler-file")
        if not file.is_file():
            raise NetfoldError(
                f"{file}: there is no such scheduler file",
                "give the file that `dask scheduler --scheduler-file FILE` writes",
            )
        return Cluster(file=file)
    if scheduler == LOCAL:
        return None
    if "://" not in scheduler:
        raise NetfoldError(
            f"no scheduler {scheduler!r}",
            "use local, or the address of a Dask scheduler, such as tcp://10.0.0.1:8786",
        )
    return Cluster(scheduler)


@contextlib.contextmanager
def connected(
    cluster: Cluster, versions: Versions
) -> Iterator[tuple[Executor, int, tuple[type[Exception], ...]]]:
    """An executor on a cluster, how many tasks its workers run now, and the errors of a worker that died.

    Dask sends a task to other workers if one dies, and raises such an error after several, also for a task
    that was only waiting there.

    Raises
    ------
    NetfoldError
        Dask is not installed, or the scheduler does not answer.
    RunError
        There are no workers, or one has other versions of Python, netfold or what results stand on.
    """
    client = _client(cluster)
    from distributed import KilledWorker  # after the client, which says what to do if it is missing

    try:
        _check(client, versions)
        threads = sum(one["nthreads"] for one in client.scheduler_info(n_workers=-1)["workers"].values())
        executor = client.get_executor(retries=RETRIES, pure=False)
        try:
            yield executor, threads, (KilledWorker,)
        finally:
            executor.shutdown(wait=False)
    finally:
        client.close()


def _client(cluster: Cluster) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise NetfoldError(
            f"a Dask scheduler needs the package distributed: {error}", "pip install 'netfold[dask]'"
        ) from None
    given = {"scheduler_file": str(cluster.file)} if cluster.file else {"address": cluster.address}
    try:
        return Client(**given, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise NetfoldError(
            f"the scheduler {cluster.file or cluster.address} does not answer: {error}",
            "check its address, and that it runs",
        ) from None


def _check(client: Any, versions: Versions) -> None:
    """Refuse workers that would compute other results."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError:
        raise RunError(
            f"the scheduler has no workers, after {WORKERS_S:.0f} s", "start some with `dask worker ADDRESS`"
        ) from None
    found = client.run(own_versions, on_error="return")
    for address, theirs in found.items():
        if isinstance(theirs, Exception):
            raise RunError(
                f"the worker {address} cannot run netfold: {theirs}",
                "install the same netfold there, with the same packages",
            )
        if difference := versions.difference(theirs):
            raise RunError(
                f"the worker {address} has other versions: {difference}",
                "install the same there: results depend on them",
            )
