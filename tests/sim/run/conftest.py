"""What tests of runs that train share."""

from __future__ import annotations

from typing import Any

import pytest

import netfold.sim.workload.workload_keys
from netfold.sim.workload import Workload, training_workload
from tests.sim import local_training


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """The workloads that runs train, and those that are trained without a network."""
    workloads: list[Workload] = []

    def make(*arguments: Any) -> Workload:
        workloads.append(training_workload(*arguments))
        return workloads[-1]

    for module in (netfold.sim.workload.workload_keys, local_training):
        monkeypatch.setattr(module, "training_workload", make)
    return workloads
