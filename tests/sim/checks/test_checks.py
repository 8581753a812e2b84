"""Every check can fail: something is damaged on purpose, and the verdict says what and where."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.codec import Exchange
from netfold.homomorphic.codecs.dense.encoders import BlockEncoder
from netfold.homomorphic.message import Gradient, Merged, Message
from netfold.homomorphic.round import Round
from netfold.sim.checks.journal import RoundLog
from netfold.sim.collectives.collective import OperationPlace, Wait
from netfold.sim.collectives.in_network.run import InNetwork
from netfold.sim.run.job import TrainingJob
from netfold.sim.workload import Bucket
from tests.sim.scenes import simulate

TWO_STEPS_TWO_BUCKETS = ("workload.steps=2", "workload.bucket=2000B")
PASSING = {
    "finishes": "all 1 steps are done",
    "decodes": "all 1 rounds decoded at once",
    "nothing_leaked": "every slot and entry of the switches is free or complete",
    "merges_are_exact": "all merged words of 1 rounds equal their integer sums",
    "merges_are_right": "no words were added as floats",
    "replicas_agree": "all workers decoded the same bits in 1 rounds",
    "nothing_lost": "1 of 1 rounds aggregated; 0 packets lost or dropped on the way",
    # 16 blocks of 64 words and the exponents ahead of them: 3 workers up, 3 down, and results once round
    # the loopback, 332 B each.
    "conservation": f"{32 * 7 * 332} B sent on 9 links, every byte delivered, lost or in flight",
    "switches_add_up": "every packet into a switch left it, was dropped there, or was added up",
}


def findings(folder: Path, *sets: str) -> dict[str, tuple[str, str]]:
    """Verdict and detail of each check."""
    return {check.name: (check.verdict, check.detail) for check in simulate(folder, *sets).checks}


def failures(folder: Path, *sets: str) -> dict[str, str]:
    return {name: detail for name, (verdict, detail) in findings(folder, *sets).items() if verdict != "pass"}


def damage_words(monkeypatch: pytest.MonkeyPatch, by: int, where: Callable[[int, int], bool]) -> None:
    """Add to word 5 of what a worker receives in its n-th operation, where(worker, n)."""
    original = InNetwork.exchange
    counts: dict[int, int] = {}

    def exchange(self: InNetwork, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        merged: tuple[Merged, ...] = yield from original(self, worker, messages, place)
        number = counts[worker] = counts.get(worker, -1) + 1
        if where(worker, number):
            words = merged[0].words.copy()
            words[5] += by
            merged = (dataclasses.replace(merged[0], words=words), *merged[1:])
        return merged

    monkeypatch.setattr(InNetwork, "exchange", exchange)


def damage_decoded(monkeypatch: pytest.MonkeyPatch, element: int, value: float, step: int = 0) -> None:
    """Replace an element that every worker decodes in one step."""
    original = BlockEncoder.exchange

    def exchange(self: BlockEncoder, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from original(self, gradient, round)
        if round.step == step:
            decoded.total[element] = value
        return decoded

    monkeypatch.setattr(BlockEncoder, "exchange", exchange)


def drop_rounds(monkeypatch: pytest.MonkeyPatch, dropped: Callable[[int, int], bool]) -> None:
    """Let rounds end without being written down, where dropped(step, bucket)."""
    original = TrainingJob._close

    def close(self: TrainingJob, step: int, bucket: Bucket, log: RoundLog) -> None:
        if not dropped(step, bucket.index):
            original(self, step, bucket, log)

    monkeypatch.setattr(TrainingJob, "_close", close)


def test_all_is_well(tmp_path: Path) -> None:
    found = findings(tmp_path)

    verdict, detail = found.pop("sum_is_right")
    assert verdict == "pass"
    assert detail.startswith("largest error ")
    assert detail.endswith(" of the codec's bound")
    assert {name: ("pass", detail) for name, detail in PASSING.items()} == found


def test_a_damaged_word_at_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage_words(monkeypatch, 2**20, lambda worker, number: (worker, number) == (1, 3))

    assert failures(tmp_path, *TWO_STEPS_TWO_BUCKETS) == {
        # 500 words are 8 blocks, so a stream is 16 units over 8 window slots: an even number in each.
        "merges_are_exact": "1 merged words are wrong, first in step 1, bucket 1, worker 1, "
        "word 5 of 'values' (received 414036184, the sum is 412987608): "
        "slot 0, version 1, unit 8 of stream 3",
        "sum_is_right": "largest error 0.00586, at most 1.34e+04 of the codec's bound, "
        "at step 1, bucket 1, element 5; merged wrong at worker 1, word 5 of 'values' (received 414036184, "
        "the sum is 412987608): slot 0, version 1, unit 8 of stream 3",
        "replicas_agree": "workers differ in 1 rounds, first step 1, bucket 1",
    }


def test_the_same_damage_at_every_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit of 2**31 is within the bound: only the integer check can see it."""
    damage_words(monkeypatch, 1, lambda worker, number: True)

    assert failures(tmp_path, *TWO_STEPS_TWO_BUCKETS) == {
        "merges_are_exact": "12 merged words are wrong, first in step 0, bucket 0, worker 0, "
        "word 5 of 'values' (received -75954308, the sum is -75954309): "
        "slot 0, version 1, unit 8 of stream 0",
    }


def test_a_decoded_element_off_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage_decoded(monkeypatch, element=77, value=1000.0, step=1)

    (failure,) = failures(tmp_path, "workload.steps=3").items()

    name, detail = failure
    assert name == "sum_is_right"
    assert detail.startswith("largest error 1e+03, at most ")
    assert detail.endswith(" of the codec's bound, at step 1, bucket 0, element 77")
    assert float(detail.split("at most ")[1].split()[0]) > 1e6


@pytest.mark.parametrize("missing", [{(1, 0)}, {(0, 1), (1, 1)}])
def test_rounds_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: set[tuple[int, int]]
) -> None:
    drop_rounds(monkeypatch, lambda step, bucket: (step, bucket) in missing)

    assert failures(tmp_path, *TWO_STEPS_TWO_BUCKETS) == {
        "nothing_lost": f"{4 - len(missing)} of 4 rounds aggregated; 0 packets lost or dropped on the way"
    }


def test_workers_that_read_different_words_send_different_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit more in one worker's copy of the index: it sends one value more than the others."""
    original = InNetwork.exchange

    def exchange(self: InNetwork, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        merged: tuple[Merged, ...] = yield from original(self, worker, messages, place)
        if worker == 1 and messages[0].label == "index":
            words = merged[0].words.copy()
            words[3] |= words[3] + np.uint32(1)  # the lowest bit that is not set
            merged = (dataclasses.replace(merged[0], words=words), *merged[1:])
        return merged

    monkeypatch.setattr(InNetwork, "exchange", exchange)

    failed = failures(tmp_path, "codec={kind: packed}", "workload.density=5%")

    assert set(failed) == {"finishes", "decodes", "sum_is_right", "nothing_lost"}
    found = re.fullmatch(
        r"worker (\d) sends 'values' \(add of (\d+) int32 words\) where worker (\d) sends 'values' \(add of "
        r"(\d+) int32 words\) \(step 0, bucket 0, operation \d\): they read different words of 'index', so "
        r"some were damaged on the way",
        failed["finishes"],
    )
    assert found is not None
    counts = {int(found[1]): int(found[2]), int(found[3]): int(found[4])}
    assert 1 in counts
    assert sorted(counts.values()) == [counts[1] - 1, counts[1]]
