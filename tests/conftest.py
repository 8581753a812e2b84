"""Settings of all tests: the effort of hypothesis (HYPOTHESIS_PROFILE), pin, budget, and no windows."""

import gc
import os
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from numpy.typing import NDArray

from netfold.kernels.processor import pin
from tests import ROOT
from tests.budget import Budget
from tests.examples import PROFILE, scaled
from tests.templates import compile_once

os.environ.setdefault("MPLBACKEND", "Agg")
pin()  # before any test computes with PyTorch, as `netfold run` does
compile_once()

# Kernels compile when they are first called, so the time of one example means nothing.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly",
    settings.get_profile("ci"),
    derandomize=False,
    max_examples=scaled(50),
    print_blob=True,
    database=DirectoryBasedExampleDatabase(ROOT / "tests/failing"),
)
settings.register_profile(  # only whether a test fails counts
    "mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
)
settings.register_profile("bounds", settings.get_profile("ci"), max_examples=scaled(50))
settings.load_profile(PROFILE)


def pytest_configure(config: pytest.Config) -> None:
    """Hold the tests of CI to their budget; the other profiles try more, or with slower code."""
    if PROFILE == "ci":
        config.pluginmanager.register(Budget(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests of loads last: two processes that begin with the engine compile it twice."""
    items.sort(key=lambda item: "bench" in item.path.parts)


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collection, which would look at all of them again and again.

    Each simulated variant freezes and thaws objects, too: its thaw would undo this.
    """
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None
    gc.set_threshold(100_000, 20, 20)  # Python's default is 700 new objects; netfold's command has 500 000


_TABLES: dict[tuple[str, int], NDArray[np.uint8]] = {}


@pytest.fixture(autouse=True)
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of images are parsed once, but where that is tested: it takes most of a short training."""
    readers = sys.modules.get("netfold.sim.workload.data_readers")
    if readers is None or "workload" in request.path.parts:
        return
    parse = readers._table

    def table(name: str) -> NDArray[np.uint8]:
        path = readers.fetch(name)
        key = str(path), path.stat().st_mtime_ns
        if key not in _TABLES:
            _TABLES[key] = parse(name)
        return _TABLES[key].copy()

    monkeypatch.setattr(readers, "_table", table)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures: drawing takes most of the time."""
    monkeypatch.setattr("netfold.sim.report.html_report.figures", lambda run: {})
