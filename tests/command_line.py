"""netfold's command line, in the process of the tests."""

from __future__ import annotations

from collections.abc import Mapping

from typer.testing import CliRunner, Result

from netfold.commands.main import app


def run_command(*words: object, env: Mapping[str, str] | None = None) -> Result:
    """What a command prints, and the status that it exits with; `words` are those behind `netfold`."""
    return CliRunner().invoke(app, [str(word) for word in words], env=env, prog_name="netfold")
