"""Duration of every phase on a star, and that the phases explain the aggregation time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from netfold.sim.results import summarize
from netfold.sim.results.breakdown import RANK_SKEW
from tests.sim.scenes import DENSE, RING, measure, simulate

ELEMENTS, WORKERS = 40_000, 8
STAR = (
    f"workers={WORKERS}",
    f"topology.hosts={WORKERS}",
    f"workload.elements={ELEMENTS}",
    "workload.density=3%",
    "workload.steps=2",
    "collective.frame=udp-256",
    "device={kind: fixed, forward: 1ms, backward: 1ms, memory_rate: 800Gbps}",
)
BYTE_US = 1e-5  # of memory
VARIANTS = {
    "ring": (RING, DENSE),
    "ring-lossless": (RING, "codec={kind: lossless}"),
    "switchml": (),
    "lossless": ("codec={kind: lossless}",),
    "packed": ("codec={kind: packed}",),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_phases_explain_the_aggregation_time(tmp_path: Path, name: str) -> None:
    """And each is the mean of what workers took for it, as they are in step."""
    result = simulate(tmp_path, *STAR, *VARIANTS[name])
    found = summarize(result.facts, result.records)["variants"][0]["metrics"]
    sums_us: dict[tuple[str, str], float] = defaultdict(float)
    for phase in result.phases:
        if phase.bucket >= 0:
            sums_us[phase.phase, phase.label] += (phase.end_ps - phase.start_ps) / 1e6

    *rows, rest = found["breakdown"]
    assert rest["phase"] == RANK_SKEW
    assert abs(rest["share"]) <= 0.03
    assert sum(row["time_us"] for row in rows) == pytest.approx(found["aggregation_time_us"], rel=0.03)
    assert sum(row["payload_bytes"] for row in rows) == pytest.approx(found["payload_bytes_up"])
    means_us = {what: time / WORKERS / 2 for what, time in sums_us.items()}
    assert {(row["phase"], row["label"]): row["time_us"] for row in rows} == pytest.approx(means_us, rel=0.03)


def test_encoding_and_decoding_take_the_charged_time(tmp_path: Path) -> None:
    """Fixed point reads the gradient twice and writes it once and the exponents; decoding is one pass."""
    found = measure(tmp_path, *STAR)["breakdown"]

    blocks = -(-ELEMENTS // 64)
    times = {(row["phase"], row["label"]): row["time_us"] for row in found}
    assert times["encode", "values"] == pytest.approx((3 * 4 * ELEMENTS + blocks) * BYTE_US)
    assert times["decode", "values"] == pytest.approx((2 * 4 * ELEMENTS + blocks) * BYTE_US)


def test_a_late_worker_explains_the_rest(tmp_path: Path) -> None:
    """All wait a millisecond for the last worker, which spends it outside the round."""
    late = "faults=[{kind: worker_pause, worker: 3, at: 0ms, for: 1ms}]"
    found = measure(tmp_path, *STAR, "workload.steps=1", late)

    assert found["breakdown"][-1]["time_us"] == pytest.approx(1000, rel=1e-6)


@pytest.mark.parametrize("name", ["ring-lossless", "packed"])
def test_buckets_that_follow_each_other_at_once_are_explained_too(tmp_path: Path, name: str) -> None:
    sets = ("workload.bucket=40000B", "device={kind: fixed, forward: 0s, backward: 0s, memory_rate: 800Gbps}")
    found = measure(tmp_path, *STAR, *VARIANTS[name], *sets)

    assert 0 <= found["breakdown"][-1]["share"] <= 0.03
