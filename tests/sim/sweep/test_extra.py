"""What a sweep says where Dask is not installed."""

from __future__ import annotations

import sys

import pytest

from netfold.sim.errors import NetfoldError
from netfold.sim.sweep.cluster import Cluster, connected
from netfold.sim.sweep.task import own_versions


def test_dask_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(NetfoldError, match=r"pip install 'netfold\[dask\]'"),
        connected(Cluster("tcp://127.0.0.1:1"), own_versions()),
    ):
        pass
