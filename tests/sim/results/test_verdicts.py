"""Verdicts, notes of codecs and injected faults: in the summary, the terminal, the report, a comparison."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from netfold.sim.report import words
from netfold.sim.report.compare import compare
from netfold.sim.report.table import results_table
from netfold.sim.results import load, verdicts, write_run
from netfold.sim.results.records import FaultRecord
from tests.sim.report.test_report import svg_text
from tests.sim.results.builders import LOSSLESS, RING, Fake, reported, run_data, summary

SKETCH = replace(LOSSLESS, name="sketch", estimates=60)  # of each of two steps


@pytest.mark.parametrize(
    ("some", "worst"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "approximate: 3 entries"), "approximate: 3 entries"),
        (("approximate: 3 entries", "approximate: 40 entries"), "approximate: 43 entries"),
        (("approximate: 3 entries", "stuck"), "stuck"),
        (("stuck", "fail", "approximate: 3 entries"), "fail"),
        (("pass", "unheard of"), "fail"),
        ((), "fail"),
    ],
)
def test_the_worst_of_some(some: tuple[str, ...], worst: str) -> None:
    assert verdicts.worst(some) == worst


@pytest.mark.parametrize(
    ("checks", "estimates", "verdict"),
    [
        (("pass", "pass"), 0, "pass"),
        (("pass", "pass"), 7, "approximate: 7 entries"),
        (("pass", "fail"), 7, "fail"),
        (("stuck", "pass"), 7, "stuck"),
        ((), 7, "fail"),
    ],
)
def test_estimates_change_only_what_would_pass(checks: tuple[str, ...], estimates: int, verdict: str) -> None:
    assert verdicts.of_checks(checks, estimates) == verdict


def test_a_summary_counts_entries_of_all_steps() -> None:
    found = summary(RING, SKETCH, replace(SKETCH, name="other", estimates=1))

    assert found["verdict"] == "approximate: 122 entries"
    assert [variant["verdict"] for variant in found["variants"]] == [
        *("pass", "approximate: 120 entries", "approximate: 2 entries"),
    ]
    assert found["variants"][1]["metrics"]["approximate_entries"] == 120
    assert summary(RING, replace(SKETCH, verdict="fail"))["verdict"] == "fail"


def test_the_report_says_so(tmp_path: Path) -> None:
    folder = reported(tmp_path, RING, SKETCH)
    report = " ".join((folder / "report.html").read_text("utf-8").split())

    assert '<div class="verdict approximate"> <strong class="approximate">Approximate: 120 entries' in report
    assert "All 4 checks hold, but that many elements of the sums are estimates" in report
    assert '<td class="approximate">approximate: 120 entries</td>' in report
    assert "sketch, 48.0 µs, 2.67 × baseline (ring) (approximate: 120 entries).</b></p>" in report
    texts = svg_text((folder / "figures" / "throughput.svg").read_bytes())
    assert "41.7 M/s · 2.67 × · approximate" in texts
    assert "a check failed" not in texts


def lines(width: int, *fakes: Fake, **changes: Any) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(results_table({"scenario": "quick", "seed": 7, **summary(*fakes, **changes)}))
    return capture.get().splitlines()


def test_the_terminal_says_so() -> None:
    assert lines(140, SKETCH)[4].endswith("│ yes       │ approximate: 120 entries │")


def test_the_terminal_shows_codec_events_and_time_shares() -> None:
    """Not where one part takes all the time."""
    whole = replace(RING, encode_us=0, decode_us=0, workers=1)
    assert not any(line.startswith("time of") for line in lines(100, whole))
    chosen = replace(RING, choices=("packed", "dense"))

    assert lines(100, chosen)[-2:] == [
        "time of ring: encode 2 %, values 91 %, decode 6 %, rank skew 1 %",
        "ring: packed in 2 rounds, dense in 2 rounds",
    ]


def test_a_comparison_says_so(tmp_path: Path) -> None:
    comparison = compare([write_run(tmp_path, run_data(SKETCH))])

    assert [row.verdict for row in comparison.rows] == ["approximate: 120 entries"]
    (note,) = comparison.notes
    assert note.endswith(": 'sketch' approximate, some elements are estimates without an error bound")


def test_choices_are_counted_and_their_texts_kept(tmp_path: Path, plain: None) -> None:
    chosen = replace(RING, choices=("packed", "dense"))
    folder = reported(tmp_path, chosen)
    report = " ".join((folder / "report.html").read_text("utf-8").split())

    assert summary(chosen)["variants"][0]["metrics"]["codec_choice"] == {"packed": 2, "dense": 2}
    assert (
        '<tr><td>ring</td><td>choice</td><td>dense: it is &lt;best&gt;</td><td class="n">2</td> '
        "<td>step 0, bucket 1</td></tr>"
    ) in report
    assert "Codec notes" not in (reported(tmp_path, RING) / "report.html").read_text("utf-8")


def test_notes_of_every_variant_are_shown_in_part(tmp_path: Path, plain: None) -> None:
    many = replace(RING, buckets=9, choices=tuple("abcdefghi"))
    folder = reported(tmp_path, many, replace(many, name="other"))
    report = (folder / "report.html").read_text("utf-8")

    for name in ("ring", "other"):
        assert report.count(f"<tr><td>{name}</td><td>choice</td>") == 6
    assert "at most 6 rows per variant" in report


FAULTS = [
    FaultRecord("ring", 0, "loss", "h*->s0", "", 17, "packets", 0),
    FaultRecord("ring", 1, "switch_reboot", "s<0>", "for <5ms>", 1, "times", 1_500_000_000),
    FaultRecord("ring", 2, "worker_crash", "worker 2", "", 0, "times", None),
]


def test_injected_faults_are_in_the_table_the_summary_and_the_report(tmp_path: Path, plain: None) -> None:
    folder = reported(tmp_path, RING, summary=summary(RING, faults=FAULTS), faults=FAULTS)
    run, report = load(folder), (folder / "report.html").read_text("utf-8")

    assert run.faults.rows() == [astuple(one) for one in FAULTS]
    assert run.faults.schema["first_ps"] == pl.Int64
    assert run.summary["injected"] == run.faults.to_dicts()
    assert "<h2>Injected faults</h2>" in report
    assert "<td>h*-&gt;s0</td>\n<td>17 packets</td>" in report
    assert "<td>s&lt;0&gt;</td>\n<td>at 1.50 ms, for &lt;5ms&gt;</td>" in report
    assert "Injected" not in (reported(tmp_path) / "report.html").read_text("utf-8")


def test_injected_faults_are_on_the_terminal() -> None:
    assert lines(100, RING, faults=FAULTS)[-3:] == [
        "injected into ring: loss on h*->s0, 17 packets",
        "injected into ring: switch_reboot on s<0>, at 1.50 ms, for <5ms>",
        "injected into ring: worker_crash on worker 2, never, the run ended before",
    ]
    assert words.injected({"counted": "times", "count": 1, "first_ps": 0, "extent": ""}) == "at 0 ns"
    assert words.injected({"counted": "packets", "count": 0, "first_ps": None}) == "0 packets"
