"""Runs side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from netfold.sim.errors import DataError
from netfold.sim.report.compare import compare
from netfold.sim.results import write_run
from tests.sim.results.builders import LOSSLESS, RING, SCENARIO, Fake, run_data

SLOWER = replace(RING, messages=(("values", 228, 4000),))  # 256 µs of aggregation instead of 128 µs


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(*fakes: Fake, **changes: Any) -> Path:
        return write_run(tmp_path, run_data(*fakes, **changes))

    return write


def test_variants_are_compared_by_name(write: Callable[..., Path]) -> None:
    first, second = write(RING, LOSSLESS), write(SLOWER, LOSSLESS)
    found = compare([first, second])

    assert found.baseline == "quick/2026-11-21T19-12-51-seed7"
    assert [(row.run[-1], row.variant, row.ratios["aggregation_elements_per_s"]) for row in found.rows] == [
        ("7", "ring", 1.0),
        ("7", "lossless", 1.0),
        ("2", "ring", 0.5),
        ("2", "lossless", 1.0),
    ]
    assert found.rows[2].against == "quick/2026-11-21T19-12-51-seed7 ring"
    assert found.rows[2].ratios["aggregation_time_us"] == 2.0
    assert found.notes == ()


def test_another_run_can_be_the_baseline(write: Callable[..., Path]) -> None:
    first, second = write(RING), write(SLOWER)

    assert [row.ratios["aggregation_time_us"] for row in compare([first, second], second).rows] == [0.5, 1.0]
    assert [row.run[-1] for row in compare([first], baseline=second).rows] == ["2", "7"]


def test_the_baseline_may_be_the_number_in_the_table(write: Callable[..., Path]) -> None:
    first, second = write(RING), write(SLOWER)

    assert compare([first, second], Path("2")) == compare([first, second], second)


@pytest.mark.parametrize("number", ["0", "3"])
def test_a_number_that_no_run_has(write: Callable[..., Path], number: str) -> None:
    with pytest.raises(DataError) as caught:
        compare([write(RING), write(SLOWER)], Path(number))

    assert str(caught.value) == (
        f"--baseline {number}: there is no run of this number\n  give 1 to 2, or a run folder"
    )


def test_what_makes_runs_less_comparable_is_said(write: Callable[..., Path]) -> None:
    first = write(RING)
    second = write(
        *(replace(LOSSLESS, verdict="fail"), replace(RING, name="other"), SLOWER),
        scenario_text=b"name: other",
        seed=8,
        sets=("seed=8",),
    )
    name = "quick/2026-11-21T19-12-51-seed8"

    def digest(text: bytes) -> str:
        return hashlib.sha256(text).hexdigest()[:12]

    assert compare([first, second]).notes == (
        f"{name}: seed 8, the baseline has 7",
        f"{name}: scenario file with sha256 {digest(b'name: other')}, the baseline has {digest(SCENARIO)}",
        f"{name}: --set seed=8, the baseline has nothing",
        f"{name}: the baseline has no variants 'lossless', 'other', compared with its own baseline",
        f"{name}: a check failed, do not rely on its numbers",
    )


def summary_with(*digests: str, **more: Any) -> dict[str, Any]:
    """A summary of the ring, and of files that it was run with."""
    named = [
        {"path": f"{name}.npy", "kept": True, "bytes": 4, "sha256": digest * 32}
        for name, digest in zip("gh", digests, strict=False)
    ]
    return {**run_data(RING).summary, "inputs": named, **more}


def test_files_that_hold_something_else_are_said(write: Callable[..., Path]) -> None:
    first = write(RING, summary=summary_with("ab", "cd"))
    second, third = write(RING, summary=summary_with("ab", "ef")), write(RING, summary=summary_with("ab"))
    name = "quick/2026-11-21T19-12-51-seed7"

    assert compare([first, second, third]).notes == (
        f"{name}-2: h.npy with sha256 efefefefefef, the baseline has cdcdcdcdcdcd",
    )


def test_a_run_that_is_not_finished_is_said_so(write: Callable[..., Path]) -> None:
    first, second = write(RING), write(RING, summary=summary_with(unfinished=["b", "c"]))
    note = "quick/2026-11-21T19-12-51-seed7-2: unfinished, 'b', 'c' did not run to the end"

    assert compare([first, second]).notes == (note,)
    assert compare([second, first]).notes == (note,)


def test_another_scenario_is_said_in_one_note(write: Callable[..., Path]) -> None:
    first = write(RING)
    second = write(LOSSLESS, replace(RING, name="other"), scenario_name="other", seed=8)
    name = "other/2026-11-21T19-12-51-seed8"

    assert compare([first, second]).notes == (
        f"{name}: another scenario; variants that the baseline lacks are compared with its own "
        "baseline, if that has an equal workload",
    )


def cells(console_text: str, row: int) -> list[str]:
    """What one row of the table says."""
    lines = [line for line in console_text.splitlines() if line.startswith("│")]
    return [cell.strip() for cell in lines[row].strip("│").split("│")]


def test_ratios_are_of_the_numbers_beside_them(write: Callable[..., Path]) -> None:
    """A worker's link carries (4000 + 100 B) × 2 buckets = 8.20 kB a step, of 2 or of 4 workers.

    Aggregation lasts 128 and 256 µs for 2000 elements. Ready after 40 of 60 µs, the iterations are 168 and
    296 µs.
    """
    found = compare([write(RING), write(replace(SLOWER, workers=4))])
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(found.table())

    assert cells(capture.get(), 0) == [
        *("1", "1", "ring", "128 µs", "–", "15.6 M", "1.00 ×", "168 µs", "1.00 ×", "8.20 kB"),
        *("1.00 ×", "yes", "pass"),
    ]
    assert cells(capture.get(), 1) == [
        *("2", "2", "ring", "256 µs", "–", "7.81 M", "0.500 ×", "296 µs", "1.76 ×", "8.20 kB"),
        *("1.00 ×", "yes", "pass"),
    ]
    assert found.rows[1].ratios == {
        "aggregation_elements_per_s": 0.5,
        "aggregation_time_us": 2.0,
        "iteration_time_us": 296 / 168,
        "wire_bytes_up_per_worker": 1.0,
        "wire_bytes_up": 2.0,  # of all workers
        "wire_bytes_down": 2.0,
        "compression_ratio": 1.0,
    }
    assert found.notes == (
        "quick/2026-11-21T19-12-51-seed7-2: other numbers of workers: 'ring' has 4, 'ring' of the baseline 2",
    )


def test_nothing_to_compare() -> None:
    with pytest.raises(DataError) as caught:
        compare([])

    assert str(caught.value) == "no run to compare\n  give one or more run folders, such as runs/latest"
