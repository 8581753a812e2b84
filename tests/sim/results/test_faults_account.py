"""What was injected: in the folder's table, its summary, the terminal and the report."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from rich.console import Console

from netfold.sim.report import words
from netfold.sim.report.table import results_table
from netfold.sim.results import load, write_run
from netfold.sim.results.records import FaultRecord
from tests.sim.results.builders import RING, reported, run_data, summary

FAULTS = [
    FaultRecord("ring", 0, "loss", "h*->s0", "", 17, "packets", 0),
    FaultRecord("ring", 1, "switch_reboot", "s<0>", "for <5ms>", 1, "times", 1_500_000_000),
    FaultRecord("ring", 2, "worker_crash", "worker 2", "", 0, "times", None),
]
SUMMARY = summary(RING, faults=FAULTS)


def test_the_table_reads_back_as_the_records_were(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, run_data(RING, summary=SUMMARY, faults=FAULTS)))

    assert run.faults.rows() == [
        ("ring", 0, "loss", "h*->s0", "", 17, "packets", 0),
        ("ring", 1, "switch_reboot", "s<0>", "for <5ms>", 1, "times", 1_500_000_000),
        ("ring", 2, "worker_crash", "worker 2", "", 0, "times", None),
    ]
    assert run.faults.schema["first_ps"] == pl.Int64
    assert run.summary["injected"] == run.faults.to_dicts()


def test_the_report_escapes_it(tmp_path: Path, plain: None) -> None:
    folder = reported(tmp_path, RING, summary=SUMMARY, faults=FAULTS)
    report = (folder / "report.html").read_text("utf-8")

    assert "<h2>Injected faults</h2>" in report
    assert "<td>h*-&gt;s0</td>\n<td>17 packets</td>" in report
    assert "<td>s&lt;0&gt;</td>\n<td>at 1.50 ms, for &lt;5ms&gt;</td>" in report


def test_without_faults_the_report_has_no_such_block(tmp_path: Path, plain: None) -> None:
    assert "Injected" not in (reported(tmp_path) / "report.html").read_text("utf-8")


def test_the_terminal_has_a_line_for_each() -> None:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(results_table({"scenario": "quick", "seed": 7, **SUMMARY}))

    assert capture.get().splitlines()[-3:] == [
        "injected into ring: loss on h*->s0, 17 packets",
        "injected into ring: switch_reboot on s<0>, at 1.50 ms, for <5ms>",
        "injected into ring: worker_crash on worker 2, never, the run ended before",
    ]


def test_a_fault_at_the_start() -> None:
    assert words.injected({"counted": "times", "count": 1, "first_ps": 0, "extent": ""}) == "at 0 ns"
    assert words.injected({"counted": "packets", "count": 0, "first_ps": None}) == "0 packets"
