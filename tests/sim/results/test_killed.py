"""A run that is killed at any point leaves nothing that looks finished."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out_dir = tmp_path_factory.mktemp("runs")
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.results.killed", str(out_dir)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_file_operation_was_hit(attempts: list[dict[str, Any]]) -> None:
    # Ten files, a figure and the page are two operations each, the folders and the rename are more.
    assert attempts[-1]["number"] > 24


def test_no_visible_folder_is_half_written(attempts: list[dict[str, Any]]) -> None:
    assert [attempt for attempt in attempts if attempt["unreadable"]] == []


def test_no_report_is_half_written(attempts: list[dict[str, Any]]) -> None:
    assert [attempt for attempt in attempts if attempt["half"]] == []


def test_latest_always_leads_to_a_finished_run(attempts: list[dict[str, Any]]) -> None:
    assert all(attempt["latest_is_readable"] for attempt in attempts)


def test_runs_appear_only_at_the_rename(attempts: list[dict[str, Any]]) -> None:
    visible = [attempt["visible"] for attempt in attempts]
    first_late = next(index for index, count in enumerate(visible) if count > 1)

    assert visible[:first_late] == [1] * first_late
    assert visible[first_late:] == list(range(2, 2 + len(visible) - first_late))
    assert attempts[first_late]["after"]


def test_what_a_killed_run_left_is_removed_by_the_next(attempts: list[dict[str, Any]]) -> None:
    assert all(attempt["hidden"] <= 1 for attempt in attempts)
    assert attempts[-1]["hidden"] == 0
