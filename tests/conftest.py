"""Settings of all tests: the effort of hypothesis (HYPOTHESIS_PROFILE), the pin, and no windows."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from netfold.sim.processor import pin
from tests.examples import PROFILE, SEED, scaled

os.environ.setdefault("MPLBACKEND", "Agg")
pin()  # before any test computes with PyTorch, as `netfold run` does

# Kernels compile when they are first called, so the time of one example means nothing.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", settings.get_profile("ci"), derandomize=False, max_examples=scaled(50))
settings.register_profile(  # only whether a test fails counts
    "mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
)
settings.register_profile("bounds", settings.get_profile("ci"), max_examples=scaled(50))
settings.load_profile(PROFILE)


def _seed_line() -> str:
    return f"netfold: the seed of newly drawn tests is {SEED} (NETFOLD_TEST_SEED={SEED} repeats them)"


def pytest_report_header() -> str:
    """Print the seed before anything runs."""
    return _seed_line()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests of loads last: two processes that begin with the engine compile it twice."""
    items.sort(key=lambda item: "bench" in item.path.parts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seed again if a test failed, or if -q omits the header."""
    if terminalreporter.stats.get("failed") or terminalreporter.verbosity < 0:
        terminalreporter.write_line(_seed_line())
