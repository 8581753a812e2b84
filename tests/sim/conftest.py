"""Fixtures of tests of runs and reports."""

from __future__ import annotations

import pytest


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures: drawing takes most of the time."""
    monkeypatch.setattr("netfold.sim.report.html.figures", lambda run: {})
