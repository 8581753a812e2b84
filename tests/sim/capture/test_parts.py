"""What ranks write becomes one folder, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netfold
from netfold.sim.capture import parts as capture_parts
from netfold.sim.capture.layout import read_trace
from netfold.sim.capture.parts import Parts, joined, require_space
from netfold.sim.capture.settings import Settings, checked
from netfold.sim.errors import DataError, RunError
from tests.sim.capture.folders import TENSORS, arrays_of, rank_step, safetensors_bytes


def part_of(folder: Path, rank: int, steps: tuple[int, ...], bad: tuple[int, ...] = ()) -> dict[str, Any]:
    """What a rank gives, and its files in a folder; steps in `bad` had numbers that are not finite."""
    listed: list[dict[str, Any]] = []
    for step in steps:
        if step in bad:
            listed.append({"step": step, "times": None})
            continue
        content = safetensors_bytes(arrays_of(step, rank))
        one = rank_step(step, rank, content)
        (folder / one["file"]).write_bytes(content)
        listed.append({"step": step, "times": one})
    return {
        "model": "Tiny",
        "world_size": 2,
        "tensors": TENSORS,
        "buckets": [[0, 1], [2]],
        "steps": listed,
        "made_by": {},
        "notes": [],
        "wanted_steps": 3,
    }


@pytest.fixture
def begun(tmp_path: Path) -> Parts:
    parts = Parts(tmp_path / "made", "abc")
    for rank in range(2):
        parts.begin(rank, {"world_size": 2, "steps": 3})
    return parts


@pytest.mark.parametrize("last", ["fails", "finishes"])
def test_the_last_rank_removes_what_failed_if_no_launcher_will(tmp_path: Path, last: str) -> None:
    parts = Parts(tmp_path / "made", "abc", is_watched=False)
    for rank in range(2):
        parts.begin(rank, {"world_size": 2, "steps": 3})
    given = part_of(parts.path, 1, (1, 2, 3))
    parts.fail(0, "no memory")
    assert parts.path.is_dir()  # the other rank still writes
    if last == "fails":
        parts.fail(1, "its peer is gone")
    else:
        parts.finish(1, given)
    assert not list(tmp_path.iterdir())


def test_the_last_rank_joins(begun: Parts) -> None:
    begun.finish(1, part_of(begun.path, 1, (1, 2, 3)))
    assert not begun.wanted.exists()
    begun.finish(0, part_of(begun.path, 0, (1, 2, 3)))

    trace = read_trace(begun.wanted)
    assert [step.step for step in trace.steps] == [1, 2, 3]
    assert trace.notes == []
    assert [path.name for path in begun.wanted.parent.iterdir()] == ["made"]
    assert len(list(begun.wanted.iterdir())) == 7


def test_steps_that_not_all_have_are_left_out(begun: Parts) -> None:
    """With their files; both reasons are told."""
    begun.finish(0, part_of(begun.path, 0, (1, 2, 3), bad=(2,)))
    begun.finish(1, part_of(begun.path, 1, (1, 2)))

    trace = read_trace(begun.wanted)
    assert [step.step for step in trace.steps] == [1]
    assert len(trace.notes) == 2
    assert trace.notes[0].startswith("1 steps whose gradients were not finite")
    assert trace.notes[1] == "3 steps were wanted, all ranks recorded 2"
    assert {path.name for path in begun.wanted.iterdir()} == {
        "trace.json",
        "s1r0.safetensors",
        "s1r1.safetensors",
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tensors": TENSORS[:2]}, "rank 1 has other tensors"),
        ({"buckets": [[0, 1, 2]]}, "rank 1 has other buckets"),
        ({"steps": []}, "no step that all ranks recorded"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(begun: Parts, change: dict[str, Any], told: str) -> None:
    parts = [part_of(begun.path, rank, (1,)) for rank in range(2)]

    with pytest.raises(RunError, match=told):
        joined([parts[0], {**parts[1], **change}])
    begun.finish(0, parts[0])
    with pytest.raises(RunError, match=told):
        begun.finish(1, {**parts[1], **change})
    assert list(begun.wanted.parent.iterdir()) == []


def test_what_became_of_each_rank_is_told(begun: Parts) -> None:
    """One had all, one died after a step; what they wrote is removed."""
    begun.finish(0, part_of(begun.path, 0, (1, 2, 3)))
    for step in (1, 2, 3):
        (begun.path / f"s{step}r0.safetensors").rename(begun.path / f"step-{step}-rank-0000.safetensors")
    (begun.path / "step-000001-rank-0001.safetensors").write_bytes(b"")

    assert begun.report() == (
        "rank 0: recorded 3 steps",
        "rank 1: ended after 1 of 3 recorded steps, without a word",
    )
    assert list(begun.wanted.parent.iterdir()) == []


def test_a_failure_and_a_rank_that_never_began_are_told(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "made", "abc")
    parts.begin(1, {"world_size": 2, "steps": 3})
    parts.fail(1, "the training ended with ValueError: a bad sample")

    assert parts.report() == (
        "rank 0: never wrapped a model in DistributedDataParallel",
        "rank 1: the training ended with ValueError: a bad sample",
    )
    assert Parts(tmp_path / "other", "abc").report() == ()
    parts = Parts(tmp_path / "both", "abc")
    for rank, text in enumerate(("no memory", "its peer is gone")):
        parts.begin(rank, {"world_size": 2, "steps": 3})
        parts.fail(rank, text)
    assert parts.report() == ("rank 0: no memory", "rank 1: its peer is gone")


def test_space_on_the_disk_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(capture_parts.shutil, "disk_usage", lambda _: Usage)
    require_space(tmp_path, 1000)
    with pytest.raises(DataError, match="takes up to 1,001 bytes, 1,000 are free"):
        require_space(tmp_path, 1001)


def test_settings_have_limits(tmp_path: Path) -> None:
    assert checked(tmp_path / "new", 100_000, 1) == Settings(str(tmp_path / "new"), 100_000, 1)
    for steps, skip in ((0, 1), (100_001, 1), (1, 0), (True, 1), (1.0, 1)):
        with pytest.raises(DataError, match="must be a whole number from 1"):
            checked(tmp_path / "new", steps, skip)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is there already"):
        checked(tmp_path, 1, 1)
    other, made = pytest.raises(DataError, match="Path cannot be recorded"), tmp_path / "made"
    with other as caught, netfold.capture(tmp_path, made):
        pass
    assert "DistributedDataParallel(model)" in caught.value.hint
