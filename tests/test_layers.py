"""What holds for the source as a whole: who may import whom, how long a file may be, nothing left undone."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest

from tests import ROOT

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
