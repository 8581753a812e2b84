"""Levels of processors, and what is done with results of another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llvmlite import binding

from netfold.errors import DataError
from netfold.kernels import processor
from netfold.kernels.processor import Instructions, host_isa, pinned_isa, variables
from netfold.sim.report.compare import compare
from netfold.sim.results.folder import write_run
from netfold.sim.run.checkpoint import Checkpoints
from netfold.sim.studies.sweep_points import points_of
from netfold.sim.studies.sweep_workers import work
from tests.sim.results.builders import RING, STARTED_AT, run_data
from tests.sim.run.test_checkpoint import RESUME, TEXT, Stop, run, stopped_after, write
from tests.sim.studies.sweep_scene import VERSIONS, scenario

V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
V4 = (*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
NATIVE = Instructions("x86-64-v4", False)
Levels = Callable[[str, tuple[str, ...]], str]


@pytest.fixture
def level(monkeypatch: pytest.MonkeyPatch) -> Iterator[Levels]:
    """What another machine with some features would be called."""

    def found(machine: str, features: tuple[str, ...]) -> str:
        monkeypatch.setattr("platform.machine", lambda: machine)
        monkeypatch.setattr(binding, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
        monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "neoverse-v2")
        host_isa.cache_clear()
        return host_isa()

    yield found
    host_isa.cache_clear()


def test_levels(level: Levels) -> None:
    assert level("x86_64", V4) == "x86-64-v4"
    assert pinned_isa() == "x86-64-v3"
    assert level("AMD64", V3) == "x86-64-v3"
    assert pinned_isa() == "x86-64-v3"
    assert variables()["ATEN_CPU_CAPABILITY"] == "avx2"


@pytest.mark.parametrize(
    ("machine", "name"), [("x86_64", "x86-64"), ("aarch64", "aarch64-neoverse-v2")], ids=["old", "arm"]
)
def test_other_processors_are_recorded_and_not_pinned(level: Levels, machine: str, name: str) -> None:
    assert level(machine, V3[:-1]) == name
    assert variables() == {}
    processor.pin()
    assert processor.instructions() == Instructions(name, False)
    assert processor.instructions().note == (
        f"not reproducible on other processors: computed with what this one has ({name})"
    )


@pytest.fixture
def two_runs(tmp_path: Path) -> Callable[[dict[str, Any]], list[Path]]:
    """Two runs, and what `run.json` of the second says besides; None takes a key out."""

    def written(second: dict[str, Any]) -> list[Path]:
        paths = [
            write_run(tmp_path, run_data(RING, started_at=STARTED_AT.replace(hour=hour))) for hour in (1, 2)
        ]
        for path, changes in zip(paths, ({"isa": "x86-64-v3", "pinned": True}, second), strict=True):
            file = path / "run.json"
            content = json.loads(file.read_text()) | changes
            file.write_text(json.dumps({name: one for name, one in content.items() if one is not None}))
        return paths

    return written


def test_runs_of_other_processors_are_not_compared(two_runs: Callable[[dict[str, Any]], list[Path]]) -> None:
    paths = two_runs(NATIVE._asdict())

    with pytest.raises(DataError) as refused:
        compare(paths)
    assert str(refused.value) == (
        "cannot compare quick/2026-11-21T02-12-51-seed7, computed with x86-64-v4, with "
        "quick/2026-11-21T01-12-51-seed7, computed with x86-64-v3\n"
        "  their results differ by the processor: run both on one processor, and without --native"
    )


def test_a_run_that_is_not_pinned_is_compared_with_a_note(
    two_runs: Callable[[dict[str, Any]], list[Path]],
) -> None:
    paths = two_runs({"isa": "x86-64-v3", "pinned": False})

    assert compare(paths).notes == (
        "quick/2026-11-21T02-12-51-seed7: not reproducible on other processors: "
        "computed with what this one has (x86-64-v3)",
    )


def test_a_run_does_not_go_on_with_other_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write(tmp_path, TEXT), tmp_path / "out"
    with pytest.raises(Stop), stopped_after(1):
        run(path, out, Checkpoints(1))
    own = processor.instructions()
    monkeypatch.setattr("netfold.sim.run.checkpoint.instructions", lambda: NATIVE)

    with pytest.raises(DataError) as refused:
        run(path, out, RESUME)
    assert f"was written with isa {own.isa} (now x86-64-v4)" in str(refused.value)


def test_a_point_of_another_processor_is_another_point() -> None:
    found = {
        points_of(scenario(), replace(VERSIONS, isa=isa))[0].digest for isa in ("x86-64-v3", "aarch64-x")
    }

    assert len(found) == 2


def test_a_worker_whose_pytorch_is_not_pinned_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    (point, *_) = points_of(scenario(), VERSIONS)
    assert point.task is not None
    monkeypatch.setattr("netfold.sim.studies.sweep_workers.own_versions", lambda: VERSIONS)
    monkeypatch.setattr("netfold.sim.studies.sweep_workers.instructions", lambda: NATIVE)

    assert work(point.task).error.startswith(
        "not reproducible on other processors: PyTorch has computed before in the worker on "
    )
