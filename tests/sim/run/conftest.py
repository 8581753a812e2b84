"""What tests of runs that train share."""

from __future__ import annotations

from typing import Any

import pytest

import netfold.sim.workload.workload_keys
from netfold.sim.workload import Workload, training_workload


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """The workloads that runs train."""
    workloads: list[Workload] = []

    def make(*arguments: Any) -> Workload:
        workloads.append(training_workload(*arguments))
        return workloads[-1]

    monkeypatch.setattr(netfold.sim.workload.workload_keys, "training_workload", make)
    return workloads
