"""What answers at once imports nothing that takes long."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import ROOT

OWN_MODEL = "17-bring-your-own-model"
SCENARIOS = sorted(str(path) for path in (ROOT / "scenarios").rglob("*.yaml"))
HEAVY = (
    "numba",
    "torch",
    "polars",
    "matplotlib",
    "pandas",
    "simpy",
    "rich",
)  # a tenth of a second or more each
HEAVIER = (*HEAVY, "numpy", "networkx", "ruamel.yaml")  # of help
COMMANDS = [
    [],
    ["run"],
    ["sweep"],
    ["validate"],
    ["compare"],
    ["report"],
    ["schema"],
    ["topology"],
    ["topology", "list"],
    ["topology", "show"],
    ["topology", "measure"],
    ["topology", "export"],
    ["data"],
    ["data", "list"],
    ["data", "fetch"],
    ["models"],
    ["models", "list"],
    ["models", "show"],
    ["models", "measure"],
    ["capture"],
    ["codecs"],
    ["codecs", "matrix"],
    ["codecs", "study"],
    ["switch"],
    ["calibrate"],
    ["switch", "profiles"],
    ["switch", "fit"],
]
PROGRAM = """
import sys, netfold.sim.commands.main
statuses = []
for words in {commands!r}:
    sys.argv = ["netfold", *words]
    try:
        netfold.sim.commands.main.main()
        statuses.append(0)
    except SystemExit as stop:
        statuses.append(stop.code)
print(statuses, [name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


def loaded_by(commands: list[list[str]], heavy: tuple[str, ...]) -> tuple[str, str]:
    """What a process prints that runs commands one after the other, and the last line of its errors."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(commands=commands, heavy=heavy)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr.splitlines()[-1]


def test_validate_of_every_shipped_scenario() -> None:
    out, last = loaded_by([["validate", *(one for one in SCENARIOS if OWN_MODEL not in one)]], HEAVY)

    assert out.count(": fine, variants: ") == len(SCENARIOS) - 1 > 5
    assert last == "[0] []"


def test_validate_of_a_model_of_ones_own_runs_it() -> None:
    (scenario,) = (one for one in SCENARIOS if OWN_MODEL in one)
    out, last = loaded_by([["validate", scenario]], ("torch",))

    assert ": fine, variants: dense, switchml, top, bird-shared" in out
    assert last == "[0] ['torch']"


def test_help_of_every_command() -> None:
    out, last = loaded_by([[*words, "--help"] for words in COMMANDS], HEAVIER)

    assert out.count("Usage: netfold") == len(COMMANDS)
    assert last == f"{[0] * len(COMMANDS)} []"


def test_the_list_of_commands_is_whole() -> None:
    import typer.main

    import netfold.sim.commands.main

    def walk(group: object, words: list[str]) -> list[list[str]]:
        below = getattr(group, "commands", {})
        return [words, *(found for name, one in below.items() for found in walk(one, [*words, name]))]

    assert sorted(COMMANDS) == sorted(walk(typer.main.get_command(netfold.sim.commands.main.app), []))


@pytest.mark.parametrize(
    "words", [["vlidate"], ["validate", "--st", "a=1", "x"], ["validate", "none.yaml"], ["run", "none.yaml"]]
)
def test_mistakes_in_typing(words: list[str]) -> None:
    assert loaded_by([words], HEAVY)[1] == "[2] []"
