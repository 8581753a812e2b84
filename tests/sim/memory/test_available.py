"""How much memory there is: the least of what the system and every control group leave."""

from __future__ import annotations

from pathlib import Path

import pytest

import netfold.sim.memory.available
from netfold.sim.memory.available import available_bytes, size_text


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of our own: 1,000 KiB are available, no control groups."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n")
    monkeypatch.setattr(netfold.sim.memory.available, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(netfold.sim.memory.available, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(netfold.sim.memory.available, "_CGROUP_ROOT", tmp_path / "groups")
    return tmp_path


def group(system: Path, name: str, **files: int | str) -> None:
    folder = system / "groups" / name
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in files.items():
        (folder / key.replace("__", ".")).write_text(f"{value}\n")


def test_without_control_groups_it_is_what_the_system_has(system: Path) -> None:
    assert available_bytes() == 1000 * 1024


@pytest.mark.parametrize(
    ("own", "name", "files", "left"),
    [
        ("0::/a/b", "a", {"memory__max": 9000, "memory__current": 4000}, 5000),
        # pages of files can be dropped
        (
            *("0::/a", "a"),
            {"memory__max": 9000, "memory__current": 4000, "memory__stat": "anon 7\ninactive_file 1500"},
            6500,
        ),
        ("0::/a", "a", {"memory__max": 10, "memory__current": 4000}, 0),
        (  # the first version of control groups
            *("5:cpu,cpuacct:/x\n7:memory:/job", "memory/job"),
            {"memory__limit_in_bytes": 300, "memory__usage_in_bytes": 100},
            200,
        ),
    ],
)
def test_a_control_group_may_leave_less(
    system: Path, own: str, name: str, files: dict[str, int | str], left: int
) -> None:
    (system / "cgroup").write_text(f"{own}\n")
    group(system, "a/b", memory__max="max", memory__current=5)
    group(system, name, **files)

    assert available_bytes() == left


def test_sizes_for_people() -> None:
    assert [size_text(size) for size in (1, 5 << 20, 1 << 30, 3 << 29)] == [
        "1 MiB",
        "5 MiB",
        "1.0 GiB",
        "1.5 GiB",
    ]
