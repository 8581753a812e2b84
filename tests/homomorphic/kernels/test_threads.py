"""Ranges shared by threads: all of them once, errors passed on, nested calls, forks."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.kernels.threads import VARIABLE, in_parallel
from tests.examples import examples


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")


def squares(count: int) -> list[int]:
    results = np.zeros(count, np.int64)

    def work(first: int, last: int) -> None:
        results[first:last] += np.arange(first, last) ** 2

    in_parallel(work, count)
    return results.tolist()


@given(count=st.integers(0, 50), threads=st.integers(1, 6))
@examples(40)
def test_every_item_is_worked_on_once_in_ranges_of_equal_size(count: int, threads: int) -> None:
    ranges = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(threads))
        in_parallel(lambda first, last: ranges.append((first, last)), count)
        assert squares(count) == [i * i for i in range(count)]

    assert [i for first, last in sorted(ranges) for i in range(first, last)] == list(range(count))
    assert len(ranges) == min(threads, count)
    sizes = [last - first for first, last in ranges]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.usefixtures("threads")
def test_parts_run_at_the_same_time_on_threads_that_stay() -> None:
    together = threading.Barrier(3, timeout=20)  # breaks unless three parts wait at once
    seen: list[set[str]] = []

    def work(first: int, last: int) -> None:
        together.wait()
        seen[-1].add(threading.current_thread().name)

    for _ in range(4):
        seen.append(set())
        in_parallel(work, 3)

    assert [len(names) for names in seen] == [3, 3, 3, 3]
    assert len(set.union(*seen)) == 3


def test_one_thread_needs_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    calls = []
    in_parallel(lambda *ends: calls.append((ends, threading.current_thread())), 7)

    assert calls == [((0, 7), threading.main_thread())]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("failing", "expected"), [({0, 2}, 0), ({1, 2}, 1), ({2}, 2)])
def test_the_first_error_is_passed_on_when_all_parts_have_ended(failing: set[int], expected: int) -> None:
    ended = []

    def work(first: int, last: int) -> None:
        ended.append(first)
        if first in failing:
            raise KeyError(first)

    with pytest.raises(KeyError) as raised:
        in_parallel(work, 3)

    assert raised.value.args == (expected,)
    assert sorted(ended) == [0, 1, 2]
    assert squares(5) == [0, 1, 4, 9, 16]


@pytest.mark.usefixtures("threads")
def test_a_part_may_share_work_itself() -> None:
    results = []
    in_parallel(lambda first, last: results.append((first, squares(4))), 3)

    assert sorted(results) == [(part, [0, 1, 4, 9]) for part in range(3)]


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("threads")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert squares(6) == [0, 1, 4, 9, 16, 25]  # the pool exists
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks with threads
        child = context.Process(target=lambda: sender.send(squares(6)))
        child.start()

    assert receiver.poll(30)
    assert receiver.recv() == [0, 1, 4, 9, 16, 25]
    child.join(30)
    assert child.exitcode == 0
    assert squares(6) == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "²"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(ValueError) as refused:
        in_parallel(lambda first, last: None, 5)

    assert str(refused.value) == (
        f"NETFOLD_THREADS is {text!r}: must be a whole number of at least 1; "
        f"leave it out for one thread on each of {os.cpu_count()} cores"
    )
