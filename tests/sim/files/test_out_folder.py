"""A folder that cannot be written is refused before the run, and the check leaves no files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from netfold.sim.errors import DataError
from netfold.sim.files.out_folder import require_writable
from netfold.sim.run.run import run_scenario
from tests.sim.scenes import write


def refused(out_dir: Path) -> str:
    with pytest.raises(DataError) as caught:
        require_writable(out_dir, "tiny")
    return str(caught.value)


def test_folders_that_are_there_or_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    (tmp_path / "link").symlink_to("runs")

    for name in ("", "runs", "link", "new", "new/below"):
        require_writable(tmp_path / name, "tiny")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "runs", "tiny"]


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dead").symlink_to("nowhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tiny").touch()

    for out, blocking in {"file": "file", "file/x": "file", "dead": "dead", "runs": "runs/tiny"}.items():
        assert refused(tmp_path / out) == (
            f"no run folder can be made in {tmp_path / out}: {tmp_path / blocking} is not a folder\n"
            "  use --out DIR"
        )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc, where not even root can write")
def test_a_folder_in_which_nothing_can_be_made() -> None:
    for out in (Path("/proc"), Path("/proc/x/y")):
        assert refused(out) == f"no run folder can be made in {out}: /proc cannot be written\n  use --out DIR"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="to root nothing is read-only")
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    assert refused(tmp_path / "x") == (
        f"no run folder can be made in {tmp_path / 'x'}: {tmp_path} cannot be written\n  use --out DIR"
    )


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("x" * 256, "its name is too long"),
        ("a\0b", "it holds a null character"),
    ],
)
def test_a_name_that_the_file_system_does_not_take(tmp_path: Path, out: str, reason: str) -> None:
    """Before the run: nothing was said to begin."""
    assert reason in refused(tmp_path / out)
    with pytest.raises(DataError, match="no run folder can be made at"):
        run_scenario(write(tmp_path), (), None, tmp_path / out, lambda *_: pytest.fail("it runs"))


def test_the_longest_names_that_it_takes(tmp_path: Path) -> None:
    require_writable(tmp_path / ("x" * 255), "tiny")
    require_writable(tmp_path, "y" * 255)
