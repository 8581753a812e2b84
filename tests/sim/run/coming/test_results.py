"""What a run folder, its report and a comparison say of jobs that come and go."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from netfold.sim.report.compare import compare
from netfold.sim.report.html import build_report
from netfold.sim.report.table import results_table
from netfold.sim.results import load
from netfold.sim.run.outcome import Outcome
from netfold.sim.run.run import run_scenario
from tests.sim.run.coming.scene import written

JOBS = """\
jobs:
  - {name: early, workers: 3}
  - {name: late, workers: 3, count: 2, arrivals: {kind: fixed, at: [1us, 2us]}, fallback: {kind: ring}}
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("coming")
    return run_scenario(written(folder, JOBS), (), None, folder / "runs", lambda *_: None)


def shown(table: object) -> str:
    console = Console(file=StringIO(), width=220)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_folder_has_every_job_and_all_together(outcome: Outcome) -> None:
    run = load(outcome.run_dir or Path())
    early, first, second = run.summary["variants"]
    (together,) = run.summary["jobs"]

    assert [one["name"] for one in (early, first, second)] == [
        "coming/early",
        "coming/late-1",
        "coming/late-2",
    ]
    assert early["stay"] == {
        "admission": "fifo",
        "admitted_us": 0.0,
        "end_us": early["metrics"]["completion_time_us"],
        "hosts": ["h0", "h1", "h2"],
        "fallback": False,
    }
    assert first["metrics"]["waiting_us"] == pytest.approx(early["stay"]["end_us"] - 1)
    assert second["stay"]["admitted_us"] == first["stay"]["end_us"]
    assert together["makespan_us"] == second["stay"]["end_us"]
    assert (together["jobs"], together["finished"], together["waited"]) == (3, 3, 2)
    assert first["setup"]["collective"]["kind"] == "in_network"  # not its fallback
    assert "fallback" not in first["setup"]


def test_the_report_has_a_time_line_and_a_table_of_jobs(outcome: Outcome) -> None:
    assert outcome.run_dir is not None
    page = build_report(outcome.run_dir).read_text("utf-8")
    figure = (outcome.run_dir / "figures" / "jobs.svg").read_text("utf-8")

    assert "<h2>Jobs</h2>" in page
    for words in ("early", "late-1", "late-2", "waits", "runs", "no two jobs overlap"):
        assert words in figure


def test_the_terminal_and_a_comparison_have_a_line_for_all_jobs(outcome: Outcome) -> None:
    assert outcome.run_dir is not None
    line = "jobs of coming: 3 of 3 done in "
    comparison = compare([outcome.run_dir])

    assert line in shown(results_table(outcome.as_dict()))
    assert line in shown(comparison.table())
    assert "slowdown" in shown(comparison.table())
    assert comparison.as_dict()["jobs"][0]["finished"] == 3


def test_other_variants_have_none_of_this(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.write_text(path.read_text().replace("admission: fifo\n", ""))
    found = run_scenario(path, (), None, tmp_path / "runs", lambda *_: None)
    assert found.run_dir is not None
    summary = json.loads((found.run_dir / "summary.json").read_text())

    assert "jobs" not in summary
    assert not {"stay", "slowdown"} & {*summary["variants"][0], *summary["variants"][0]["metrics"]}
    figures = {path.name for path in build_report(found.run_dir).with_name("figures").iterdir()}
    assert "timeline.svg" in figures
    assert "jobs.svg" not in figures
    assert "jobs" not in compare([found.run_dir]).as_dict()


def test_jobs_that_wait_for_one_that_is_stuck_are_stuck_too(tmp_path: Path) -> None:
    """The link goes down for good; the second job never gets a host."""
    text = 'faults: [{kind: link_down, links: ["h0->s0"], at: 1us}]\n'
    text += "jobs: [{name: a, workers: 4}, {name: b, workers: 4}]\n"
    found = run_scenario(written(tmp_path, text), (), None, tmp_path / "runs", lambda *_: None)
    first, second = found.summary["variants"]

    assert (first["verdict"], second["verdict"]) == ("stuck", "stuck")
    never = "it never got hosts and slots: other jobs are stuck, or failed and keep theirs"
    assert second["checks"][0]["detail"] == never
    assert second["stay"]["hosts"] == []
    assert found.summary["jobs"][0]["finished"] == 0
    assert load(found.run_dir or Path()).summary["verdict"] == "stuck"
