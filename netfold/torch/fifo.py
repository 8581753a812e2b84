"""A thread that does jobs in the order in which they are given."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread

Job = Callable[[], None]


class Fifo:
    """First in, first out. Jobs must not raise.

    The thread is a daemon: a job that waits for workers that are gone does not keep the process. It begins
    with the first job, and ends with `close` or when nothing refers to this object.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._close = weakref.finalize(self, self._jobs.put, None)

    def submit(self, job: Job) -> None:
        """Do a job after all that were given before; once closed, here and now."""
        if not self._close.alive:
            job()
            return
        self._jobs.put(job)
        if self._thread.ident is None:
            self._thread.start()

    def drain(self) -> None:
        """Wait until all jobs are done."""
        if self._thread.ident is not None and self._close.alive:
            done = Event()
            self._jobs.put(done.set)
            done.wait()

    def close(self) -> None:
        """Wait until all jobs are done, and end the thread."""
        self.drain()
        self._close()


def _serve(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it may hold gradients while this waits for the next
