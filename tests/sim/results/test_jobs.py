"""Several jobs of one variant in summary, table, report and comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from netfold.sim.errors import InvariantError
from netfold.sim.report.compare import compare
from netfold.sim.report.html import build_report
from netfold.sim.report.table import results_table
from netfold.sim.results import VariantFacts, summarize, write_run
from tests.sim.results.builders import LOSSLESS, RING, Fake, links, records, run_data
from tests.sim.results.builders import rounds as fake_rounds
from tests.sim.results.builders import summary as fake_summary

FIRST, SECOND = replace(RING, name="two/first"), replace(LOSSLESS, name="two/second")
NETWORK = [replace(link, variant="two") for link in links(RING)]
INSIDE = replace(NETWORK[0], link="s0->s0", source="s0", target="s0", busy_ps=30_000_000)
WARNING = "peeling can fail"


def facts(fake: Fake, **changes: Any) -> VariantFacts:
    return replace(VariantFacts(fake.workers, variant="two", duration_ps=120_000_000), **changes)


def summary(**changes: Any) -> dict[str, Any]:
    """Two jobs on one network; changes are those of the second's facts."""
    return summarize(
        {FIRST.name: facts(FIRST, passes=46, results=2), SECOND.name: facts(SECOND, **changes)},
        records(FIRST, SECOND, links=[*NETWORK, INSIDE]),
    )


def run_folder(folder: Path, **changes: Any) -> Path:
    data = run_data(FIRST, SECOND, summary=summary(**changes), links=[*NETWORK, INSIDE])
    return write_run(folder, data)


def report_of(folder: Path) -> str:
    return build_report(folder).read_text("utf-8")


def table(found: dict[str, Any]) -> str:
    console = Console(width=140)
    with console.capture() as captured:
        console.print(results_table({"scenario": "quick", "seed": 7, **found}))
    return captured.get()


def test_every_job_is_an_entry_with_the_links_of_its_variant() -> None:
    found = summary()["variants"]

    assert [entry["name"] for entry in found] == ["two/first", "two/second"]
    assert [entry["metrics"]["packet_hops"] for entry in found] == [31, 31]
    assert [entry["metrics"]["loopback_busy"] for entry in found] == [0.25, 0.25]


def test_passes_are_those_of_a_program() -> None:
    first, second = (entry["metrics"] for entry in summary()["variants"])

    assert (first["passes"], first["passes_per_result"]) == (46, 23.0)
    assert (second["passes"], second["passes_per_result"]) == (None, None)


def test_links_of_no_variant_are_a_contradiction() -> None:
    with pytest.raises(InvariantError) as caught:
        summarize({FIRST.name: facts(FIRST)}, records(FIRST, links=links(RING)))
    assert str(caught.value) == "records of unknown variants ['ring']; this run has ['two']"


def test_warnings_are_kept_and_shown(tmp_path: Path) -> None:
    found = summary(warnings=(WARNING,))

    assert found["warnings"] == [f"two/second: {WARNING}"]
    assert summary()["warnings"] == []
    assert f"note: two/second: {WARNING}" in table(found)
    report = report_of(run_folder(tmp_path, warnings=(WARNING,)))
    assert f"<b>Note:</b> two/second: {WARNING}" in report


def test_results_that_lack_workers_are_reported() -> None:
    found = summary()
    assert "workers held" not in table(found)

    metrics = found["variants"][1]["metrics"]
    metrics["workers_held_min"], metrics["workers_held_mean"] = 0, 1.5
    assert "two/second: workers held, 0 at least, 1.50 of 2 on average" in table(found)


def test_the_mean_of_workers_held_counts_elements() -> None:
    few, many = replace(fake_rounds(RING)[0], elements=1000), replace(fake_rounds(RING)[1], elements=3000)
    unequal = [replace(few, workers_held_min=0, workers_held_mean=1.0), many]

    metrics = fake_summary(RING, rounds=unequal)["variants"][0]["metrics"]

    assert (metrics["workers_held_min"], metrics["workers_held_mean"]) == (0, 1.75)


def test_a_report_shows_links_once_and_switches(tmp_path: Path) -> None:
    report = report_of(run_folder(tmp_path))

    assert report.count('<td class="name">s0-&gt;s0</td>') == 1
    assert "<h2>Switches</h2>" in report
    assert '<td>two/first</td><td class="n">46.0</td>' in report
    assert '<td>two/second</td><td class="n">46.0</td>' not in report


def test_jobs_are_compared_with_those_of_their_name(tmp_path: Path) -> None:
    rows = compare([run_folder(tmp_path), run_folder(tmp_path)]).rows

    assert [row.variant for row in rows] == ["two/first", "two/second"] * 2
    assert [row.against.rpartition(" ")[2] for row in rows] == ["two/first", "two/second"] * 2
