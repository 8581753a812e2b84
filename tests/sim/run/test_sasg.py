"""SASG through simulated networks: the same training everywhere, what is sent, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import netfold
from netfold.homomorphic.codecs.sasg.lists import Sasg
from netfold.homomorphic.codecs.sasg.summed import SasgSummed
from netfold.sim.run.outcome import VariantResult
from netfold.sim.workload import TrainingSpec
from netfold.sim.workload.fusion.size import BySize
from tests.examples import nightly
from tests.sim.local_training import LocalTraining, train
from tests.sim.mnist_sasg import WORKERS as WORKERS_ON_MNIST
from tests.sim.mnist_sasg import trained
from tests.sim.scenes import measure, refused, simulate

STEPS, WORKERS, SEED, ELEMENTS = 16, 4, 7, 9610
TEXT = f"""\
name: sasg
seed: {SEED}
topology: {{kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: tofino1}}
workers: {WORKERS}
workload: {{kind: training, model: mlp, batch: 8, learning_rate: 0.2, steps: {STEPS}}}
codec: {{kind: sasg, staleness: 4}}
device: {{kind: fixed, forward: 10us, backward: 20us, memory_rate: 800Gbps}}
collective: {{kind: parameter_server}}
"""
SWITCH = "collective={kind: in_network, program: switchml, frame: udp-256}"
LOSS = "faults=[{kind: loss, rate: 1%}]"
LISTS = (
    ("collective={kind: parameter_server, servers: 2, placement: beside_workers, chunk: 1KiB}", LOSS),
    ("collective={kind: parameter_server}", "codec.down=union"),
    ("collective={kind: all_gather}", "codec.down=union", "overlap={encode: on_device}"),
)
TREE = "topology={kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: sharp}"
SUMS = (
    (SWITCH, LOSS),
    (SWITCH, "overlap={buckets_in_flight: 3, encode: on_device}", "workload.bucket=4KB", LOSS),
    ("collective={kind: in_network}", "codec.index=none", "overlap={order: first_layer}"),
    (TREE, "collective={kind: in_network, program: tree}"),
    ("collective={kind: ring}", LOSS),
    ("collective={kind: all_gather}",),
)
INTEGERS = "codec={kind: sasg, staleness: 4, aggregation: incremental}"
SUMMED = "codec={kind: sasg_summed, staleness: 4}"
HEADER = 14 + 20 + 8 + 8 + 2 + 4 + 20 + 4  # udp-256 on the wire without words, and who contributed


@cache
def locally(kind: str, bucket: int = 25_000_000) -> LocalTraining:
    """The same training in one process."""
    codecs = {
        "lists": Sasg(staleness=4),
        "integers": Sasg(staleness=4, aggregation="incremental"),
        "summed": SasgSummed(staleness=4),
    }
    spec = TrainingSpec("mlp", 8, 0.2, BySize(bucket))
    return train(spec, codecs[kind], WORKERS, SEED, STEPS)


def assert_same(result: VariantResult, local: LocalTraining, buckets: int = 1) -> None:
    """All checks pass; the same losses in every step, bit for bit, and the same uploads."""
    assert {check.name: check.verdict for check in result.records.checks if check.verdict != "pass"} == {}
    assert [step.loss for step in result.records.steps] == local.losses
    uploads = [0] * STEPS
    for record in result.records.rounds:
        uploads[record.step] += record.uploads
    assert uploads == [buckets * count for count in local.uploads]
    assert 0 < local.uploads_count < STEPS * WORKERS
    assert min(local.uploads) < WORKERS == max(local.uploads)


@pytest.mark.parametrize("sets", LISTS)
def test_lists_train_alike_over_every_collective_that_delivers_them(
    tmp_path: Path, sets: tuple[str, ...]
) -> None:
    assert_same(simulate(tmp_path, *sets, text=TEXT), locally("lists"))


@pytest.mark.parametrize("sets", SUMS)
def test_sums_train_alike_over_every_collective(tmp_path: Path, sets: tuple[str, ...]) -> None:
    """Switches, trees and hosts; with 1 % loss where packets can be lost."""
    buckets = 2 if "workload.bucket=4KB" in sets else 1
    result = simulate(tmp_path, SUMMED, *sets, text=TEXT)

    assert all(record.merges_verified for record in result.records.rounds)
    assert_same(result, locally("summed", 4000 if buckets > 1 else 25_000_000), buckets)


def test_a_running_sum_at_a_server_trains_as_one_at_every_worker(tmp_path: Path) -> None:
    at_server, at_workers = (simulate(tmp_path, codec, text=TEXT) for codec in (INTEGERS, SUMMED))

    assert_same(at_server, locally("integers"))
    assert_same(at_workers, locally("integers"))


@pytest.mark.parametrize(
    "sets",
    [(), *((SUMMED, one) for one in (SWITCH, "collective={kind: ring}", "collective={kind: all_gather}"))],
)
def test_rounds_that_all_skip_complete_everywhere(tmp_path: Path, sets: tuple[str, ...]) -> None:
    """4 steps of the warm start, 4 that all skip, then one in 5."""
    result = simulate(tmp_path, *sets, "codec.alpha=1e300", "workload.steps=14", text=TEXT)

    assert {check.verdict for check in result.records.checks} == {"pass"}
    rule = [WORKERS if step < 4 or step in (8, 13) else 0 for step in range(14)]
    assert [record.uploads for record in result.records.rounds] == rule


def test_skipped_workers_headers_are_counted_on_the_wire(tmp_path: Path) -> None:
    """Every worker sends a header for each packet of the others, and words only where it uploads."""
    units = -(-ELEMENTS // 64)
    result = simulate(tmp_path, SUMMED, SWITCH, "codec.index=none", text=TEXT)

    assert len({record.uploads for record in result.records.rounds}) > 2
    for record in result.records.rounds:
        assert record.wire_bytes_up == units * (WORKERS * HEADER + 256 * record.uploads)
        assert record.payload_bytes_up == 4 * ELEMENTS * record.uploads


def test_a_switch_saves_what_a_server_sends_down(tmp_path: Path) -> None:
    """The busiest link is the server's: four dense sums a step. A switch sends each worker one."""

    def busiest_bytes(*sets: str) -> int:
        return max(link.bytes for link in simulate(tmp_path, *sets, text=TEXT).records.links)

    server = busiest_bytes()
    dense, packed = busiest_bytes(SUMMED, SWITCH, "codec.index=none"), busiest_bytes(SUMMED, SWITCH)

    assert server > STEPS * WORKERS * 4 * ELEMENTS * 0.9
    assert dense < server / 2
    assert packed < server / 10


def test_a_second_pass_is_charged_where_gradients_are_compared(tmp_path: Path) -> None:
    """30 us of every worker in every step after the warm start, unless its upload is due."""
    result = simulate(tmp_path, "codec.alpha=1e300", text=TEXT)

    passes = [phase for phase in result.records.phases if phase.phase == "more passes"]
    compared = [step for step in range(4, STEPS) if (step - 3) % 5]
    assert sorted((one.step, one.worker) for one in passes) == [
        (step, worker) for step in compared for worker in range(WORKERS)
    ]
    assert {one.end_ps - one.start_ps for one in passes} == {30 * 10**6}
    none = simulate(tmp_path, "codec.alpha=0.0", text=TEXT)
    assert not [phase for phase in none.records.phases if phase.phase == "more passes"]


def test_uploads_and_skips_are_counted_in_the_summary(tmp_path: Path) -> None:
    found = measure(tmp_path, text=TEXT)

    count = locally("lists").uploads_count
    assert (found["uploads"], found["skips"]) == (count, STEPS * WORKERS - count)
    sent = 8 * (81 + 1 + 12 + 1)  # of 8192, 128, 1280 and 10 elements
    assert found["payload_bytes_up"] == sent * count / (STEPS * WORKERS)


def test_without_a_training_it_is_refused(tmp_path: Path) -> None:
    kind = "sasg_summed"
    assert (
        f"codec: {kind} needs the learning rate, the norm of the last update and gradients at weights "
        "that a worker has kept, a workload of the kind synthetic does not know them\n"
        "  use a scenario whose workload has the kind training, or another codec"
    ) in refused(tmp_path, SUMMED, "workload={kind: synthetic, elements: 1000}", text=TEXT)
    gradients: list[Any] = [[1.0, 2.0], [3.0, 4.0]]
    needs = f"{kind} needs the learning rate, "
    with pytest.raises(netfold.NetfoldError, match=needs + ".*fold does not know"):
        netfold.fold(kind, gradients)
    with pytest.raises(netfold.NetfoldError, match=needs + ".*a study does not know"):
        netfold.study([kind], elements=1000)


@nightly
def test_mnist_is_learned_as_well_with_six_tenths_of_the_uploads() -> None:
    """Means of five seeds, 400 steps: half a point of accuracy."""
    found = {name: [trained(name, seed, 400) for seed in range(1, 6)] for name in ("SGD", "SASG")}
    assert all(one.uploads_count == 400 * WORKERS_ON_MNIST for one in found["SGD"])
    assert all(one.payload_bytes == 8 * 4071 * one.uploads_count for one in found["SASG"])
    accuracy = {name: sum(one.scores[400] for one in own) / len(own) for name, own in found.items()}
    uploads = {name: sum(one.uploads_count for one in own) for name, own in found.items()}

    assert accuracy["SASG"] >= accuracy["SGD"] - 0.005
    assert uploads["SASG"] <= 0.6 * uploads["SGD"]
