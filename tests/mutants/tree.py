"""The sources, their faults, and the copy that has drawn faults in it, each behind its switch."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from tests import ROOT
from tests.mutants.compiled import MAY_BE_COMPILED, Definition, Package
from tests.mutants.edits import Edit, edit_by_hand, switched
from tests.mutants.fault import BY_HAND, Fault
from tests.mutants.operators import generated

FOLDERS = ("netfold", "tests", "scenarios", "docs")
FILES = ("pyproject.toml", "constraints.txt", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")
HOW_TO_COMPILE = ("kernels/compiled.py", "kernels/dispatchers.py", "kernels/compile_progress.py")
ALL_SWITCHES = re.compile(r"_is_on(?:_compiled)?\((\d+)\)")
SWITCHES = re.compile(r"_is_on_compiled\((\d+)\)")
PLACES = re.compile(r'File "([^"]+\.py)", line (\d+)|at (\S+\.py) \((\d+)\)')  # in an error of Numba
FAILED_TO_COMPILE = re.compile(r"TypingError|LoweringError|UnsupportedError|NumbaError|UnliteralizedError")


class Sources:
    """The files of the package."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root.resolve()
        self._texts: dict[str, str] = {}

    @cached_property
    def files(self) -> list[str]:
        """Paths in the repository, in order."""
        return [str(path.relative_to(self.root)) for path in sorted((self.root / "netfold").rglob("*.py"))]

    @cached_property
    def frozen(self) -> set[Definition]:
        """What compiled code has frozen."""
        return Package({file: self.text(file) for file in self.files}).frozen()

    def text(self, file: str) -> str:
        """The source of a file."""
        if file not in self._texts:
            self._texts[file] = (self.root / file).read_text(encoding="utf-8")
        return self._texts[file]

    def faults(self, files: Iterable[str] | None = None) -> list[Fault]:
        """All faults that are generated, of some files or of all."""
        chosen = self.files if files is None else files
        return [fault for file in chosen for fault, _ in self._edits(file, ast.parse(self.text(file)))]

    def has_compiled_code(self, file: str) -> bool:
        """Whether a file has compiled functions, or says how functions are compiled."""
        return MAY_BE_COMPILED.search(self.text(file)) is not None or file.endswith(HOW_TO_COMPILE)

    def rewritten(self, file: str, numbered: Sequence[tuple[int, Fault]]) -> str:
        """A file with faults."""
        tree = ast.parse(self.text(file))
        of_tree = (
            dict(self._edits(file, tree)) if any(fault.operator != BY_HAND for _, fault in numbered) else {}
        )
        edits = [
            (number, self._edit(fault, tree) if fault.operator == BY_HAND else of_tree[fault])
            for number, fault in numbered
        ]
        return switched(tree, edits)

    def _edits(self, file: str, tree: ast.Module) -> list[tuple[Fault, Edit]]:
        return generated(file, self.text(file), tree, self.frozen)

    def _edit(self, fault: Fault, tree: ast.Module) -> Edit:
        if fault.operator == BY_HAND:
            return edit_by_hand(fault, self.text(fault.file), tree, self.frozen)
        return dict(self._edits(fault.file, tree))[fault]


class Copy:
    """A copy of what tests need, with faults in it, switched off; a fault's number is its place, from 1."""

    def __init__(self, folder: Path, faults: Sequence[Fault], sources: Sources) -> None:
        self.folder, self.faults, self._sources = folder, faults, sources
        self.dropped: set[int] = set()  # numbers of faults that do not compile
        self._by_file: defaultdict[str, list[tuple[int, Fault]]] = defaultdict(list)
        for number, fault in enumerate(faults, start=1):
            self._by_file[fault.file].append((number, fault))

    def is_made(self) -> bool:
        """Whether the folder has these faults in it.

        Raises
        ------
        FileExistsError
            It has others.
        """
        mark = self.folder / "faults.json"
        if mark.exists() and mark.read_text(encoding="utf-8") != self._mark():
            raise FileExistsError(f"{self.folder} has other faults in it: name another folder, or remove it")
        present = set()
        for file in self._by_file if mark.exists() else ():
            text = (self.folder / file).read_text(encoding="utf-8")
            present |= {int(number) for number in ALL_SWITCHES.findall(text)}
        self.dropped = set(range(1, len(self.faults) + 1)) - present if mark.exists() else set()
        return mark.exists()

    def make(self) -> None:
        """Copy the files, and put in the faults."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "runs")
        for name in FOLDERS:
            source = self._sources.root / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=ignored)
        for name in FILES:
            if (self._sources.root / name).is_file():
                shutil.copy(self._sources.root / name, self.folder / name)
        for file in self._by_file:
            self._write(file)
        shutil.copy(Path(__file__).with_name("netfold_switch.py"), self.folder / "netfold_switch.py")
        (self.folder / "faults.json").write_text(self._mark(), encoding="utf-8")

    def drop_what_does_not_compile(self, output: str) -> list[Fault]:
        """Take out the faults at the places that an error of the compiler names; they are returned."""
        if not FAILED_TO_COMPILE.search(output):
            return []
        numbers: set[int] = set()
        for match in PLACES.finditer(output):
            path = Path(self.folder, match[1] or match[3])
            numbers |= self._switches_at(path, int(match[2] or match[4])) - self.dropped
        self.dropped |= numbers
        for file in {self.faults[number - 1].file for number in numbers}:
            self._write(file)
        return [self.faults[number - 1] for number in sorted(numbers)]

    def _mark(self) -> str:
        return json.dumps(self.faults, ensure_ascii=False)

    def _switches_at(self, path: Path, line: int) -> set[int]:
        if not path.is_file() or not path.resolve().is_relative_to(self.folder):
            return set()
        lines = path.read_text(encoding="utf-8").splitlines()
        return {int(number) for number in SWITCHES.findall(lines[line - 1])} if line <= len(lines) else set()

    def _write(self, file: str) -> None:
        numbered = [pair for pair in self._by_file[file] if pair[0] not in self.dropped]
        text = self._sources.rewritten(file, numbered) if numbered else self._sources.text(file)
        (self.folder / file).write_text(text, encoding="utf-8")
