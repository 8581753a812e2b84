"""Compiled code is kept for exactly the sources that it depends on."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netfold.homomorphic.kernels.cache import imported_by
from tests import ROOT

WITH_KERNELS = (
    "netfold.homomorphic.codecs.signs.majority",
    "netfold.sim.engine.loop.loop",
    "netfold.switch.programs.atp",
    "netfold.sim.workload.normals",
)


def read(module: str) -> ast.Module | None:
    """The syntax tree of a module of netfold; None if there is no such module."""
    own = ROOT.joinpath(*module.split("."))
    for path in (own.with_suffix(".py"), own / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text("utf-8"))
    return None


def closure(module: str) -> set[str]:
    """What Python's own parser finds that a module imports, directly or not."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        tree = read(name) if name.startswith("netfold.") else None
        if name in found or tree is None:
            continue
        found.add(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
    return found


@pytest.mark.parametrize("module", WITH_KERNELS)
def test_all_that_a_module_imports_counts(module: str) -> None:
    assert imported_by(module) == closure(module)


def test_only_what_depends_on_an_edit_is_compiled_again(tmp_path: Path) -> None:
    """In a copy, an edit of `merge.py` moves the folder of the engine's loop, and not that of a codec."""
    for name in ("netfold", "homomorphic", "sim", "switch", "topologies"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    before = folders(tmp_path)
    with (tmp_path / "homomorphic" / "merge.py").open("a") as source:
        source.write("# an edit\n")
    after = folders(tmp_path)

    moved = {name for name, folder in after.items() if before[name] != folder}
    assert "netfold.homomorphic.codecs.signs.majority" not in moved
    assert "netfold.sim.engine.loop.loop" in moved


def folders(root: Path) -> dict[str, str]:
    """The folder of each module in a copy of netfold."""
    code = (
        "from netfold.homomorphic.kernels.cache import folder_of\n"
        f"for name in {WITH_KERNELS}: print(name, folder_of(name).name)"
    )
    environment = {"PYTHONPATH": str(root), "NETFOLD_CACHE": str(root / "cache")}
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, check=True, capture_output=True, text=True
    ).stdout
    return dict(line.split() for line in printed.splitlines())


UNKEPT = """
from netfold.homomorphic.kernels.keyed import mix, mix_plain
from netfold.homomorphic.kernels.functions import exps
import numpy as np
print(int(mix(1, 2, 3)) == mix_plain(1, 2, 3), exps(np.zeros(2)).tolist())
"""


@pytest.mark.parametrize("where", ["/proc/nowhere", ""], ids=["unwritable", "no home"])
def test_where_nothing_can_be_kept_kernels_compile_all_the_same(where: str) -> None:
    """It is said once, with what to do."""
    no_home = (
        ""
        if where
        else "from pathlib import Path\ndef home():\n    raise RuntimeError('no home')\nPath.home = home\n"
    )
    names = ("NETFOLD_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", no_home + UNKEPT],
        env=environment | {"PYTHONPATH": str(ROOT)} | ({"NETFOLD_CACHE": where} if where else {}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "True [1.0, 1.0]\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("compiled kernels cannot be kept: ")
    assert line.endswith("Set NETFOLD_CACHE to a folder that can be written")
