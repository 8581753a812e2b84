"""Settings of all tests: how hard hypothesis tries (HYPOTHESIS_PROFILE), and no windows from matplotlib."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.examples import FACTORS, PROFILE, SEED

os.environ.setdefault("MPLBACKEND", "Agg")

# Kernels compile when they are first called, so how long one example takes says nothing.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly", settings.get_profile("ci"), derandomize=False, max_examples=50 * FACTORS["nightly"]
)
settings.register_profile(  # of what fails only the fact counts
    "mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
)
settings.load_profile(PROFILE)


def _told() -> str:
    return f"netfold: the seed of laws that are drawn anew is {SEED} (NETFOLD_TEST_SEED={SEED} repeats them)"


def pytest_report_header() -> str:
    """Print the seed before anything runs."""
    return _told()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seed again where something failed, and where -q has left out the header."""
    if terminalreporter.stats.get("failed") or terminalreporter.verbosity < 0:
        terminalreporter.write_line(_told())
