"""Packed values through simulated networks: exact sums, in the announced number of bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Message
from netfold.homomorphic.round import Round
from netfold.sim.plan.frames import frame_of
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from tests.sim.scenes import RING, job_plan, measure, only

WORKERS, ELEMENTS = 3, 50_000
SPARSE = (f"workload.elements={ELEMENTS}", "codec={kind: packed}")
TREE = ("topology.switch=sharp", "collective={kind: in_network, program: tree, frame: roce-1024}")
LOSS = "faults=[{kind: loss, rate: 3%}]"


def messages_of(folder: Path, *sets: str) -> tuple[list[Message], int]:
    """Words that worker 0 sends without a network, and the elements that are non-zero at any worker."""
    job = job_plan(only(folder, *sets))
    assert isinstance(job.workload, SyntheticSpec)
    gradients = [own[0] for own in synthetic_workload(job.workload, WORKERS, 7).gradients(0)]
    encoders = [job.codec.worker(rank, WORKERS, 7) for rank in range(WORKERS)]
    folded = fold(encoders, gradients, Round(0, 0, WORKERS, 7))
    sent = [message for operation in folded.messages for message in operation[0]]
    return sent, int(np.count_nonzero(np.any(gradients, axis=0)))


@pytest.mark.parametrize("density", ["0%", "1%", "30%", "100%"])
@pytest.mark.parametrize(
    "collective",
    [("collective.frame=udp-256",), ("collective.frame=roce-1024",), TREE, (RING,)],
    ids=["udp", "roce", "tree", "ring"],
)
def test_the_sum_is_exact_in_a_word_per_member(
    tmp_path: Path, collective: tuple[str, ...], density: str
) -> None:
    sets = (*SPARSE, f"workload.density={density}", *collective)
    sent, union = messages_of(tmp_path, *sets)
    found = measure(tmp_path, *sets)

    exponents, index_words = -(-ELEMENTS // 4096), -(-ELEMENTS // 32)
    assert sum(message.size_bytes for message in sent) == 4 * (index_words + exponents + union)
    assert found["compression_ratio"] == 4 * ELEMENTS / (4 * (index_words + exponents + union))
    assert found["union_density"] == union / ELEMENTS
    assert found["merges_verified"]


@pytest.mark.parametrize("density", ["1%", "30%"])
def test_packets_of_a_switch_carry_the_announced_words(tmp_path: Path, density: str) -> None:
    """Each message of a worker fills separate packets."""
    sets = (*SPARSE, f"workload.density={density}", "collective.frame=udp-256")
    sent, _ = messages_of(tmp_path, *sets)
    found = measure(tmp_path, *sets)

    frame = frame_of("udp-256")
    packets = sum(-(-message.words.size // frame.elements) for message in sent)
    assert found["packets"] == WORKERS * packets
    assert found["wire_bytes_up"] == WORKERS * packets * frame.wire_bytes(
        frame.elements, first=True, last=True
    )


@pytest.mark.parametrize("collective", ["collective.frame=udp-256", RING])
def test_loss_costs_no_accuracy(tmp_path: Path, collective: str) -> None:
    found = measure(tmp_path, *SPARSE, "workload.density=30%", collective, LOSS)

    assert found["packets_retransmitted"] > 0
    assert found["merges_verified"]


@pytest.mark.parametrize("policy", ["saturate", "sticky"])
def test_no_warning_about_saturating_switches(tmp_path: Path, policy: str) -> None:
    """Unlike a sketch's counters, sums of scaled values stay inside int32."""
    assert job_plan(only(tmp_path, *SPARSE, f"collective.overflow={policy}")).warnings == ()
