"""Runs of published systems whose workers keep something: BIRD, SASG, and workers that leave and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.codecs.sasg import Sasg
from netfold.homomorphic.codecs.sasg_summed import SasgSummed
from netfold.homomorphic.error_bounds import ErrorBound, FactorBound, FloatAddBound
from netfold.homomorphic.merge import Merge, Merged
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.collectives.in_network.in_network_run import InNetwork
from netfold.sim.network.fabric import Fabric
from netfold.sim.run.variant import VariantResult
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.workload.fusion import BySize
from netfold.sim.workload.workload_keys import Training
from tests.examples import nightly
from tests.registry import known
from tests.sim.local_training import WORKERS as WORKERS_ON_MNIST
from tests.sim.local_training import LocalTraining, train, trained
from tests.sim.scenes import measure, metrics_of, refused, result_of, simulate, simulated, verdict_of
from tests.sim.toys import Due, before_merges

WORKERS, ELEMENTS, STEPS = 8, 1000, 4
SCENARIO: dict[str, Any] = {
    "name": "absent",
    "seed": 3,
    "topology": {"kind": "star", "hosts": WORKERS, "rate": "100Gbps", "delay": "1us", "switch": "ideal"},
    "workers": WORKERS,
    "workload": {"kind": "synthetic", "elements": ELEMENTS, "steps": STEPS},
    "codec": {"kind": "skipper"},
    "collective": {"kind": "in_network", "frame": "udp-256"},
}


def is_absent(who: str, rank: int, step: int) -> bool:
    """The rule that all workers know."""
    return {
        "some": mix_plain(rank, step, 99) % 3 == 0,
        "others": rank != 2,
        "in turn": step % WORKERS == rank,
    }[who]


@dataclass(frozen=True)
class Skipper(Codec):
    """Sums of those workers that do not skip.

    absent: who skips.
    words: added as integers or as floats.
    declares: whether it says that a worker may be absent.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "skipper"

    absent: str = "some"
    words: str = "integers"
    declares: bool = True

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.FLOAT_ADD if self.words == "floats" else Merge.ADD})

    @property
    def may_be_absent(self) -> bool:
        return self.declares

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return SkippingEncoder(self, rank)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        if self.words == "floats":
            return FloatAddBound(len(contributions))
        return FactorBound(len(contributions), 1e6, may_be_float=False)


@dataclass(frozen=True)
class SkippingEncoder(Encoder):
    """One worker's side."""

    codec: Skipper
    rank: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        is_out = is_absent(self.codec.absent, self.rank, round.step)
        whole = self._message(gradient)
        absent = replace(whole, words=whole.words[:0], absent_words=whole.words.size)
        message = absent if is_out else whole
        (merged,) = yield (message,)
        total = merged.words.copy() if self.codec.words == "floats" else merged.words / 1e6
        return Decoded(total.astype(np.float32), np.zeros_like(gradient) if is_out else gradient)

    def _message(self, gradient: Gradient) -> Message:
        if self.codec.words == "floats":
            return Message(gradient, Merge.FLOAT_ADD, "values")
        return Message(np.rint(gradient * 1e6).astype(np.int32), Merge.ADD, "values")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, Skipper)


def run(**changes: Any) -> VariantResult:
    return simulated({**SCENARIO, **changes})


def details(result: VariantResult) -> dict[str, str]:
    """The detail of each check."""
    return {check.name: check.detail for check in result.checks}


def test_a_codec_that_has_not_declared_it_ends_the_run() -> None:
    found = run(codec={"kind": "skipper", "declares": False})

    assert verdict_of(found) == "fail"
    detail = details(found)["finishes"]
    assert "message 'values': its worker contributes nothing to 1000 words by add, and " in detail
    assert "'skipper' does not declare that a worker may be absent" in detail


def test_a_missing_worker_is_told_from_absent_ones() -> None:
    """Worker 2 alone has words; the headers of worker 5 are lost, and all wait for these."""
    dead = [{"kind": "loss", "rate": "100%", "links": ["h5->s0"]}]
    found = run(codec={"kind": "skipper", "absent": "others"}, faults=dead)

    assert verdict_of(found) == "stalled"
    assert "link h5->s0 loses every packet" in details(found)["finishes"]
    assert "unit 0 of stream 0 at s0: worker 5 missing" in details(found)["finishes"]


def test_switch_results_that_claim_another_worker_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are right. Bits of the bitmap are swapped where the result is read."""
    right = InNetwork._with_members

    def swapped(self: InNetwork, merged: Merged, workers: int, bitmap: np.uint32) -> Merged:
        return right(self, merged, workers, np.uint32(int(bitmap) >> 1 | (int(bitmap) & 1) << WORKERS - 1))

    monkeypatch.setattr(InNetwork, "_with_members", swapped)
    for words, check in (("integers", "merges_are_exact"), ("floats", "merges_are_right")):
        found = run(codec={"kind": "skipper", "absent": "in turn", "words": words})
        assert verdict_of(found) == "fail"
        assert "(it claims words of workers 0, 1, 2, 3, 4, 5, 6; they were sent by" in details(found)[check]


def test_a_ring_that_counts_absent_workers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an absent worker forwards claims to be its own as well."""
    begin, absent = Fabric.begin, set[int]()

    def beginning(self: Fabric, number: int, worker: int, words: Any, sizes: None, is_out: bool) -> Any:
        (absent.add if is_out else absent.discard)(worker)
        return begin(self, number, worker, words, sizes, is_out)

    def strike(due: Due) -> None:
        if due.source in absent:
            due.arriving["workers"] += due.arriving["workers"] > 0

    monkeypatch.setattr(Fabric, "begin", beginning)
    before_merges(monkeypatch, strike)
    torus = {"kind": "torus_2d", "rows": 3}
    found = run(collective=torus, codec={"kind": "skipper", "words": "floats"})
    assert verdict_of(found) == "fail"
    assert "(parts of it claim different contributors)" in details(found)["merges_are_right"]


TEXT = """\
name: rows
seed: 3
topology: {kind: star, hosts: 6, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 4
workload: {kind: training, model: mlp, batch: 8, learning_rate: 0.2, steps: 4}
codec: {kind: bird}
collective: {kind: parameter_server}
faults: [{kind: loss, rate: 1%}]
"""
GATHERING = ("{kind: all_gather}", "{kind: parameter_server}", "{kind: parameter_server, servers: 2}")


def measured(folder: Path, codec: str, collective: str) -> dict[str, Any]:
    """Metrics of a run whose checks pass."""
    result = simulate(folder, f"codec={{kind: {codec}}}", f"collective={collective}", text=TEXT)
    assert {check.verdict for check in result.records.checks} == {"pass"}
    return metrics_of(result)


def test_the_same_rows_and_losses_wherever_they_are_summed(tmp_path: Path) -> None:
    """Also in lanes of another width: sums of signs are integers."""
    cases = [(4, "ring"), (8, "ring"), (32, "parameter_server"), (8, "all_gather")]
    cases += [(bits, "in_network, program: switchml") for bits in (4, 32)]
    found = [measured(tmp_path, f"bird_shared, lanes: {bits}", f"{{kind: {kind}}}") for bits, kind in cases]

    assert len({one["loss"] for one in found}) == 1
    assert {one.get("overflowed_words", 0) for one in found} == {0}


def test_a_server_s_sum_is_that_of_every_worker(tmp_path: Path) -> None:
    found = [
        measured(tmp_path, f"bird, down: {down}", collective)
        for down, collective in zip(("sum", "rows", "sum", "rows"), (*GATHERING, GATHERING[1]), strict=True)
    ]

    assert len({(one["loss"], one["nmse"]) for one in found}) == 1


def test_more_workers_than_lanes_have_room_for(tmp_path: Path) -> None:
    wide = ("topology.hosts=9", "workers=8", "codec={kind: bird_shared, lanes: 4}", "collective={kind: ring}")

    found = refused(tmp_path, *wide, text=TEXT)

    assert "codec.lanes: bird_shared has room for 7 workers, found 8" in found
    assert "use codec.lanes: 32" in found


def test_one_index_for_a_row(tmp_path: Path) -> None:
    """Of the MLP's 128 rows of 64 elements at most 13 are sent, and 1 of 10 rows of 128."""
    found = measure(tmp_path, text=TEXT)
    words = 4 + 1 + (13 * 65 + 129) // 32 + 1 + 14 + 2  # scales, a number, signs, indices, rows of layers

    assert found["payload_bytes_up"] <= 4 * 4 * words
    assert found["compression_ratio"] >= 4 * 9610 / (4 * words)


SASG_STEPS, SASG_WORKERS, SASG_SEED, SASG_ELEMENTS = 12, 4, 7, 9610
SASG_TEXT = f"""\
name: sasg
seed: {SASG_SEED}
topology: {{kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: tofino1}}
workers: {SASG_WORKERS}
workload: {{kind: training, model: mlp, batch: 8, learning_rate: 0.2, steps: {SASG_STEPS}}}
codec: {{kind: sasg, staleness: 4}}
device: {{kind: fixed, forward: 10us, backward: 20us, memory_rate: 800Gbps}}
collective: {{kind: parameter_server}}
"""
SWITCH = "collective={kind: in_network, program: switchml, frame: udp-256}"
SUMMED = "codec={kind: sasg_summed, staleness: 4}"
LOSS = "faults=[{kind: loss, rate: 1%}]"
TREE = "topology={kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: sharp}"
ALIKE = (
    ("collective={kind: parameter_server, servers: 2, placement: beside_workers, chunk: 1KiB}", LOSS),
    ("collective={kind: parameter_server}", "codec.down=union"),
    (SUMMED, SWITCH, LOSS),
    (SUMMED, SWITCH, "overlap={buckets_in_flight: 3, encode: on_device}", "workload.bucket=4KB", LOSS),
    (SUMMED, "collective={kind: in_network}", "codec.index=none", "overlap={order: first_layer}"),
    (SUMMED, TREE, "collective={kind: in_network, program: tree}"),
    (SUMMED, "collective={kind: ring}", LOSS),
)
ALIKE_BY_NIGHT = (  # by day `tests/pairs` has every codec on every collective
    ("collective={kind: all_gather}", "codec.down=union", "overlap={encode: on_device}"),
    (SUMMED, "collective={kind: all_gather}"),
)
HEADER = 14 + 20 + 8 + 8 + 2 + 4 + 20 + 4  # udp-256 on the wire without words, and who contributed


@cache
def sasg(*sets: str) -> VariantResult:
    """The training over a network."""
    return result_of(resolve(load(ScenarioText(SASG_TEXT, "sasg.yaml"), sets)))


@cache
def locally(kind: str, bucket: int = 25_000_000) -> LocalTraining:
    """The same training in one process."""
    codecs = {"lists": Sasg(staleness=4), "summed": SasgSummed(staleness=4)}
    spec = Training("mlp", batch=8, learning_rate=0.2, fusion=BySize(bucket))
    return train(spec, codecs[kind], SASG_WORKERS, SASG_SEED, SASG_STEPS)


def assert_same(result: VariantResult, local: LocalTraining, buckets: int = 1) -> None:
    """All checks pass; the same losses in every step, bit for bit, and the same uploads."""
    assert {check.name: check.verdict for check in result.records.checks if check.verdict != "pass"} == {}
    assert [step.loss for step in result.records.steps] == local.losses
    uploads = [0] * SASG_STEPS
    for record in result.records.rounds:
        uploads[record.step] += record.uploads
    assert uploads == [buckets * count for count in local.uploads]
    assert 0 < local.uploads_count < SASG_STEPS * SASG_WORKERS
    assert min(local.uploads) < SASG_WORKERS == max(local.uploads)


@pytest.mark.parametrize("sets", [*ALIKE, *(pytest.param(sets, marks=nightly) for sets in ALIKE_BY_NIGHT)])
def test_training_is_alike_over_every_collective(sets: tuple[str, ...]) -> None:
    """Lists and sums, with 1 % loss where packets can be lost."""
    result = sasg(*sets)

    assert all(record.merges_verified for record in result.records.rounds)
    if "workload.bucket=4KB" in sets:
        assert_same(result, locally("summed", 4000), buckets=2)
    else:
        assert_same(result, locally("summed" if SUMMED in sets else "lists"))


def test_skipped_workers_headers_are_counted_on_the_wire() -> None:
    """Every worker sends a header for each packet of the others, and words only where it uploads."""
    units = -(-SASG_ELEMENTS // 64)
    result = sasg(SUMMED, SWITCH, "codec.index=none")

    assert len({record.uploads for record in result.records.rounds}) > 2
    for record in result.records.rounds:
        assert record.wire_bytes_up == units * (SASG_WORKERS * HEADER + 256 * record.uploads)
        assert record.payload_bytes_up == 4 * SASG_ELEMENTS * record.uploads


def test_a_switch_saves_what_a_server_sends_down() -> None:
    """The busiest link is the server's: four dense sums a step. A switch sends each worker one."""

    def busiest_bytes(*sets: str) -> int:
        return max(link.bytes for link in sasg(*sets).records.links)

    server = busiest_bytes()
    dense, packed = busiest_bytes(SUMMED, SWITCH, "codec.index=none"), busiest_bytes(SUMMED, SWITCH)

    assert server > SASG_STEPS * SASG_WORKERS * 4 * SASG_ELEMENTS * 0.9
    assert dense < server / 2
    assert packed < server / 10


def test_uploads_and_skips_are_counted_in_the_summary() -> None:
    found = metrics_of(sasg())

    count = locally("lists").uploads_count
    assert (found["uploads"], found["skips"]) == (count, SASG_STEPS * SASG_WORKERS - count)
    sent = 8 * (81 + 1 + 12 + 1)  # of 8192, 128, 1280 and 10 elements
    assert found["payload_bytes_up"] == sent * count / (SASG_STEPS * SASG_WORKERS)


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
