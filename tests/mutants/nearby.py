"""Which tests are the tests of a source file: those next to the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import ROOT
from tests.mutants.compiled import module_of

UNREACHED = 99  # steps of import
IMPORT = re.compile(
    r"^\s*from\s+((?:netfold|tests)[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|^\s*import\s+((?:netfold|tests)[\w.]*)",
    re.M,
)
OF_KINDS = ("codecs", "kinds", "models", "programs")  # folders whose files are found


def near_tests(file: str, root: Path = ROOT) -> list[str]:
    """The files of tests that stand next to a source file, the closest first.

    Tests mirror the package. Near are the tests that import the file and stand in the mirrored folder,
    beneath it, or in a folder above it, up to the one of the room (`tests/switch`, `tests/sim/engine`): laws
    of a whole room stand there. Without any, those in the folder above the room count. Tests that are named
    after the file or one of its folders are near in any case. First comes the file's own name, then the
    closest folder, in it a folder's name, and then what imports the file most directly.
    """
    parts = Path(file.removeprefix("netfold/")).with_suffix("").parts
    top = root / "tests"
    room = top.joinpath(*parts[:-1][: 2 if parts[0] == "sim" else 1])
    ranked: dict[Path, tuple[int, ...]] = {}
    for height, folder in enumerate(_upward(top.joinpath(*parts[:-1]), top)):
        is_in_room = folder.is_relative_to(room) and folder != top
        counts_importers = is_in_room or not ranked
        for path in folder.rglob("test_*.py") if is_in_room else folder.glob("test_*.py"):
            distance = _distance(path, module_of(file), root)
            name = path.stem.removeprefix("test_")
            is_named = name in parts[1:]
            if path not in ranked and (is_named or (counts_importers and distance is not None)):
                depth = len(path.relative_to(folder).parts)
                steps = UNREACHED if distance is None else distance
                ranked[path] = (name != parts[-1], height, depth, not is_named, steps)
    return [str(path.relative_to(root)) for path in sorted(ranked, key=lambda path: (ranked[path], path))]


def _upward(folder: Path, top: Path) -> Iterator[Path]:
    yield folder
    while folder != top:
        folder = folder.parent
        yield folder


def _distance(test: Path, module: str, root: Path) -> int | None:
    """In how many steps a test imports a module; None if it does not."""
    seen = {".".join(test.relative_to(root).with_suffix("").parts)}
    layer, distance = set(seen), 0
    while layer:
        if module in layer:
            return distance
        layer = {name for each in layer for name in _imports(each, root)} - seen
        seen |= layer
        distance += 1
    return None


@cache
def _imports(module: str, root: Path) -> frozenset[str]:
    path = _path(module, root)
    if path is None:
        return frozenset()
    text = path.read_text(encoding="utf-8")
    names = set(re.findall(r'modules_of\("([\w.]+)"\)', text))
    if path.name == "__init__.py" and path.parent.name in OF_KINDS:
        names |= {f"{module}.{file.stem}" for file in path.parent.glob("[a-z]*.py")}
    for base, listed, plain in IMPORT.findall(text):
        names.add(base or plain)
        names |= {f"{base}.{name}" for name in re.findall(r"\w+", listed) if base}
    return frozenset(name for name in names if _path(name, root) is not None)


@cache
def _path(module: str, root: Path) -> Path | None:
    stem = root.joinpath(*module.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)
