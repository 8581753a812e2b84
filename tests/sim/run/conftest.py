"""What tests of runs that train share."""

from __future__ import annotations

from typing import Any

import pytest

from netfold.sim.workload.workload import Workload
from netfold.sim.workload.workload_keys import Training


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """The workloads that runs train."""
    workloads: list[Workload] = []

    make_one = Training.workload

    def make(*arguments: Any) -> Workload:
        workloads.append(make_one(*arguments))
        return workloads[-1]

    monkeypatch.setattr(Training, "workload", make)
    return workloads
