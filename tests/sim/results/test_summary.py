"""The numbers of a run, against sums done by hand."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.errors import InvariantError
from netfold.sim.checks.checks import covered_ps
from netfold.sim.plan.plan import Reference
from netfold.sim.plan.prices import Bill
from netfold.sim.report import words
from netfold.sim.report.compare import compare
from netfold.sim.report.html_report import build_report
from netfold.sim.results import summary as verdicts
from netfold.sim.results.breakdown import breakdown
from netfold.sim.results.folder import load, write_run
from netfold.sim.results.job_times import JobTimes, jain, overlapping, overview, spread
from netfold.sim.results.metrics import Measured, VariantFacts, bus_factor, metrics_of
from netfold.sim.results.records import CheckRecord, FaultRecord, PhaseRecord, RoundRecord
from netfold.sim.results.summary import summarize
from tests.examples import examples
from tests.sim.results.builders import (
    LOSSLESS,
    RING,
    US,
    Fake,
    links,
    page_of,
    records,
    reported,
    rounds,
    run_data,
    steps,
    summary,
    svg_text,
    terminal,
)


def part(phase: str, label: str, times_us: float, payload_bytes: float = 0.0) -> dict[str, Any]:
    """A row of the breakdown; times of the two rounds of a step that aggregates for 128 µs."""
    return {
        "phase": phase,
        "label": label,
        "time_us": times_us / 2,
        "share": times_us / 128,
        "payload_bytes": payload_bytes,
    }


def test_metrics_by_hand() -> None:
    variant = summary(RING)["variants"][0]

    # One step: 20 µs forward, 40 µs backward, then bucket 1 takes 3 + 100 + 5 µs. Bucket 0 was ready at
    # 20 + 20 µs, so aggregation lasts 168 − 40 = 128 µs for 2 × 1000 elements. Both buckets say 4000 bytes;
    # each of two workers puts 100 bytes of headers on them going up, 200 coming down.
    assert variant["metrics"] == {
        "steps": 2,
        "workers": 2,
        "elements": 2000,
        "aggregation_time_us": 128.0,
        "aggregation_elements_per_s": 2000 / 128e-6,
        "algbw_bytes_per_s": 4 * 2000 / 128e-6,
        "busbw_bytes_per_s": 4 * 2000 / 128e-6,  # 2(n − 1)/n of it, with 2 workers
        "bound_us": None,  # nothing is known of its network
        "schedule_bound_us": None,
        "of_bound": None,
        "of_schedule_bound": None,
        "iteration_time_us": 168.0,
        "compute_time_us": 60.0,  # of each worker
        "predicted_iteration_time_us": None,  # no rule of fusion weighs its costs
        "buckets": 2,
        # Worker 1 is 1 µs late and done last. Bucket 0 is under way from 40 to 148 µs, and bucket 1, ready
        # at 60 µs, counts from there to 168 µs.
        "breakdown": [
            part("encode", "", 44 - 41),
            part("network", "values", (144 - 44) + (164 - 148), 4000.0),
            part("decode", "", (148 - 144) + (168 - 164)),
            part("rank skew", "", 41 - 40),
        ],
        "payload_bytes_up": 8000,
        "wire_bytes_up": 16400,
        "wire_bytes_up_per_worker": 8200,
        "wire_bytes_down": 16800,
        "payload_bytes_down": 8080,
        "compression_ratio": 1.0,
        "bits_per_element_up": 32.0,
        "bits_per_element_down": 32.32,
        "kept_bytes_per_worker": 0,
        "uploads": 6,  # of 2 workers in 4 rounds; one skips bucket 1
        "skips": 2,
        "packets": 17,
        "packet_hops": 21,
        "links_used": None,
        "packets_lost": 5,
        "packets_dropped": 6,
        "packets_retransmitted": 9,
        "passes": None,
        "passes_per_result": None,
        "overflowed_words": 0,
        "loopback_busy": None,
        "since_last_rank_us": 127.0,  # worker 1 is a microsecond late
        "bit_exact": True,
        "checked_share": 1.0,
        "merges_verified": True,
        "max_abs_error": 0.5,
        "nmse": 0.25,
        "cosine": 0.5,
        "max_error_over_bound": 0.5,
        "density": 0.1005,
        "union_density": 0.3005,
        "fallback_messages": 2,
        "workers_held_min": 2,
        "workers_held_mean": 2.0,
        "decode_failures": 0,
        "forecast_misses": 0,
        "approximate_entries": 0,
        "infinite_entries": 0,
        "codec_choice": None,
        "loss_first": None,
        "loss": None,
        "test_metric": None,
        "test_score": None,
    }


def test_bounds_are_shares_of_the_time_if_every_step_has_them() -> None:
    known = VariantFacts(workers=2, bounds_ps=((32 * US, 64 * US), (64 * US, 128 * US)))
    metrics = metrics_of(Measured(known, steps(RING)))
    assert (metrics["bound_us"], metrics["schedule_bound_us"]) == (48.0, 96.0)
    assert (metrics["of_bound"], metrics["of_schedule_bound"]) == (48 / 128, 96 / 128)
    unknown = replace(known, bounds_ps=((32 * US, 64 * US), (0, 0)))
    assert metrics_of(Measured(unknown, steps(RING)))["of_bound"] is None


def test_rounds_of_updates_have_no_nmse_and_so_has_the_variant() -> None:
    """Marsit's few rounds in full precision say nothing of the others."""
    assert summary(replace(RING, nmse=(1e-15, None)))["variants"][0]["metrics"]["nmse"] is None


def test_loss_is_that_of_the_first_and_of_the_last_step() -> None:
    metrics = summary(replace(RING, losses=(0.7, 0.6)))["variants"][0]["metrics"]

    assert (metrics["loss_first"], metrics["loss"]) == (0.7, 0.6)


def test_the_last_test_counts() -> None:
    metrics = summary(replace(RING, steps=3, losses=(3, 2, 1), accuracies=(0.2, 0.0, None)))
    found = metrics["variants"][0]["metrics"]

    assert (found["test_metric"], found["test_score"]) == ("accuracy", 0.0)


AIMED = replace(RING, steps=4, accuracies=(0.3, None, 0.8, 0.9))
TO_TARGET = ("steps_to_target", "time_to_target_us", "bytes_to_target")


@pytest.mark.parametrize(
    ("target", "done"), [(0.2, 1), (0.3, 1), (0.31, 3), (0.8, 3), (0.81, 4), (0.9, 4), (0.91, None)]
)
def test_the_first_test_that_is_as_good_as_the_target_reaches_it(target: float, done: int | None) -> None:
    """A step takes 168 µs; a worker sends 2 · 4100 bytes of it and receives 2 · 4200."""
    found = summary(replace(AIMED, target=target))["variants"][0]["metrics"]
    taken = (done, done * 168.0, done * 2 * (4100 + 4200)) if done else (None, None, None)

    assert found["target"] == target
    assert tuple(found[name] for name in TO_TARGET) == taken


def test_less_perplexity_is_better_and_what_is_not_a_number_reaches_nothing() -> None:
    scores = (math.nan, math.inf, 90.0, 40.0)
    perplexity = replace(AIMED, metric="perplexity", accuracies=scores)
    found = [
        summary(replace(perplexity, target=target))["variants"][0]["metrics"]["steps_to_target"]
        for target in (100.0, 90.0, 89.0, 40.0, 39.0)
    ]

    assert found == [3, 3, 4, 4, None]
    worst = summary(replace(perplexity, accuracies=(90.0, None, None, math.inf)))["variants"][0]["metrics"]
    assert (worst["test_metric"], worst["test_score"]) == ("perplexity", None)


def test_what_is_counted_is_an_int_where_it_is_whole() -> None:
    metrics = summary(RING)["variants"][0]["metrics"]
    counted = ("elements", "payload_bytes_up", "wire_bytes_up", "wire_bytes_up_per_worker", "wire_bytes_down")

    assert {type(metrics[name]) for name in counted} == {int}
    uneven = [replace(record, wire_bytes_down=1) for record in rounds(RING)]
    uneven[0] = replace(uneven[0], wire_bytes_down=2)
    found = summary(RING, rounds=uneven)
    assert found["variants"][0]["metrics"]["wire_bytes_down"] == 2.5


@pytest.mark.parametrize("place", [0, -1])
def test_one_round_that_is_not_exact_is_enough(place: int) -> None:
    own = rounds(RING)
    own[place] = replace(own[place], bit_exact=False)

    assert summary(RING, rounds=own)["variants"][0]["metrics"]["bit_exact"] is False


def test_what_codecs_tell_is_counted_each_by_itself() -> None:
    """Four rounds, numbered from 0: 0 + 1 + 2 + 3 = 6 of the first, and ten, a hundred times as many."""
    own = [
        replace(
            record,
            fallback_parts=number,
            forecast_misses=10 * number,
            estimated_elements=100 * number,
            infinite_elements=1000 * number,
        )
        for number, record in enumerate(rounds(RING))
    ]
    metrics = summary(RING, rounds=own)["variants"][0]["metrics"]
    names = ("decode_failures", "forecast_misses", "approximate_entries", "infinite_entries")

    assert [metrics[name] for name in names] == [6, 60, 600, 6000]


def test_loopback_is_that_of_the_busiest_port() -> None:
    """Two switches' ports are busy for 30 and 20 µs of 100 µs; links between nodes do not count."""
    (first, *_) = links(RING)
    ports = [
        replace(
            first, link=f"s{number}->s{number}", source=f"s{number}", target=f"s{number}", busy_ps=busy_ps
        )
        for number, busy_ps in enumerate((30 * US, 20 * US))
    ]
    facts = {"ring": VariantFacts(2, duration_ps=100 * US)}
    left = records(RING, links=[replace(first, busy_ps=90 * US), *ports])

    assert summarize(facts, left)["variants"][0]["metrics"]["loopback_busy"] == 0.3


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """Its PERFORMANCE.md: algbw is the size over the time, busbw of an all-reduce 2(n − 1)/n of it."""
    metrics = summary(RING)["variants"][0]["metrics"]
    algbw = 4 * metrics["elements"] / (metrics["aggregation_time_us"] / 1e6)

    assert metrics["algbw_bytes_per_s"] == pytest.approx(algbw)
    assert metrics["busbw_bytes_per_s"] == pytest.approx(algbw * 2 * (RING.workers - 1) / RING.workers)
    assert [bus_factor(workers) for workers in (1, 2, 4, 8)] == [0, 1, 1.5, 1.75]


def test_the_bill_of_the_network_is_shown() -> None:
    bill = Bill(5, 6, 7, power_w=8, switches=9, ports=10, cables=11, optics=12, too_large=0)
    facts = {"ring": VariantFacts(2, bill=bill)}
    metrics = summarize(facts, records(RING))["variants"][0]["metrics"]
    names = "cost_usd", "power_w", "network_switches", "network_ports", "network_cables", "network_optics"

    assert [metrics[name] for name in names] == [18, 8, 9, 10, 11, 12]
    assert "cost_usd" not in summary(RING)["variants"][0]["metrics"]


def test_variants_keep_their_order_their_checks_and_references() -> None:
    bound = Reference("wire bound", 25e9, "rate over 32 bits")
    found = summary(RING, replace(LOSSLESS, verdict="fail", references=(bound,)))

    assert found["verdict"] == "fail"
    assert [(variant["name"], variant["verdict"]) for variant in found["variants"]] == [
        ("ring", "pass"),
        ("lossless", "fail"),
    ]
    assert found["variants"][1]["checks"][0] == {
        "name": "sum_is_right",
        "verdict": "fail",
        "detail": "round 3: element 17 is 5, should be 4",
    }
    assert found["variants"][1]["metrics"]["compression_ratio"] == 4000 / (40 + 760)
    assert found["variants"][1]["references"] == [
        {"label": "wire bound", "elements_per_s": 25e9, "source": "rate over 32 bits"}
    ]


def unfinished(steps_count: int, rounds_count: int) -> dict[str, Any]:
    """The summary of a stalled variant with some finished steps."""
    stalled = [CheckRecord("ring", "finishes", "stalled", "no traffic has made progress")]
    facts = {"ring": VariantFacts(2, diagnosis={"slots": []})}
    left = records(RING, steps=steps(RING)[:steps_count], rounds=rounds(RING)[:rounds_count], checks=stalled)
    found = summarize(facts, left)
    variant: dict[str, Any] = found["variants"][0]
    return variant


def test_a_stalled_variant_has_the_metrics_of_the_steps_it_did() -> None:
    complete = summary(RING)["variants"][0]["metrics"]
    per_step = ("aggregation_time_us", "wire_bytes_up", "payload_bytes_up", "elements", "compression_ratio")

    variant = unfinished(1, 3)  # and one round of the second step

    assert variant["verdict"] == "stalled"
    assert variant["diagnosis"] == {"slots": []}
    assert {name: variant["metrics"][name] for name in per_step} == {
        name: complete[name] for name in per_step
    }
    assert variant["metrics"]["steps"] == 1


def test_a_stalled_variant_without_any_round_has_none() -> None:
    metrics = unfinished(0, 0)["metrics"]

    assert {name for name, value in metrics.items() if value is not None} == {
        *("steps", "workers", "packets", "packet_hops", "packets_lost", "packets_dropped"),
        *("packets_retransmitted", "fallback_messages", "overflowed_words"),
        *("decode_failures", "forecast_misses", "approximate_entries", "infinite_entries"),
    }
    assert unfinished(0, 1)["metrics"]["bit_exact"] is True


def test_what_was_not_checked_has_not_passed() -> None:
    found = summary(RING, checks=[])

    assert found["verdict"] == "fail"
    assert found["variants"][0]["verdict"] == "fail"


@pytest.mark.parametrize(("wrong", "place"), [(math.nan, 0), (math.inf, -1)])
def test_what_is_not_finite_becomes_null(wrong: float, place: int) -> None:
    wrong_rounds = rounds(RING)
    wrong_rounds[place] = replace(wrong_rounds[place], max_abs_error=wrong)
    found = summary(RING, rounds=wrong_rounds)

    assert found["variants"][0]["metrics"]["max_abs_error"] is None
    json.dumps(found, allow_nan=False)


def test_nothing_sent_in_no_time_has_no_ratio() -> None:
    silent = Fake("zeros", (("values", 0, 0),), forward_us=0, backward_us=0, encode_us=0, decode_us=0)
    metrics = summary(silent)["variants"][0]["metrics"]

    assert metrics["aggregation_time_us"] == 0.0
    assert metrics["aggregation_elements_per_s"] is None
    assert metrics["compression_ratio"] is None


def test_records_of_an_unknown_variant_and_a_variant_without_records_are_bugs() -> None:
    with pytest.raises(InvariantError) as caught:
        summary(RING, links=links(LOSSLESS))
    assert str(caught.value) == "records of unknown variants ['lossless']; this run has ['ring']"

    with pytest.raises(InvariantError) as caught:
        summary(RING, rounds=[], links=[], checks=[])

    assert str(caught.value) == "variant 'ring' has 2 step and 0 round records, it needs some of both"


def test_the_mean_of_workers_held_counts_elements() -> None:
    few, many = replace(rounds(RING)[0], elements=1000), replace(rounds(RING)[1], elements=3000)
    unequal = [replace(few, workers_held_min=0, workers_held_mean=1.0), many]

    metrics = summary(RING, rounds=unequal)["variants"][0]["metrics"]

    assert (metrics["workers_held_min"], metrics["workers_held_mean"]) == (0, 1.75)


# Several jobs of one variant.

FIRST, SECOND = replace(RING, name="two/first"), replace(LOSSLESS, name="two/second")
NETWORK = [replace(link, variant="two") for link in links(RING)]
INSIDE = replace(NETWORK[0], link="s0->s0", source="s0", target="s0", busy_ps=30_000_000)
WARNING = "peeling can fail"


def facts_of(fake: Fake, **changes: Any) -> VariantFacts:
    return replace(VariantFacts(fake.workers, variant="two", duration_ps=120_000_000), **changes)


def of_two(**changes: Any) -> dict[str, Any]:
    """Two jobs on one network; changes are those of the second's facts."""
    return summarize(
        {FIRST.name: facts_of(FIRST, passes=46, results=2), SECOND.name: facts_of(SECOND, **changes)},
        records(FIRST, SECOND, links=[*NETWORK, INSIDE]),
    )


def run_folder(folder: Path, **changes: Any) -> Path:
    data = run_data(FIRST, SECOND, summary=of_two(**changes), links=[*NETWORK, INSIDE])
    return write_run(folder, data)


def test_every_job_is_an_entry_with_the_links_of_its_variant() -> None:
    found = of_two()["variants"]

    assert [entry["name"] for entry in found] == ["two/first", "two/second"]
    assert [entry["metrics"]["packet_hops"] for entry in found] == [31, 31]
    assert [entry["metrics"]["loopback_busy"] for entry in found] == [0.25, 0.25]


def test_what_a_codec_keeps_grows_with_the_gradient() -> None:
    first, second = (entry["metrics"] for entry in of_two(kept_bytes_per_element=4)["variants"])

    assert first["kept_bytes_per_worker"] == 0
    assert second["kept_bytes_per_worker"] == 4 * second["elements"] > 0


def test_passes_are_those_of_a_program() -> None:
    first, second = (entry["metrics"] for entry in of_two()["variants"])

    assert (first["passes"], first["passes_per_result"]) == (46, 23.0)
    assert (second["passes"], second["passes_per_result"]) == (None, None)


def test_warnings_are_kept_and_shown(tmp_path: Path, plain: None) -> None:
    found = of_two(warnings=(WARNING,))

    assert found["warnings"] == [f"two/second: {WARNING}"]
    assert of_two()["warnings"] == []
    assert f"note: two/second: {WARNING}" in terminal(140, found)
    report = build_report(run_folder(tmp_path, warnings=(WARNING,))).read_text("utf-8")
    assert f"<b>Note:</b> two/second: {WARNING}" in report


def test_results_that_lack_workers_are_reported() -> None:
    found = of_two()
    assert "workers held" not in " ".join(terminal(140, found))

    metrics = found["variants"][1]["metrics"]
    metrics["workers_held_min"], metrics["workers_held_mean"] = 0, 1.5
    assert "two/second: workers held, 0 at least, 1.50 of 2 on average" in terminal(140, found)


def test_a_report_shows_links_once_and_switches(tmp_path: Path, plain: None) -> None:
    report = page_of(build_report(run_folder(tmp_path)).parent)

    assert report.count('<td class="name">s0-&gt;s0</td>') == 1
    assert "<h2>Switches</h2>" in report
    assert '<td>two/first</td><td class="n">46.0</td>' in report
    assert '<td>two/second</td><td class="n">46.0</td>' not in report


Times = tuple[int, int, int, int]  # a worker begins to encode, to send, to decode, and is done


def round_of(bucket: int, workers: list[Times]) -> tuple[RoundRecord, list[PhaseRecord]]:
    """A round and its phases."""
    phases = [
        PhaseRecord("v", 0, bucket, worker, phase, "values", start_ps, end_ps, 10 * (phase == "network"))
        for worker, times in enumerate(workers)
        for phase, start_ps, end_ps in zip(("encode", "network", "decode"), times, times[1:], strict=False)
    ]
    start_ps, end_ps = min(times[0] for times in workers), max(times[-1] for times in workers)
    return replace(rounds(RING)[0], bucket=bucket, start_ps=start_ps, end_ps=end_ps), phases


def found(*buckets: list[Times]) -> dict[str, float]:
    """Picoseconds of each phase over some rounds; that they and their shares add up is looked at here."""
    records, phases = zip(*(round_of(bucket, workers) for bucket, workers in enumerate(buckets)), strict=True)
    covered = covered_ps([(record.start_ps, record.end_ps) for record in records])
    rows = breakdown(records, [phase for own in phases for phase in own], covered)
    assert rows is not None
    times_ps = {row["phase"]: row["time_us"] * 1e6 * len(records) for row in rows}
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
    report = page_of(folder)

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


def job_times(
    arrival_ps: int, admitted_ps: int | None, end_ps: int | None, alone_ps: int | None = 100
) -> JobTimes:
    return JobTimes(arrival_ps, admitted_ps, end_ps, alone_ps, "fifo")


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=20), st.integers(1, 1000))
def test_fairness_is_between_1_over_n_and_1_and_does_not_depend_on_the_scale(
    values: list[int], factor: int
) -> None:
    exact = Fraction(sum(values) ** 2, len(values) * sum(value * value for value in values))
    found = jain([float(value) for value in values])

    assert found == pytest.approx(float(exact), rel=1e-12)
    assert found is not None
    assert 1 / len(values) - 1e-12 <= found <= 1 + 1e-12
    assert jain([float(factor * value) for value in values]) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 0.0]])
def test_fewer_than_two_jobs_or_none_with_any_speed_have_no_fairness(values: list[float]) -> None:
    assert jain(values) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_the_95th_percentile_is_the_smallest_value_that_95_percent_do_not_exceed(values: list[float]) -> None:
    found = spread(values)

    assert found is not None
    assert found["mean"] == pytest.approx(sum(values) / len(values), rel=1e-9, abs=1e-300)
    assert found["max"] == max(values)
    enough = [one for one in values if 100 * sum(value <= one for value in values) >= 95 * len(values)]
    assert found["p95"] == min(enough)


def test_values_that_are_missing_do_not_count() -> None:
    assert spread([None, 2.0, None, 4.0]) == {"mean": 3.0, "p95": 4.0, "max": 4.0}
    assert spread([None]) is None


def test_jobs_overlap_only_if_they_run_at_the_same_time_for_some_time() -> None:
    first, second = job_times(0, 0, 100), job_times(50, 100, 200)  # the second waits until the first ends

    assert overlapping([first, second]) == []
    assert overlapping([first, job_times(50, 99, 200)]) == [first, job_times(50, 99, 200)]


def test_a_job_that_never_ends_overlaps_with_others_but_has_no_speed() -> None:
    done, stalled, late = job_times(0, 0, 100), job_times(0, 50, None), job_times(0, None, None)

    assert overlapping([done, stalled, late]) == [done]
    found = overview("v", [done, stalled, late])
    assert (found["jobs"], found["finished"], found["waited"]) == (3, 1, 2)
    assert found["makespan_us"] is None
    assert found["fairness"] is None


def test_times_of_a_job_are_from_its_arrival() -> None:
    one = job_times(10_000_000, 15_000_000, 35_000_000, alone_ps=5_000_000)

    metrics = metrics_of(Measured(VariantFacts(2, job_times=one)))
    names = ("arrival_us", "waiting_us", "completion_time_us", "alone_us", "slowdown")
    assert [metrics[name] for name in names] == [10.0, 5.0, 25.0, 5.0, 5.0]
    assert one.speed == 5 / 20  # while it ran


def test_an_overview_has_the_makespan_from_the_first_arrival_to_the_last_end() -> None:
    found = overview("v", [job_times(20, 20, 220), job_times(10, 120, 320), job_times(400, 400, 500)])

    assert found["makespan_us"] == pytest.approx((500 - 10) / 1e6)
    assert found["waited"] == 1
    assert found["overlapping"] == 2
    assert found["fairness"] == pytest.approx(1.0)
    assert found["slowdown"]["max"] == pytest.approx(310 / 100)
    assert math.isclose(found["completion_time_us"]["mean"], (200 + 310 + 100) / 3 / 1e6)


SKETCH = replace(LOSSLESS, name="sketch", estimates=60)  # of each of two steps


@pytest.mark.parametrize(
    ("some", "worst"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "approximate: 3 entries"), "approximate: 3 entries"),
        (("approximate: 3 entries", "approximate: 40 entries"), "approximate: 43 entries"),
        (("approximate: 3 entries", "stalled"), "stalled"),
        (("stalled", "fail", "approximate: 3 entries"), "fail"),
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
        (("stalled", "pass"), 7, "stalled"),
        ((), 7, "fail"),
    ],
)
def test_estimates_change_only_what_would_pass(checks: tuple[str, ...], estimates: int, verdict: str) -> None:
    assert verdicts.of_checks(checks, estimates) == verdict


def test_a_summary_counts_entries_of_all_steps() -> None:
    found = summary(RING, SKETCH, replace(SKETCH, name="other", estimates=1))

    assert found["verdict"] == "approximate: 122 entries"
    assert [variant["verdict"] for variant in found["variants"]] == [
        *("pass", "approximate: 120 entries", "approximate: 2 entries")
    ]
    assert found["variants"][1]["metrics"]["approximate_entries"] == 120
    assert summary(RING, replace(SKETCH, verdict="fail"))["verdict"] == "fail"


def test_the_report_says_so(tmp_path: Path) -> None:
    folder = reported(tmp_path, RING, SKETCH)
    report = page_of(folder)

    assert '<div class="verdict approximate"> <strong class="approximate">Approximate: 120 entries' in report
    assert "All 4 checks hold, but that many elements of the sums are estimates" in report
    assert '<td class="approximate">approximate: 120 entries</td>' in report
    assert "sketch has the shortest step: 88.0 µs, 1.91 × as fast as ring (168 µs).</p>" in report
    assert "<li>sketch: approximate: 120 entries</li>" in report
    texts = svg_text((folder / "figures" / "throughput.svg").read_bytes())
    assert "41.7 M/s · 2.67 × · approximate" in texts
    assert "a check failed" not in texts


def test_the_terminal_says_so() -> None:
    assert terminal(140, summary(SKETCH))[5].endswith("│ yes       │ approximate: 120 entries │")


def test_the_terminal_shows_codec_events_and_time_shares() -> None:
    """Not where one part takes all the time."""
    whole = replace(RING, encode_us=0, decode_us=0, workers=1)
    assert not any(line.startswith("time of ring") for line in terminal(100, summary(whole)))
    chosen = replace(RING, choices=("packed", "dense"))

    assert terminal(100, summary(chosen))[-2:] == [
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
    report = page_of(reported(tmp_path, chosen))

    assert summary(chosen)["variants"][0]["metrics"]["codec_choice"] == {"packed": 2, "dense": 2}
    assert (
        '<tr><td>ring</td><td>choice</td><td>dense: it is &lt;best&gt;</td><td class="n">2</td> '
        "<td>step 0, bucket 1</td></tr>"
    ) in report
    assert "Codec notes" not in page_of(reported(tmp_path, RING))


def test_notes_of_every_variant_are_shown_in_part(tmp_path: Path, plain: None) -> None:
    many = replace(RING, buckets=9, choices=tuple("abcdefghi"))
    report = page_of(reported(tmp_path, many, replace(many, name="other")))
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
    run, report = load(folder), page_of(folder)

    assert run.faults.rows() == [astuple(one) for one in FAULTS]
    assert run.faults.schema["first_ps"] == pl.Int64
    assert run.summary["injected"] == run.faults.to_dicts()
    assert "<h2>Injected faults</h2>" in report
    assert "<td>h*-&gt;s0</td> <td>17 packets</td>" in report
    assert "<td>s&lt;0&gt;</td> <td>at 1.50 ms, for &lt;5ms&gt;</td>" in report
    assert "Injected" not in page_of(reported(tmp_path))


def test_injected_faults_are_on_the_terminal() -> None:
    assert terminal(100, summary(RING, faults=FAULTS))[-3:] == [
        "injected into ring: loss on h*->s0, 17 packets",
        "injected into ring: switch_reboot on s<0>, at 1.50 ms, for <5ms>",
        "injected into ring: worker_crash on worker 2, never, the run ended before",
    ]
    assert words.injected({"counted": "times", "count": 1, "first_ps": 0, "extent": ""}) == "at 0 ns"
    assert words.injected({"counted": "packets", "count": 0, "first_ps": None}) == "0 packets"
