"""Memory sizes in readable units."""

from __future__ import annotations

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def binary_size(size_bytes: int) -> str:
    """A size in KiB, MiB, GiB or TiB with three digits, or in whole bytes: "4.28 MiB", "954 B"."""
    for factor, unit in _UNITS:
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{size_bytes} B"
