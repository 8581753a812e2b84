"""Memory available for a run, by the system and by its control groups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_GIB, _MIB = 1 << 30, 1 << 20


BASE_BYTES = 330 << 20  # of Python with a run's imports and compiled code
UPPER_BYTES = 24  # per element, and per element of each worker: more than any codec takes


class Footprint(NamedTuple):
    """Bytes per element: shared by all workers, and of each worker."""

    shared: float
    each: float

    def bytes(self, elements: int, workers: int) -> float:
        """Bytes for a whole gradient."""
        return elements * (self.shared + self.each * workers)


def available_bytes() -> int:
    """Bytes that this process can take now without swapping or being killed.

    This is the least of the system's available memory (`MemAvailable`: free memory, and caches that it can
    drop) and the rest of the limit of each control group of the process; the machine's whole memory if the
    system reports neither.
    """
    limits = [_system_bytes(), *_group_bytes()]
    return max(0, min(limits))


def _system_bytes() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_bytes() -> list[int]:
    """The rest of the limit of each control group, from the process's group up to the root."""
    left = []
    for folder, limit, used in _groups():
        try:
            text = (folder / limit).read_text().strip()
            if text != "max":
                reclaimable = _inactive_file_bytes(folder / "memory.stat")
                left.append(int(text) - int((folder / used).read_text()) + reclaimable)
        except (OSError, ValueError):
            continue
    return left


def _groups() -> list[tuple[Path, str, str]]:
    """Folders of the control groups, with the names of their files for the limit and the usage."""
    try:
        lines = [line.split(":", 2) for line in _CGROUP.read_text().splitlines()]
    except OSError:
        return []
    found = []
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if number == "0":
            root, names = _CGROUP_ROOT, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _CGROUP_ROOT / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = root / path.lstrip("/")
        found += [(one, *names) for one in (own, *own.parents) if one == root or root in one.parents]
    return found


def _inactive_file_bytes(statistics: Path) -> int:
    """Bytes of file pages that the system drops first when a group is at its limit."""
    try:
        for line in statistics.read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def size_text(size_bytes: float) -> str:
    """A size as text: "5.5 GiB", "120 MiB"."""
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{max(1, round(size_bytes / _MIB))} MiB"
