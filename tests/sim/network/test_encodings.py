"""Encodings on the network: bytes saved against round trips added, and phases that explain the time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.fold import fold
from netfold.homomorphic.round import Round
from netfold.sim.engine.interface import Frame
from netfold.sim.plan.frames import frame_of
from netfold.sim.results import summarize
from netfold.sim.results.breakdown import RANK_SKEW
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from tests.sim.scenes import DENSE, RING, job_plan, measure, only, simulate

ELEMENTS, WORKERS, STEP = 1_000_000, 8, 1  # the second step: the first is what a forecast rests on
STAR = (
    f"workers={WORKERS}",
    f"topology.hosts={WORKERS}",
    f"workload.elements={ELEMENTS}",
    "workload.density=2%",
    "workload.steps=2",
    "collective.frame=roce-1024",
    "collective.message_packets=4",
    "collective.slots=512",
)
FRAME: Frame = frame_of("roce-1024")
MESSAGE_WORDS = 4 * FRAME.elements
MESSAGE_US = 8 * (4 * FRAME.wire_bytes(FRAME.elements, first=False, last=False) + 20) / 100e3  # 100 Gbps
# Two links, a pass, 3 pipes and 7 passes to read a packet out, and the packet once on either link.
LATENCY_US = 2.0 + 0.6 + 10 * 0.6 + 2 * 8 * 1110 / 100e3
AHEAD_US = 512 / 4 * MESSAGE_US  # a window of messages, by which SwitchML's exponents are ahead of its values


def second_step(folder: Path, *sets: str) -> tuple[float, list[int]]:
    """Microseconds of a round, and the words of each of its operations."""
    result = simulate(folder, *sets)
    operations = [
        phase.payload_bytes // 4
        for phase in result.phases
        if (phase.step, phase.worker, phase.phase) == (STEP, 0, "network")
    ]
    return result.steps[STEP].aggregation_ps / 1e6, operations


@pytest.mark.parametrize(
    ("codec", "operations"),
    [
        ("{kind: packed}", 2),
        ("{kind: packed, index: two_level}", 3),
        ("{kind: lossless, schedule: concurrent}", 1),
        ("{kind: block_sparse, blocks: bitmap}", 2),
    ],
)
def test_every_operation_takes_its_words_at_line_rate_and_one_round_trip(
    tmp_path: Path, codec: str, operations: int
) -> None:
    """Within 3 %; a partly filled message takes as long as its packets."""
    time_us, sizes = second_step(tmp_path, *STAR, f"codec={codec}")

    assert len(sizes) == operations
    assert time_us == pytest.approx(
        sum(sizes) / MESSAGE_WORDS * MESSAGE_US + operations * LATENCY_US, rel=0.03
    )


def test_less_time_than_dense_by_the_bytes_saved_less_a_round_trip(tmp_path: Path) -> None:
    dense_us, (dense_words,) = second_step(tmp_path, *STAR)
    time_us, sizes = second_step(tmp_path, *STAR, "codec.kind=packed")
    ring_us, _ = second_step(tmp_path, RING, *STAR[:-2], DENSE)
    saved = sum(sizes) / dense_words

    assert saved < 0.3
    assert time_us == pytest.approx(saved * (dense_us - AHEAD_US - LATENCY_US) + 2 * LATENCY_US, rel=0.03)
    assert ring_us > dense_us > 3 * time_us


FEW, SHORT = 3, 50_000
PACKED = (f"workload.elements={SHORT}", "codec={kind: packed}")
UDP = "collective.frame=udp-256"
TREE = ("topology.switch=sharp", "collective={kind: in_network, program: tree, frame: roce-1024}")


@pytest.mark.parametrize(
    ("collective", "density"), [((UDP,), "1%"), ((RING,), "30%"), (TREE, "0%"), ((UDP,), "100%")]
)
def test_the_sum_is_exact_in_a_word_per_member(
    tmp_path: Path, collective: tuple[str, ...], density: str
) -> None:
    """As announced by encoders without a network; each message of a worker fills separate packets."""
    sets = (*PACKED, f"workload.density={density}", *collective)
    job = job_plan(only(tmp_path, *sets))
    assert isinstance(job.workload, SyntheticSpec)
    gradients = [own[0] for own in synthetic_workload(job.workload, FEW, 7).gradients(0)]
    encoders = [job.codec.worker(rank, FEW, 7) for rank in range(FEW)]
    sent = [own for ranks in fold(encoders, gradients, Round(0, 0, FEW, 7)).messages for own in ranks[0]]
    union = int(np.count_nonzero(np.any(gradients, axis=0)))
    words = -(-SHORT // 32) + -(-SHORT // 4096) + union  # index, exponents, values

    found = measure(tmp_path, *sets)

    assert sum(message.size_bytes for message in sent) == 4 * words
    assert found["compression_ratio"] == SHORT / words
    assert found["union_density"] == union / SHORT
    assert found["merges_verified"]
    if collective == (UDP,):
        frame = frame_of("udp-256")
        packets = FEW * sum(-(-message.words.size // frame.elements) for message in sent)
        assert found["packets"] == packets
        assert found["wire_bytes_up"] == packets * frame.wire_bytes(frame.elements, first=True, last=True)


DENSE_ELEMENTS = 40_000
TIMED_STAR = (
    f"workers={WORKERS}",
    f"topology.hosts={WORKERS}",
    f"workload.elements={DENSE_ELEMENTS}",
    "workload.density=3%",
    "workload.steps=2",
    "collective.frame=udp-256",
    "device={kind: fixed, forward: 1ms, backward: 1ms, memory_rate: 800Gbps}",
)


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
    result = simulate(tmp_path, *TIMED_STAR, *VARIANTS[name])
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


def test_a_late_worker_explains_the_rest(tmp_path: Path) -> None:
    """All wait a millisecond for the last worker, which spends it outside the round."""
    late = "faults=[{kind: worker_pause, worker: 3, at: 0ms, for: 1ms}]"
    found = measure(tmp_path, *TIMED_STAR, "workload.steps=1", late)

    assert found["breakdown"][-1]["time_us"] == pytest.approx(1000, rel=1e-6)
