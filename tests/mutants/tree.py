"""The copy of the sources that has all faults in it, each behind its switch."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import names_in_compiled, rewritten

PACKAGES = ("homomorphic", "switch", "topologies", "sim")
FOLDERS = ("netfold", *PACKAGES, "tests", "scenarios", "docs")
FILES = ("pyproject.toml", "constraints.txt", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")
COMPILED = ("homomorphic", "switch", "sim/engine", "sim/checks")


def sources(mutants: Sequence[Mutant], root: Path = ROOT) -> dict[str, str]:
    """Files with faults, rewritten; the number of a fault is its place in the list, from 1."""
    frozen: set[str] = set()
    for folder in COMPILED:
        for path in sorted((root / folder).rglob("*.py")):
            frozen |= names_in_compiled(path.read_text(encoding="utf-8"))
    by_file: defaultdict[str, list[tuple[int, Mutant]]] = defaultdict(list)
    for number, mutant in enumerate(mutants, start=1):
        by_file[mutant.file].append((number, mutant))
    return {
        file: rewritten((root / file).read_text(encoding="utf-8"), numbered, frozen)
        for file, numbered in by_file.items()
    }


def make_copy(target: Path, mutants: Sequence[Mutant], root: Path = ROOT) -> None:
    """Copy what tests need, with all faults in it and switched off."""
    texts = sources(mutants, root)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "runs")
    for folder in FOLDERS:
        if (root / folder).is_dir():
            shutil.copytree(root / folder, target / folder, symlinks=True, ignore=ignored)
    for file in FILES:
        if (root / file).is_file():
            shutil.copy(root / file, target / file)
    for file, text in texts.items():
        (target / file).write_text(text, encoding="utf-8")
    shutil.copy(Path(__file__).with_name("netfold_switch.py"), target / "netfold_switch.py")
