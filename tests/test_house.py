"""The house: layers of imports, what a package holds, hints, pinned tools."""

from __future__ import annotations

import itertools
import logging
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pytest

from netfold.sim.processor import variables
from netfold.spelling import did_you_mean, names_hint
from tests import ROOT
from tests.examples import nightly

PACKAGES = ("homomorphic", "switch", "topologies", "sim", "netfold/torch")
TEXTS = {".py", ".md", ".yaml", ".toml", ".html", ".json", ".txt"}
LINES_MAX = 800
UNDONE = ("NotImplemented" + "Error", "TO" + "DO", "FIX" + "ME")  # not to find themselves here


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def texts() -> list[Path]:
    """Everything of the project that a person reads."""
    folders = (*PACKAGES, "scenarios", "tests", "docs")
    inside = itertools.chain.from_iterable((ROOT / folder).rglob("*") for folder in folders)
    return sorted(path for path in (*ROOT.iterdir(), *inside) if path.is_file() and path.suffix in TEXTS)


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_imports_go_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    linter = pytest.importorskip("importlinter.cli", reason="comes with the extra `check`")
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))

    disabled = {name: isinstance(one, logging.Logger) and one.disabled for name, one in _loggers().items()}
    status = linter.lint_imports(config_filename="pyproject.toml", no_cache=True)
    for name, one in _loggers().items():  # the linter switches off all loggers there are
        if isinstance(one, logging.Logger):
            one.disabled = disabled.get(name, False)

    assert status == 0


def _loggers() -> dict[str, logging.Logger | logging.PlaceHolder]:
    return logging.root.manager.loggerDict


def test_files_are_not_long() -> None:
    assert len(sources()) > 50
    assert {str(path): len(lines(path)) for path in sources() if len(lines(path)) > LINES_MAX} == {}


def test_nothing_is_left_undone() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in texts()
        for number, line in enumerate(lines(path), 1)
        for word in UNDONE
        if word in line
    ]
    assert found == []


FOLDERS = ("homomorphic", "sim", "switch", "topologies")
TESTING = tuple(f"testing/{name}.py" for name in ("__init__", "cases", "law", "many", "steps", "team"))
OF_PACKAGE = ("__init__.py", "__main__.py", "py.typed", "spelling.py", *TESTING)


def wheel_of(project: Path, folder: Path) -> ZipFile:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="comes with the extra `test`")
    (path,) = builder.WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"])
    return ZipFile(path)


def test_the_wheel_has_every_file_once_below_netfold(tmp_path: Path) -> None:
    names = Counter(wheel_of(ROOT, tmp_path).namelist())
    folders = [*(ROOT / folder for folder in FOLDERS), ROOT / "netfold" / "torch"]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    expected = [path.relative_to(ROOT).as_posix() for path in found if path.parent.name != "__pycache__"]

    assert "sim/report/template.html" in expected
    assert max(names.values()) == 1
    assert {name for name in names if ".dist-info/" not in name} == {
        *(f"netfold/{name}" for name in OF_PACKAGE),
        *(f"netfold/{path.removeprefix('netfold/')}" for path in expected),
    }


@nightly
def test_the_source_distribution_gives_the_same_wheel(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.sdist", reason="comes with the extra `test`")
    (path,) = builder.SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (project,) = (one for one in tmp_path.iterdir() if one.is_dir())

    direct, indirect = wheel_of(ROOT, tmp_path / "direct"), wheel_of(project, tmp_path / "indirect")

    assert direct.namelist() == indirect.namelist()
    assert [name for name in direct.namelist() if direct.read(name) != indirect.read(name)] == []


def test_nothing_is_imported_by_the_bare_name_of_a_folder() -> None:
    bare = re.compile(rf"\s*(from|import) ({'|'.join(FOLDERS)})\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in (*FOLDERS, "netfold", "tests", "docs", "tools")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if bare.match(line)
    ]

    assert found == []


HEAVY = ("numpy", "numba", "torch", "polars", "pydantic", "simpy", "matplotlib", "networkx", "rich")
IMPORTS = f"""
import os, sys, netfold
print([name for name in {HEAVY} if name in sys.modules], {{*netfold.__all__}} <= {{*dir(netfold)}})
print(netfold.testing.check_codec.__name__)
before = {{*os.environ}}
import netfold.torch, numpy as np
netfold.fold("packed", np.ones((2, 100), np.float32))
print({{*os.environ}} - before & {{*{[*variables()]}}})
import netfold.sim.commands.main, netfold.sim.run.run
print([name for name in sys.modules if name.partition(".")[0] in {FOLDERS}])
"""


@pytest.mark.slow
@pytest.mark.processes
def test_imports() -> None:
    """`import netfold` loads nothing else, `testing` needs no import, the hook pins no instructions, and no
    module has the bare name of a folder.
    """
    free = {name: value for name, value in os.environ.items() if name not in variables()}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=ROOT, env=free, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["[] True", "check_codec", "set()", "[]"]


def test_hints() -> None:
    names = ("plain", "tofino2")

    assert did_you_mean("tofino3", names) == "did you mean 'tofino2'? "
    assert did_you_mean("xyz", names) == ""
    assert names_hint("tofino3", names) == "did you mean 'tofino2'? known: plain, tofino2"
    assert names_hint("xyz", names, "allowed") == "allowed: plain, tofino2"
    assert names_hint("tofino3", names, "programs", most=1) == "did you mean 'tofino2'? programs: plain"


def test_make_names_the_cpu_build_of_the_pinned_torch() -> None:
    pin = next(line for line in lines(ROOT / "constraints.txt") if line.startswith("torch=="))

    assert (
        f"install {pin} --index-url https://download.pytorch.org/whl/cpu" in (ROOT / "Makefile").read_text()
    )


def test_every_tool_that_judges_is_pinned() -> None:
    """Warnings are errors and formatting is a gate: another version may judge otherwise."""
    import tomllib

    from packaging.requirements import Requirement

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = {
        Requirement(line).name.lower(): Requirement(line)
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }

    assert all(str(pin.specifier).startswith("==") for pin in pins.values())
    named = [Requirement(text) for text in (*extras["test"], *extras["check"])]
    assert [one.name for one in named if one.name.lower() not in pins] == []
    for one in named:
        version = str(pins[one.name.lower()].specifier).removeprefix("==")
        assert one.specifier.contains(version), one
