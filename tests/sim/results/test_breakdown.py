"""Where the time of aggregation goes, against sums by hand and by brute force."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.checks.journal import covered_ps
from netfold.sim.results.breakdown import breakdown
from netfold.sim.results.records import PhaseRecord, RoundRecord
from tests.examples import examples
from tests.sim.report.test_report import svg_text
from tests.sim.results.builders import LOSSLESS, RING, reported
from tests.sim.results.builders import rounds as fake_rounds

Times = tuple[int, int, int, int]  # a worker begins to encode, to send, to decode, and is done


def round_of(bucket: int, workers: list[Times]) -> tuple[RoundRecord, list[PhaseRecord]]:
    """A round and its phases."""
    phases = [
        PhaseRecord("v", 0, bucket, worker, phase, "values", start_ps, end_ps, 10 * (phase == "network"))
        for worker, times in enumerate(workers)
        for phase, start_ps, end_ps in zip(("encode", "network", "decode"), times, times[1:], strict=False)
    ]
    start_ps, end_ps = min(times[0] for times in workers), max(times[-1] for times in workers)
    return replace(fake_rounds(RING)[0], bucket=bucket, start_ps=start_ps, end_ps=end_ps), phases


def found(*buckets: list[Times]) -> dict[str, float]:
    """Picoseconds of each phase over some rounds; that they and their shares add up is looked at here."""
    rounds, phases = zip(*(round_of(bucket, workers) for bucket, workers in enumerate(buckets)), strict=True)
    covered = covered_ps([(record.start_ps, record.end_ps) for record in rounds])
    rows = breakdown(rounds, [phase for own in phases for phase in own], covered)
    assert rows is not None
    times_ps = {row["phase"]: row["time_us"] * 1e6 * len(rounds) for row in rows}
    assert sum(times_ps.values()) == pytest.approx(covered)
    assert [row["share"] for row in rows] == pytest.approx([time / covered for time in times_ps.values()])
    assert next(row["payload_bytes"] for row in rows if row["phase"] == "network") == 10
    return {phase: round(time) for phase, time in times_ps.items()}


def test_the_last_worker_measures_a_round() -> None:
    assert found([(0, 5, 20, 30), (2, 8, 30, 40)]) == {
        **{"encode": 6, "network": 22, "decode": 10},
        "rank skew": 2,
    }


times = st.lists(st.integers(0, 60), min_size=4, max_size=4).map(lambda drawn: tuple(sorted(drawn)))


@given(st.lists(st.lists(times, min_size=1, max_size=3), min_size=1, max_size=4))
@examples(100)
def test_every_instant_counts_once(buckets: list[list[Times]]) -> None:
    """Instant by instant: the first round under way has it, and gives it to what its last worker does."""
    spans = [(min(own[0] for own in one), max(own[-1] for own in one)) for one in buckets]
    if not covered_ps(spans):
        return
    wanted = {"encode": 0, "network": 0, "decode": 0, "rank skew": 0}
    first = sorted(range(len(buckets)), key=lambda bucket: (spans[bucket], bucket))
    for instant in range(60):
        bucket = next((one for one in first if spans[one][0] <= instant < spans[one][1]), None)
        if bucket is not None:
            last = max(buckets[bucket], key=lambda own: (own[-1], own[0]))
            bounds = zip(("encode", "network", "decode"), last, last[1:], strict=False)
            does = [phase for phase, start, end in bounds if start <= instant < end]
            wanted[does[0] if does else "rank skew"] += 1

    assert found(*buckets) == wanted


def test_nothing_and_time_of_nothing_have_no_share() -> None:
    record, phases = round_of(0, [(5, 5, 5, 5)])
    rows = breakdown([record], phases, 0)

    assert breakdown([], [], 0) is None
    assert rows is not None
    assert {row["share"] for row in rows} == {None}


def test_the_figure_and_the_report_show_it(tmp_path: Path) -> None:
    folder = reported(tmp_path, RING, LOSSLESS)
    texts = svg_text((folder / "figures" / "breakdown.svg").read_bytes())
    report = " ".join((folder / "report.html").read_text("utf-8").split())

    assert {"Where the aggregation time of a step goes", "ring", "lossless", "128 µs", "48.0 µs"} <= set(
        texts
    )
    legend = ("encode", "network: values", "network: index", "decode", "rank skew")
    assert set(legend) <= set(texts)
    assert (
        '<tr><td>ring</td><td>encode</td><td></td><td class="n">3.00 µs</td> <td class="n">2.34 %</td>'
        '<td class="n"></td></tr> <tr><td></td><td>network</td><td>values</td><td class="n">116 µs</td> '
        '<td class="n">90.6 %</td><td class="n">8.00 kB</td></tr>'
    ) in report
