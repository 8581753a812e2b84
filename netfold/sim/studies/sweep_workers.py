"""Workers of a sweep, in processes here or on a Dask cluster: what they get, do and return."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import platform
import queue
import shutil
import signal
import tempfile
import threading
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path, PurePosixPath
from typing import Any

from netfold.errors import NetfoldError, RunError
from netfold.kernels.processor import UNREPRODUCIBLE, expected, instructions, pin, pinned_isa, variables
from netfold.sim.results.folder import package_versions
from netfold.sim.results.metrics import TYPES

RANKING = ("group", "by", "baseline", "times_baseline", "bottleneck")
"""What a row has from the ranking in the summary."""
_one_at_a_time = threading.Lock()  # a Dask worker may have several threads


@dataclass(frozen=True)
class Versions:
    """What decides results besides a task: both sides must agree on it."""

    python: str
    netfold: str
    sources: str  # digest of netfold's files
    packages: Mapping[str, str]
    isa: str = ""  # what runs compute with

    def difference(self, other: Versions) -> str:
        """What differs in words, other first: "python 3.12, here 3.11"; empty if nothing does."""
        own_versions, other_versions = self._named(), other._named()
        return ", ".join(
            f"{name} {other_versions.get(name, 'missing')}, here {own_versions.get(name, 'missing')}"
            for name in {**own_versions, **other_versions}
            if own_versions.get(name) != other_versions.get(name)
        )

    def _named(self) -> dict[str, str]:
        versions = {
            "python": self.python,
            "netfold": self.netfold,
            "netfold's sources": self.sources,
            "isa": self.isa,
        }
        return versions | dict(self.packages)


@cache
def own_versions() -> Versions:
    """Those of this process."""
    try:
        netfold = version("netfold")
    except PackageNotFoundError:
        netfold = "not installed"
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(python, netfold, _sources_digest(), package_versions(), pinned_isa())


def _sources_digest() -> str:
    digest = hashlib.sha256()
    package = find_spec("netfold")
    assert package is not None
    below = Path(str(package.origin)).parent
    for path in sorted(path for path in below.rglob("*") if is_source(path)):
        digest.update(f"{path.relative_to(below).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def is_source(path: Path) -> bool:
    # Not what Python writes while others read.
    return path.suffix not in (".pyc", "") and "__pycache__" not in path.parts


@dataclass(frozen=True)
class PointTask:
    text: str  # a scenario with everything merged, as JSON
    files: Mapping[str, bytes] = field(repr=False)
    """The files that the scenario names, by their path in it."""
    versions: Versions
    keeps_run: bool = False  # send the run folder back


@dataclass(frozen=True)
class TaskOutcome:
    rows: tuple[dict[str, Any], ...] = ()
    """A row for every variant or job: name, verdict, plain metrics."""
    error: str = ""  # why there are none
    wall_s: float = 0.0
    host: str = ""
    archive: bytes = field(default=b"", repr=False)  # the run folder, zipped; empty if it is not kept


def work(task: PointTask) -> TaskOutcome:
    """Run a task in this process. Errors are outcomes, so that an executor repeats only what died."""
    with _one_at_a_time:
        started_s = time.perf_counter()
        pin()
        rows: tuple[dict[str, Any], ...] = ()
        archive, error = b"", ""
        if difference := task.versions.difference(own_versions()):
            error = f"the worker on {platform.node()} has other versions: {difference}"
        elif instructions() != expected():
            error = f"{UNREPRODUCIBLE}: PyTorch has computed before in the worker on {platform.node()}"
        else:
            with tempfile.TemporaryDirectory(prefix="netfold-") as name:
                try:
                    rows, archive = _run(task, Path(name))
                except NetfoldError as refused:
                    error = str(refused).replace(f"{name}/", "")
                except MemoryError:
                    error = "not enough memory"
                except Exception:
                    error = traceback.format_exc().replace(f"{name}/", "")
        return TaskOutcome(rows, error, time.perf_counter() - started_s, platform.node(), archive)


def _run(task: PointTask, folder: Path) -> tuple[tuple[dict[str, Any], ...], bytes]:
    """The rows of a task, and its run folder if it is to be kept."""
    from netfold.sim.run.run import (
        run_scenario,  # late: the engine is slow to import
        summary_of_scenario,  # late: the engine is slow to import
    )

    file = _unpack(task, folder)
    if task.keeps_run:
        outcome = run_scenario(file, (), None, folder / "runs", lambda *_: None)
        if outcome.stopped is not None:
            raise outcome.stopped
        assert outcome.run_dir is not None
        summary, archive = outcome.summary, _zip(outcome.run_dir)
    else:
        summary, archive = summary_of_scenario(file), b""
    rows = tuple(
        {
            "variant": variant["name"],
            "verdict": variant["verdict"],
            **{name: variant["ranking"][name] for name in RANKING},
            **{name: value for name, value in variant["metrics"].items() if name in TYPES},
        }
        for variant in summary["variants"]
    )
    return rows, archive


def _unpack(task: PointTask, folder: Path) -> Path:
    """Write the scenario and its files; paths that lead up (`../x`) stay inside the folder."""
    up = max((PurePosixPath(path).parts.count("..") for path in task.files), default=0)
    below = folder.joinpath("scenario", *map(str, range(up)))
    below.mkdir(parents=True)
    for path, content in task.files.items():
        if not PurePosixPath(path).is_absolute():
            target = below / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    file = below / "scenario.yaml"
    file.write_text(task.text, "utf-8")
    return file


def _zip(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def unzip(archive: bytes, folder: Path) -> None:
    """Write a run folder that a worker sent."""
    with zipfile.ZipFile(io.BytesIO(archive)) as zip_file:
        for member in zip_file.namelist():
            target = folder / member
            if not target.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{member!r} leads out of the folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            with zip_file.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)


def digest_of(text: str, files: Mapping[str, bytes], versions: Versions, known: Mapping[str, str]) -> str:
    """The name of a point: the same for the same scenario, files, seed, versions, and what else is known."""
    content = {
        "known": dict(known),
        "scenario": text,
        "files": {path: hashlib.sha256(file_bytes).hexdigest() for path, file_bytes in sorted(files.items())},
        "versions": [versions.python, versions.netfold, versions.sources, dict(versions.packages)],
        "isa": versions.isa,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


# Points on a Dask cluster: its client is an executor, and Dask sends the tasks of a lost worker to another.
#
# Dask comes with the extra `netfold[dask]`, and is imported when a scheduler is named.


RETRIES = 3
"""How often Dask retries a task whose worker raised an error that is not the task's."""
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
        threads = sum(
            worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
        )
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
    scheduler = {"scheduler_file": str(cluster.file)} if cluster.file else {"address": cluster.address}
    try:
        return Client(**scheduler, timeout=CONNECT_S, set_as_default=False)
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
    answers = client.run(own_versions, on_error="return")
    for address, worker_versions in answers.items():
        if isinstance(worker_versions, Exception):
            raise RunError(
                f"the worker {address} cannot run netfold: {worker_versions}",
                "install the same netfold there, with the same packages",
            )
        if difference := versions.difference(worker_versions):
            raise RunError(
                f"the worker {address} has other versions: {difference}",
                "install the same there: results depend on them",
            )


# An executor of spawned processes that outlives its workers: one that dies costs one task, which says how.
#
# Each place has a process of its own and a pipe to it, and nothing is shared between processes: no queue
# and no lock that a killed process could leave locked. (`concurrent.futures.ProcessPoolExecutor` gives up
# all tasks when one process dies, and does not say which task it was.)


_THREADS = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
_STARTS_MAX = 3  # attempts to start a process, if it is killed before it is ready
_READY = b"ready"
_GUARD = 'in a script, start it below `if __name__ == "__main__":`, because every worker imports the script'
_spawn = multiprocessing.get_context("spawn")
_environment = threading.Lock()

_Call = tuple["Future[Any]", bytes]


class WorkerDiedError(Exception):
    """The process of a task ended without a result.

    Attributes
    ----------
    exit_code
        Its exit status; a negative one is the signal that ended it.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        if self.exit_code >= 0:
            return f"its process ended with exit status {self.exit_code}"
        try:
            name = signal.Signals(-self.exit_code).name
        except ValueError:
            name = f"signal {-self.exit_code}"
        # Linux sends SIGKILL to a process when there is no memory left, and says nothing else.
        cause = " (as the system does when memory runs out)" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{cause}"


class WorkerPool(Executor):
    """An executor of `size` spawned processes, each of which computes with one thread.

    A process starts with its first task, serves many, and is replaced if it dies; the task then fails with
    `WorkerDiedError`. Processes ignore Ctrl-C, and end when this one does.
    """

    def __init__(self, size: int) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._places = [_Place(self._calls, self._closed, number) for number in range(size)]

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Send a call to a process; function, arguments and result must be picklable."""
        if self._closed.is_set():
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._calls.put((future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes after their tasks; `cancel_futures` cancels the tasks that have not begun."""
        self._closed.set()
        if cancel_futures:
            with contextlib.suppress(queue.Empty):
                while call := self._calls.get_nowait():
                    call[0].cancel()
        for _ in self._places:
            self._calls.put(None)
        if wait:
            for runner in self._places:
                runner.thread.join()

    def kill(self) -> None:
        """End the processes now; running tasks fail with `WorkerDiedError`, others are cancelled."""
        self._closed.set()
        for runner in self._places:
            runner.kill()
        self.shutdown(cancel_futures=True)


class _Place:
    """A thread that sends calls to its process, one after the other."""

    def __init__(self, calls: queue.SimpleQueue[_Call | None], closed: threading.Event, number: int) -> None:
        self._calls, self._closed = calls, closed
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._starting = threading.Lock()
        self.thread = threading.Thread(target=self._serve, name=f"netfold-place-{number}", daemon=True)
        self.thread.start()

    def kill(self) -> None:
        """End the process now, and start no other."""
        with self._starting:
            if self._process is not None:
                self._process.kill()

    def _serve(self) -> None:
        while call := self._calls.get():
            future, content = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                is_good, value = self._answer(content)
            except BaseException as error:
                future.set_exception(error)
                self._end()
                continue
            if is_good:
                future.set_result(value)
            else:
                future.set_exception(value)
        self._end()

    def _answer(self, content: bytes) -> tuple[bool, Any]:
        """What the process answers to a call: whether it returned, and what it returned or raised."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(content)
        except OSError:
            raise self._death() from None
        answer: tuple[bool, Any] = pickle.loads(self._receive())
        return answer

    def _receive(self) -> bytes:
        """The next message of the process."""
        assert self._pipe is not None
        assert self._process is not None
        wait([self._pipe, self._process.sentinel])
        try:
            if not self._pipe.poll():  # it may have answered before it died
                raise EOFError
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise self._death() from None

    def _start(self) -> None:
        """Start a process, and wait until it is ready.

        A process that says it cannot start is a mistake that others would repeat; one that is killed while it
        starts is replaced.
        """
        for attempt in range(1, _STARTS_MAX + 1):
            parent_end, other = _spawn.Pipe()
            process = _spawn.Process(target=_worker, args=(other,), name="netfold-worker", daemon=True)
            with self._starting, _single_threaded():
                if self._closed.is_set():
                    raise WorkerDiedError(-signal.SIGKILL)
                try:
                    process.start()
                except RuntimeError:  # this is a worker itself, which imports a script that starts workers
                    raise RunError("a worker process starts workers", _GUARD) from None
                self._process, self._pipe = process, parent_end
            other.close()
            try:
                if self._receive() == _READY:
                    return
            except WorkerDiedError as error:
                self._end()
                if error.exit_code >= 0:
                    raise RunError(f"a worker process cannot start: {error}", _GUARD) from None
                if attempt == _STARTS_MAX:
                    raise

    def _death(self) -> WorkerDiedError:
        assert self._process is not None
        self._process.join()
        return WorkerDiedError(self._process.exitcode or 0)

    def _end(self) -> None:
        """End the process when it has nothing to do."""
        with self._starting:
            if self._pipe is not None:
                self._pipe.close()
            if self._process is not None:
                self._process.join()
                self._process.close()
            self._process = self._pipe = None


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """An environment in which a new process is pinned, and computes with one thread: each has a core.

    A sum that several threads share may also depend on how many there are.
    """
    with _environment:
        pinned = variables()
        old_values = {name: os.environ.get(name) for name in (*_THREADS, *pinned)}
        os.environ.update(dict.fromkeys(_THREADS, "1"))
        os.environ.update(pinned)
        try:
            yield
        finally:
            for name, value in old_values.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _worker(pipe: Connection) -> None:
    """Serve calls until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send_bytes(_READY)
    while True:
        try:
            content = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            function, args, kwargs = pickle.loads(content)
            answer = pickle.dumps((True, function(*args, **kwargs)))
        except Exception as error:
            answer = _pickle(error)
        try:
            pipe.send_bytes(answer)
        except OSError:
            return


def _pickle(error: Exception) -> bytes:
    """An error as an answer; as text if it cannot be sent."""
    try:
        answer = pickle.dumps((False, error))
        pickle.loads(answer)
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return answer


def _end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, in the middle of a task too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


# Runs jobs on any `concurrent.futures.Executor`, as many at a time as fit the memory.


DEATHS_MAX = 2
"""A job is given up after its process has died so often."""


@dataclass(frozen=True)
class WorkerCall:
    argument: Any
    bytes: int = 0  # memory that it takes
    weight: float = 0.0  # the heaviest begin first, so that none is left alone at the end


@dataclass(frozen=True)
class Limits:
    """How much an executor may run at a time, and how it says that a process died."""

    jobs: int
    bytes: float
    deaths: tuple[type[Exception], ...] = (WorkerDiedError,)  # errors that say that the process died


class FailedError(Exception):
    """A job that has no result; `str()` says why."""


def dispatch(
    executor: Executor,
    function: Callable[[Any], Any],
    jobs: Sequence[WorkerCall],
    limits: Limits,
    ended: Callable[[int, Any], None],
) -> None:
    """Run all jobs; `ended` gets the index of each and its result or a `FailedError`, as they end.

    A job whose process dies is sent again, once. One that needs more memory than the limit runs alone.

    Raises
    ------
    RunError
        The executor can run nothing.
    """
    waiting = sorted(range(len(jobs)), key=lambda index: -jobs[index].weight)
    running: dict[Future[Any], int] = {}
    deaths: Counter[int] = Counter()
    while waiting or running:
        for index in list(waiting):
            used = sum(jobs[job_index].bytes for job_index in running.values())
            if len(running) < limits.jobs and (not running or used + jobs[index].bytes <= limits.bytes):
                waiting.remove(index)
                running[executor.submit(function, jobs[index].argument)] = index
        done, _ = wait_for_futures(running, return_when=FIRST_COMPLETED)
        for future in done:
            index = running.pop(future)
            try:
                result = future.result()
            except RunError:
                raise
            except limits.deaths as error:
                deaths[index] += 1
                if deaths[index] < DEATHS_MAX:
                    waiting.insert(0, index)
                    continue
                result = FailedError(f"{error}, {DEATHS_MAX} times")
            except Exception as error:
                result = FailedError(str(error) or type(error).__name__)
            ended(index, result)
