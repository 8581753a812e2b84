"""The files that a user's file imports from beside it: a model is made of all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def imported(path: Path, folder: Path | None = None) -> set[Path]:
    """The modules and packages beside a Python file that its import statements name, and what these import.

    What a program imports by name at run time, and what it reads, is not found. A file that is no Python
    imports nothing. netfold and packages that are installed do not count.

    Parameters
    ----------
    folder
        Where modules are looked for: of a module in a package, the folder that has the package.
    """
    folder = folder or path.parent
    found: set[Path] = set()
    queue = [path]
    while queue:
        for one in _named(queue.pop(), folder):
            if one != path and one not in found and not _is_installed(one, path, folder):
                found.add(one)
                queue.append(one)
    return found


def _is_installed(file: Path, path: Path, folder: Path) -> bool:
    """Whether a file is netfold's, or of another package where packages are installed."""
    if not file.is_relative_to(folder):  # by a relative import
        return False
    package, importing = (one.relative_to(folder).parts[0] for one in (file, path))
    return package == "netfold" or (
        package != importing and folder.name in ("site-packages", "dist-packages")
    )


def _named(file: Path, folder: Path) -> Iterator[Path]:
    """The files of the modules that a file's import statements name; it is run from `folder`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(folder, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else folder
            yield from _files(base, node.module or "")
            for alias in node.names:  # which may be modules
                yield from _files(base, ".".join(filter(None, (node.module, alias.name))))


def _files(base: Path, name: str) -> Iterator[Path]:
    """The files of a module and of the packages that it is in, as far as they are below `base`."""
    parts = name.split(".") if name else []
    for count in range(1, len(parts) + 1):
        place = base.joinpath(*parts[:count])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield file
