"""What the tests cost: CPU time of each, and of all processes together, held to a budget.

The time in which Numba compiles does not count, as compiled code is kept between runs. The test that is the
first to import PyTorch may take longer. Where plain Python runs slower than on the processor for which the
budget was set, the limits grow in proportion, and the summary says so.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Generator, Mapping
from typing import Any

import pytest
from numba.core import event

TEST_CPU_S_MAX = 2.0  # of a test without the mark `slow`
SUITE_CPU_S_MAX = 480.0
DEAREST = 10  # tests that are printed
LOOP_S = 0.050  # what `loop_s` returns where the budget was set


class Compiling(event.Listener):  # type: ignore[misc]
    """CPU-seconds in which this process has compiled kernels; a kernel that compiles another counts once."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._depth = 0
        self._begin_s = 0.0
        for kind in ("numba:compile", "numba:run_pass"):  # the second alone for functions called by address
            event.register(kind, self)

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._begin_s = time.thread_time()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.total_s += time.thread_time() - self._begin_s


class Budget:
    """Measures every test, in each process of pytest-xdist, and sums up in the one that prints results."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._compiling = Compiling()
        self._tests: dict[str, tuple[float, bool]] = {}  # CPU-seconds, and whether it is marked `slow`
        self._workers_s: list[float] = []
        self._begin_s = self._compiled_s = self._suite_s = 0.0
        self._slower = 1.0
        self._had_torch = False

    def pytest_sessionstart(self) -> None:
        self._measure_processor()

    def pytest_collection_finish(self) -> None:
        """Compile the engine here, as on one core: a process of its own would not be heard."""
        pytest.MonkeyPatch().setattr("netfold.sim.run.compiling.threads_count", lambda: 1)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._begin_s, self._compiled_s = self._used_s(), self._compiling.total_s
        self._had_torch = "torch" in sys.modules
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the time into the last report of a test, which goes to the process that prints."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("cpu_s", self._used_s() - self._begin_s))
            has_compiled = self._compiling.total_s > self._compiled_s
            if has_compiled or (not self._had_torch and "torch" in sys.modules):
                report.keywords["slow"] = 1  # much else happens then, too, that is kept
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "cpu_s":
                self._tests[report.nodeid] = float(str(value)), "slow" in report.keywords

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        self._workers_s.append(output.get("cpu_s", 0.0))
        self._slower = max(self._slower, output.get("slower", 1.0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which all tests passed, but cost too much."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["cpu_s"] = self._used_s()
            self._measure_processor()
            self._config.workeroutput["slower"] = self._slower
            return
        self._suite_s = (
            _cpu_s(resource.RUSAGE_SELF) + sum(self._workers_s) if self._workers_s else self._used_s()
        )
        self._measure_processor()
        if session.exitstatus == pytest.ExitCode.OK and self._complaints():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("CPU time")
        slower = (
            f" (limits are {self._slower:.1f} times as long: slower processor)" if self._slower > 1 else ""
        )
        terminalreporter.write_line(
            f"{self._suite_s:.0f} CPU-s without compiling{slower}; the dearest tests:"
        )
        for name, (cpu_s, _) in sorted(self._tests.items(), key=lambda item: -item[1][0])[:DEAREST]:
            terminalreporter.write_line(f"{cpu_s:6.2f}  {name}")

    def pytest_unconfigure(self) -> None:
        """Say last why a run failed in which all tests passed: the end of a log is what people see."""
        if not hasattr(self._config, "workeroutput"):
            for complaint in self._complaints():
                print(complaint)

    def _measure_processor(self) -> None:
        """At the beginning and at the end, in each process: cores are slower while others work, too."""
        self._slower = max(self._slower, loop_s() / LOOP_S)

    def _complaints(self) -> list[str]:
        return complaints(self._tests, self._suite_s, self._slower)

    def _used_s(self) -> float:
        """CPU-seconds of this process and of those it has waited for, without compiling."""
        return _cpu_s(resource.RUSAGE_SELF) + _cpu_s(resource.RUSAGE_CHILDREN) - self._compiling.total_s


def complaints(tests: Mapping[str, tuple[float, bool]], suite_s: float, slower: float = 1.0) -> list[str]:
    """A sentence for each test, and for the suite, beyond the budget."""
    test_limit_s, suite_limit_s = TEST_CPU_S_MAX * slower, SUITE_CPU_S_MAX * slower
    dear = [
        f"{name}: {cpu_s:.2f} CPU-s, at most {test_limit_s:.2f} without the mark `slow`"
        for name, (cpu_s, is_slow) in tests.items()
        if cpu_s > test_limit_s and not is_slow
    ]
    if suite_s > suite_limit_s:
        dear.append(f"the suite: {suite_s:.0f} CPU-s, at most {suite_limit_s:.0f}")
    return dear


def loop_s() -> float:
    """CPU-seconds of a fixed loop of plain Python, the best of ten."""

    def measured() -> float:
        begin_s, total = time.thread_time(), 0
        for number in range(1_000_000):
            total ^= number * number
        return time.thread_time() - begin_s

    return min(measured() for _ in range(10))


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime
