"""How hot code is compiled, said once.

Two things keep calls cheap, measured on the packet engine (`make bench`, W1, packet-hops/s). Kernels are
compiled without Numba's runtime: they may not allocate, and in return tables are passed without reference
counting (0.8 M with it, 8 M without). Helpers are compiled into their callers: a call that is left passes
every table field by field (8 M before, 30 M after).

Compiled code is cached on disk. Numba looks only at the file a function stands in, not at what it calls, so
after an edit or an upgrade it could run stale code; the cache folder is therefore named by a hash of all
kernel sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_KEPT = 4  # cache folders of earlier sources that are left alone


def _sources_hash() -> str:
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # other code, other folder
    for folder in ("homomorphic", "switch", "sim/engine"):
        for source in sorted((root / folder).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _use_cache_folder() -> None:
    base = Path(os.environ.get("NUMBA_CACHE_DIR") or _user_cache() / "kernels")
    folder = base / f"netfold-{_sources_hash()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(base.glob("netfold-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return  # Numba then finds a place of its own
    for stale in others[_KEPT + 1 :]:
        shutil.rmtree(stale, ignore_errors=True)
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]


def _user_cache() -> Path:
    if "NETFOLD_CACHE" in os.environ:
        return Path(os.environ["NETFOLD_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netfold"


_use_cache_folder()

_OPTIONS: dict[str, Any] = {"nopython": True, "cache": True, "nogil": True, "_nrt": False}

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function that never allocates."""
    return cast(F, numba.jit(**_OPTIONS)(function))


def inlined(function: F) -> F:
    """Compile a function that never allocates into its callers."""
    return cast(F, numba.jit(forceinline=True, **_OPTIONS)(function))
