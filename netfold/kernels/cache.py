"""Where compiled code is kept on disk.

Numba checks only the file of a function, not the functions that it calls, so after an edit or an upgrade it
could run stale code. Therefore the code of a module is kept in a folder that is named by a hash of its source
and of all sources of netfold that it imports, directly or not. An edit compiles again what depends on it, and
nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[1]  # of the package netfold
_KEPT = 4  # folders of earlier sources of a module to keep
_IMPORT = re.compile(
    r"^\s*from\s+(netfold[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|^\s*import\s+(netfold[\w.]*)", re.M
)
_NAME = re.compile(r"\w+")


def folder_of(module: str) -> Path | None:
    """The folder for the code of a loaded module, made if need be; None if it cannot be written."""
    try:
        base = Path(os.environ.get("NUMBA_CACHE_DIR") or _user_cache() / "kernels")
        folder = base / f"{module}-{_hash(module)}"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _remove_stale(base, module)
        if os.access(folder, os.W_OK):  # Numba writes a file to try
            return folder
        _say_unkept(f"{base} cannot be written")
    except (OSError, RuntimeError) as error:  # a RuntimeError: there is no home
        _say_unkept(str(error))
    return None


@cache
def _say_unkept(why: str) -> None:
    print(
        f"compiled kernels cannot be kept: {why}; each process compiles its own, which takes a minute. "
        "Set NETFOLD_CACHE to a folder that can be written",
        file=sys.stderr,
    )


def _remove_stale(base: Path, module: str) -> None:
    own = sorted(base.glob(f"{module}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in own[_KEPT + 1 :]:
        shutil.rmtree(stale, ignore_errors=True)


def _user_cache() -> Path:
    if "NETFOLD_CACHE" in os.environ:
        return Path(os.environ["NETFOLD_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netfold"


@cache
def _hash(module: str) -> str:
    digest = hashlib.sha256(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # bounds checks are other code
    for name in sorted(imported_by(module)):
        digest.update(f"{name}\0{_source(name)}\0".encode())
    return digest.hexdigest()[:16]


def imported_by(module: str) -> set[str]:
    """A module and all modules of netfold that its source imports, directly or not.

    Of a package that is imported its own source counts, and that of the modules which that one imports.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found and _source(name):
            found.add(name)
            waiting += _imports(_source(name))
    return found


def _imports(source: str) -> list[str]:
    """Modules of netfold that a source may import: each name that it imports may be one."""
    found = []
    for base, names, plain in _IMPORT.findall(source):
        found.append(base or plain)
        found += [f"{base}.{name}" for name in _NAME.findall(names) if base]
    return found


@cache
def _source(name: str) -> str:
    """The source of a module; empty if there is no such module, or if it is not a file."""
    package, *rest = name.split(".")
    own = _ROOT.joinpath(*rest)
    loaded = getattr(sys.modules.get(name), "__file__", None)
    places = [own.with_suffix(".py"), own / "__init__.py"] if package == "netfold" and rest else []
    for path in [*places, *([Path(loaded)] if loaded else [])]:
        if path.is_file():
            return path.read_text("utf-8")
    return ""
