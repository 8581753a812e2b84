"""Both engines: what is true of one is true of the other."""

from __future__ import annotations

from typing import cast

import pytest

from tests.sim.engine.small import Make, logged, reference


@pytest.fixture(scope="session", params=[logged, reference], ids=["compiled", "reference"])
def engine(request: pytest.FixtureRequest) -> Make:
    """Makes the compiled engine, with its log, or the plain-Python one."""
    return cast(Make, request.param)
