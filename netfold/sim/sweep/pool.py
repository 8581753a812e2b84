"""An executor of spawned processes that outlives its workers: one that dies costs one task, which says how.

Each place has a process of its own and a pipe to it, and nothing is shared between processes: no queue and no
lock that a killed process could leave locked. (`concurrent.futures.ProcessPoolExecutor` gives up all tasks
when one process dies, and does not say which task it was.)
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from netfold.errors import RunError
from netfold.sim.processor import variables

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
            for place in self._places:
                place.thread.join()

    def kill(self) -> None:
        """End the processes now; running tasks fail with `WorkerDiedError`, others are cancelled."""
        self._closed.set()
        for place in self._places:
            place.kill()
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
            raise self._died() from None
        found: tuple[bool, Any] = pickle.loads(self._receive())
        return found

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
            raise self._died() from None

    def _start(self) -> None:
        """Start a process, and wait until it is ready.

        A process that says it cannot start is a mistake that others would repeat; one that is killed while it
        starts is replaced.
        """
        for attempt in range(1, _STARTS_MAX + 1):
            own, other = _spawn.Pipe()
            process = _spawn.Process(target=_worker, args=(other,), name="netfold-worker", daemon=True)
            with self._starting, _single_threaded():
                if self._closed.is_set():
                    raise WorkerDiedError(-signal.SIGKILL)
                try:
                    process.start()
                except RuntimeError:  # this is a worker itself, which imports a script that starts workers
                    raise RunError("a worker process starts workers", _GUARD) from None
                self._process, self._pipe = process, own
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

    def _died(self) -> WorkerDiedError:
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
        before = {name: os.environ.get(name) for name in (*_THREADS, *pinned)}
        os.environ.update(dict.fromkeys(_THREADS, "1"))
        os.environ.update(pinned)
        try:
            yield
        finally:
            for name, value in before.items():
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
            answer = _pickled(error)
        try:
            pipe.send_bytes(answer)
        except OSError:
            return


def _pickled(error: Exception) -> bytes:
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
