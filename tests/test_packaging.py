"""What is installed: one package, all of it, under a name that clashes with nobody's."""

from __future__ import annotations

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
from tests import ROOT
from tests.examples import nightly

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
