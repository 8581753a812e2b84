"""netfold's command line in the process of the tests, and processes of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from netfold.commands.main import app
from tests import ROOT

LONGEST_S = 900.0  # of a process: none that works takes as long
# SIGINT is ignored where tests run as a job in the background; a person's terminal does not.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from netfold.__main__ import main; main()"
)


def run_command(*words: object, env: Mapping[str, str] | None = None) -> Result:
    """What a command prints, and the status that it exits with; `words` are those behind `netfold`."""
    return CliRunner().invoke(app, [str(word) for word in words], env=env, prog_name="netfold")


def run_python(
    *words: object, cwd: Path | None = None, check: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    """What a process prints that can import netfold and its tests; `words` are those behind `python`."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=check,
        timeout=LONGEST_S,
    )
