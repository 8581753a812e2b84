"""A run that is killed at any point leaves nothing that looks finished."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.examples import nightly

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("options", [[], pytest.param(["--before"], marks=nightly)])
def test_a_run_that_is_killed_at_any_file_operation(tmp_path: Path, options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.results.killed", str(tmp_path), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    attempts = [json.loads(line) for line in done.stdout.splitlines()]

    # Ten files, a figure and the page are two operations each, the folders and the rename are more.
    assert attempts[-1]["number"] > 24
    assert [one for one in attempts if one["unreadable"] or one["half"]] == []
    assert all(one["latest_is_readable"] for one in attempts)
    # Runs appear only at the rename.
    visible = [one["visible"] for one in attempts]
    first_late = next(index for index, count in enumerate(visible) if count > 1)
    assert visible[:first_late] == [1] * first_late
    assert visible[first_late:] == list(range(2, 2 + len(visible) - first_late))
    assert attempts[first_late]["after"]
    # What a killed run left is removed by the next.
    assert all(one["hidden"] <= 1 for one in attempts)
    assert attempts[-1]["hidden"] == 0
