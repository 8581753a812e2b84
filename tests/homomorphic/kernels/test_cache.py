"""Compiled code is kept for exactly the sources that it depends on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from netfold.homomorphic.kernels import cache
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


def test_only_what_depends_on_an_edit_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of `merge.py` moves the folder of the engine's loop, and not that of a codec."""
    before = {name: cache._hash.__wrapped__(name) for name in WITH_KERNELS}
    source = cache._source
    edit = {"netfold.homomorphic.merge": "# an edit\n"}
    monkeypatch.setattr(cache, "_source", lambda name: source(name) + edit.get(name, ""))
    moved = {name for name in WITH_KERNELS if before[name] != cache._hash.__wrapped__(name)}

    assert "netfold.homomorphic.codecs.signs.majority" not in moved
    assert "netfold.sim.engine.loop.loop" in moved


def test_without_a_home_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NETFOLD_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    cache._say_unkept.cache_clear()

    assert cache.folder_of(WITH_KERNELS[0]) is None
    assert capsys.readouterr().err.startswith("compiled kernels cannot be kept: no home; each process")


@pytest.mark.processes
def test_where_nothing_can_be_kept_kernels_compile_all_the_same() -> None:
    """It is said once, with what to do."""
    code = (
        "from netfold.homomorphic.kernels.keyed import mix, mix_plain\n"
        "from netfold.homomorphic.kernels.functions import exps\n"
        "import numpy as np\n"
        "print(int(mix(1, 2, 3)) == mix_plain(1, 2, 3), exps(np.zeros(2)).tolist())\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": str(ROOT), "NETFOLD_CACHE": "/proc/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "True [1.0, 1.0]\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("compiled kernels cannot be kept: ")
    assert line.endswith("Set NETFOLD_CACHE to a folder that can be written")
