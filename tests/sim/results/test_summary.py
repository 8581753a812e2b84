"""The numbers of a run, against sums done by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from netfold.sim.errors import InvariantError
from netfold.sim.report.compare import compare
from netfold.sim.report.html import build_report
from netfold.sim.report.table import results_table
from netfold.sim.results import Reference, VariantFacts, summarize, write_run
from netfold.sim.results.records import CheckRecord
from tests.sim.results.builders import (
    LOSSLESS,
    RING,
    US,
    Fake,
    links,
    records,
    rounds,
    run_data,
    steps,
    summary,
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
        "uploads": 6,  # of 2 workers in 4 rounds; one skips bucket 1
        "skips": 2,
        "packets": 17,
        "packet_hops": 21,
        "packets_lost": 5,
        "packets_dropped": 6,
        "packets_retransmitted": 9,
        "passes": None,
        "passes_per_result": None,
        "overflowed_words": 0,
        "loopback_busy": None,
        "since_last_rank_us": 127.0,  # worker 1 is a microsecond late
        "bit_exact": True,
        "merges_verified": True,
        "max_abs_error": 0.5,
        "nmse": 0.25,
        "cosine": 0.5,
        "max_error_over_bound": 0.5,
        "density": 0.1005,
        "union_density": 0.3005,
        "redo_messages": 2,
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
            redone_parts=number,
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
    """The summary of a stuck variant with some finished steps."""
    stuck = [CheckRecord("ring", "finishes", "stuck", "no traffic has made progress")]
    facts = {"ring": VariantFacts(2, diagnosis={"slots": []})}
    left = records(RING, steps=steps(RING)[:steps_count], rounds=rounds(RING)[:rounds_count], checks=stuck)
    found = summarize(facts, left)
    variant: dict[str, Any] = found["variants"][0]
    return variant


def test_a_stuck_variant_has_the_metrics_of_the_steps_it_did() -> None:
    complete = summary(RING)["variants"][0]["metrics"]
    per_step = ("aggregation_time_us", "wire_bytes_up", "payload_bytes_up", "elements", "compression_ratio")

    variant = unfinished(1, 3)  # and one round of the second step

    assert variant["verdict"] == "stuck"
    assert variant["diagnosis"] == {"slots": []}
    assert {name: variant["metrics"][name] for name in per_step} == {
        name: complete[name] for name in per_step
    }
    assert variant["metrics"]["steps"] == 1


def test_a_stuck_variant_without_any_round_has_none() -> None:
    metrics = unfinished(0, 0)["metrics"]

    assert {name for name, value in metrics.items() if value is not None} == {
        *("steps", "workers", "packets", "packet_hops", "packets_lost", "packets_dropped"),
        *("packets_retransmitted", "redo_messages", "overflowed_words"),
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


def report_of(folder: Path) -> str:
    return build_report(folder).read_text("utf-8")


def table(found: dict[str, Any]) -> str:
    console = Console(width=140)
    with console.capture() as captured:
        console.print(results_table({"scenario": "quick", "seed": 7, **found}))
    return captured.get()


def test_every_job_is_an_entry_with_the_links_of_its_variant() -> None:
    found = of_two()["variants"]

    assert [entry["name"] for entry in found] == ["two/first", "two/second"]
    assert [entry["metrics"]["packet_hops"] for entry in found] == [31, 31]
    assert [entry["metrics"]["loopback_busy"] for entry in found] == [0.25, 0.25]


def test_passes_are_those_of_a_program() -> None:
    first, second = (entry["metrics"] for entry in of_two()["variants"])

    assert (first["passes"], first["passes_per_result"]) == (46, 23.0)
    assert (second["passes"], second["passes_per_result"]) == (None, None)


def test_warnings_are_kept_and_shown(tmp_path: Path, plain: None) -> None:
    found = of_two(warnings=(WARNING,))

    assert found["warnings"] == [f"two/second: {WARNING}"]
    assert of_two()["warnings"] == []
    assert f"note: two/second: {WARNING}" in table(found)
    report = report_of(run_folder(tmp_path, warnings=(WARNING,)))
    assert f"<b>Note:</b> two/second: {WARNING}" in report


def test_results_that_lack_workers_are_reported() -> None:
    found = of_two()
    assert "workers held" not in table(found)

    metrics = found["variants"][1]["metrics"]
    metrics["workers_held_min"], metrics["workers_held_mean"] = 0, 1.5
    assert "two/second: workers held, 0 at least, 1.50 of 2 on average" in table(found)


def test_a_report_shows_links_once_and_switches(tmp_path: Path, plain: None) -> None:
    report = report_of(run_folder(tmp_path))

    assert report.count('<td class="name">s0-&gt;s0</td>') == 1
    assert "<h2>Switches</h2>" in report
    assert '<td>two/first</td><td class="n">46.0</td>' in report
    assert '<td>two/second</td><td class="n">46.0</td>' not in report


def test_jobs_are_compared_with_those_of_their_name(tmp_path: Path) -> None:
    rows = compare([run_folder(tmp_path), run_folder(tmp_path)]).rows

    assert [row.variant for row in rows] == ["two/first", "two/second"] * 2
    assert [row.against.rpartition(" ")[2] for row in rows] == ["two/first", "two/second"] * 2
