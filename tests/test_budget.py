"""The budget of the suite: who is over it, what compiling costs, and that a run over it fails."""

from __future__ import annotations

import sys

import pytest
from numba import njit

from tests import budget
from tests.budget import Compiling, complaints

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def as_fast_as_it_was_set_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs within these tests do not measure the processor again."""
    monkeypatch.setattr(budget, "loop_s", lambda: budget.LOOP_S)


def test_tests_and_suite_are_held_to_their_limits() -> None:
    assert complaints({"fast": (2.0, False), "marked": (30.0, True)}, 480.0) == []
    assert complaints({"dear": (2.01, False)}, 480.6) == [
        "dear: 2.01 CPU-s, at most 2.00 without the mark `slow`",
        "the suite: 481 CPU-s, at most 480",
    ]
    assert complaints({"dear": (4.9, False)}, 1199.0, slower=2.5) == []


def test_compiling_is_counted_once() -> None:
    @njit
    def inner(value: float) -> float:
        return value + 1

    @njit
    def outer(value: float) -> float:
        return inner(value) * 2

    compiling = Compiling()
    begin_s = budget.time.thread_time()
    assert outer(1.0) == 4.0
    spent_s = budget.time.thread_time() - begin_s

    assert 0.5 * spent_s < compiling.total_s <= spent_s


@pytest.mark.parametrize(("limit_s", "failed"), [(60.0, False), (0.0, True)])
def test_a_dear_test_fails_the_run(
    limit_s: float, failed: bool, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "TEST_CPU_S_MAX", limit_s)
    pytester.makeconftest(
        "from tests.budget import Budget\n"
        "def pytest_configure(config): config.pluginmanager.register(Budget(config))"
    )
    pytester.makepyfile("def test_squares(): assert sum(n * n for n in range(100_000))")

    result = pytester.runpytest_inprocess("-p", "no:xdist")

    result.assert_outcomes(passed=1)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK)
    result.stdout.fnmatch_lines(["*CPU-s without compiling*", "*test_squares"])
    assert ("without the mark" in result.stdout.str()) == failed


@pytest.mark.parametrize(
    "text",
    [
        "from numba import njit\ndef test_one(): assert njit(lambda: 1)()",
        "import sys\ndef test_one(): sys.modules['torch'] = sys",
    ],
    ids=["compiles", "imports PyTorch"],
)
def test_a_test_that_is_the_first_to_need_something_is_not_dear(
    text: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(budget, "TEST_CPU_S_MAX", 0.0)
    pytester.makeconftest(
        "from tests.budget import Budget\n"
        "def pytest_configure(config): config.pluginmanager.register(Budget(config))"
    )
    pytester.makepyfile(text)

    assert pytester.runpytest_inprocess("-p", "no:xdist").ret == pytest.ExitCode.OK
