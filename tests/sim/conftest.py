"""Every simulation here may ask its engine for what is outstanding and for what is left in slots."""

from __future__ import annotations

import pytest

from tests.sim.observed import install


@pytest.fixture(autouse=True)
def _observed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
