"""Versions of installed packages."""

from __future__ import annotations

import importlib.metadata
from functools import cache

_PACKAGES = (
    "numpy",
    "numba",
    "torch",
    "networkx",
    "simpy",
    "polars",
    "matplotlib",
    "topohub",  # its networks are in scenarios by name
)  # they may move a number or a byte


def package_versions() -> dict[str, str]:
    """Versions of the packages that results stand on."""
    return {name: package_version(name) for name in _PACKAGES}


@cache  # reading them takes longer than a small run's simulation
def package_version(name: str) -> str:
    """Version of an installed distribution, "unknown" if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
