"""Runs whose merges are wrong fail whatever their codec promises; the same runs without the fault pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold
from netfold.homomorphic.message import Message
from netfold.sim.collectives.collective import OperationPlace, Wait
from netfold.sim.collectives.in_network.run import InNetwork
from netfold.sim.engine.tables.addresses import address_of
from netfold.sim.engine.tables.schedule_rows import OWN
from netfold.sim.results import summarize
from netfold.sim.run.outcome import VariantResult
from tests.sim.sabotage import Due, before_merges, ignore_weights
from tests.sim.scenes import simulate
from tests.sim.toys import FloatCodec, SignCodec, registered, scenario

RING = {"kind": "ring", "frame": "roce-1024"}
SWITCHML = {"kind": "in_network", "program": "switchml", "frame": "udp-256", "slots": 16}
TREE = {"kind": "in_network", "program": "tree", "frame": "roce-1024"}
RACKS = {"kind": "leaf_spine", "leaves": 3, "spines": 1, "hosts_per_leaf": 5, "switch": "ideal"}
LOSSES = [{"kind": "loss", "rate": "3%"}, {"kind": "duplicate", "rate": "20%"}]
DAMAGE = [{"kind": "corruption", "detected": False, "rate": "30%", "links": ["h1->s0"]}]
ANY_MERGE = "topology.switch=ideal"
LARGE = "codec={kind: fixed_point, factor: 4.5e8}"  # some sums leave int32: their units are sent as floats
ATP = "collective={kind: in_network, program: atp, frame: atp}"
BOTH = pytest.mark.parametrize("codec", ["toy_sign", "toy_float"])
LONG = {"kind": "synthetic", "elements": 262_144, "steps": 2}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    with registered(SignCodec, FloatCodec):
        yield


FLOATS = {"merges_are_right", "sum_is_right"}  # a sum that lacks a worker is far from the gradients', too


def failures(folder: Path, given: dict[str, Any]) -> dict[str, str]:
    """Failed checks of a run, whose verdict they are."""
    run = netfold.run(given, out=folder)
    found = {name: detail for _, name, verdict, detail in run.checks.rows() if verdict != "pass"}
    assert (run.verdict == "fail") == bool(found)
    return found


@BOTH
@pytest.mark.parametrize(
    ("collective", "faults"),
    [(RING, LOSSES), (SWITCHML, LOSSES), (TREE, [])],
    ids=["ring", "switchml", "tree"],
)
def test_sound_runs_pass(tmp_path: Path, codec: str, collective: dict[str, Any], faults: list[Any]) -> None:
    """Switches with 5, 5 and 1 worker below them, whose partial results have these weights."""
    where = collective if collective is RING else {**collective, "aggregators": "tree"}

    given = scenario(codec, 11, topology=RACKS, collective=where, faults=faults)

    assert failures(tmp_path, given) == {}


@BOTH
def test_damaged_packets_on_one_uplink(tmp_path: Path, codec: str) -> None:
    given = scenario(codec, collective=SWITCHML)

    assert failures(tmp_path / "sound", given) == {}
    failed = failures(tmp_path, given | {"faults": DAMAGE})

    assert set(failed) == (FLOATS if codec == "toy_float" else {"merges_are_right"})
    place = {
        "toy_sign": r"\d+ of 3750 merged sign words are wrong, first at worker 0, word \d+ of 'signs' "
        r"\(step \d, bucket 0, operation 0\) \(no worker sent its bits 0x[0-9a-f]{8}\)",
        "toy_float": r"\d+ of 120000 merged float32 words are not within .* of the words sent, first in "
        r"step \d, bucket 0, worker 0, word \d+ of 'values' \(received .*, the sum is .*\)",
    }
    slot = r": slot \d+, version \d, unit \d+ of stream \d"
    assert re.fullmatch(place[codec] + slot, failed["merges_are_right"])


def test_damaged_results_at_one_worker(tmp_path: Path) -> None:
    """On the way down: where sent bits differ, a flipped one is some worker's, but no other received it."""
    damage = [{"kind": "corruption", "detected": False, "rate": "30%", "links": ["s0->h2"]}]

    failed = failures(tmp_path, scenario("toy_sign", collective=SWITCHML, faults=damage))

    assert set(failed) == {"merges_are_right", "replicas_agree"}
    assert "first at worker 2, word " in failed["merges_are_right"]
    assert re.search(r"\(received 0x\w{8}, worker 0 received 0x\w{8}\): slot ", failed["merges_are_right"])


def test_a_ring_that_ignores_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An arriving bit survives with probability 1/2, so each segment prefers another worker.

    Only stretches of the words show it.
    """
    given = scenario("toy_sign", 8, workload=LONG, collective=RING)
    assert failures(tmp_path / "sound", given) == {}
    ignore_weights(monkeypatch)

    failed = failures(tmp_path, given)

    assert set(failed) == {"merges_are_right"}
    found = re.fullmatch(
        r"worker (\d)'s bits survive more often than its weight allows in words (\d+) to (\d+) of 'signs' "
        r"\(step 0, bucket 0, operation 0\): \d+ bits off the mean \((\d+\.\d) standard deviations\), at "
        r"most \d+ allowed",
        failed["merges_are_right"],
    )
    assert found is not None
    worker, first, last = (int(found[group]) for group in (1, 2, 3))
    assert (
        first // 1024 == last // 1024 == (worker + 1) % 8
    )  # it is the last to merge its successor's segment
    assert float(found[4]) > 25


def test_a_ring_that_drops_a_worker_s_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives at worker 2 is merged with zeros."""
    zeros = np.zeros(20_000, np.float32)

    def strike(due: Due) -> None:
        if due.target == 2:
            assert (due.own["state"] == OWN).all()
            due.own["address"] = address_of(zeros)

    before_merges(monkeypatch, strike)

    failed = failures(tmp_path, scenario("toy_float", 4, collective=RING))

    assert set(failed) == FLOATS
    assert " merged float32 words are not within " in failed["merges_are_right"]
    assert "around the ring" in failed["merges_are_right"]


@BOTH
def test_a_switch_that_drops_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """Worker 1's words reach the switch as zeros."""
    original = InNetwork.exchange

    def exchange(self: InNetwork, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        if worker == 1:
            messages = tuple(replace(one, words=np.zeros_like(one.words)) for one in messages)
        return (yield from original(self, worker, messages, place))

    monkeypatch.setattr(InNetwork, "exchange", exchange)

    failed = failures(tmp_path, scenario(codec, 4, collective=SWITCHML))

    assert set(failed) == (FLOATS if codec == "toy_float" else {"merges_are_right"})
    assert "step 0, bucket 0" in failed["merges_are_right"]


def published(ratio: int) -> tuple[str, ...]:
    """The released code's sketch in float32, most of whose members are estimates."""
    codec = f"codec={{kind: lossless, setting: published, values: float32, index_bits: 1, ratio: {ratio}}}"
    sizes = "topology.hosts=8", "workers=8", "workload.elements=50000", "workload.density=30%"
    return codec, ANY_MERGE, *sizes, "collective.slots=8"


def failed_of(result: VariantResult) -> dict[str, str]:
    return {check.name: check.detail for check in result.checks if check.verdict == "fail"}


def test_estimates_are_made_of_sums_that_were_added_right(tmp_path: Path) -> None:
    result = simulate(tmp_path, *published(5))

    (said,) = failed_of(result).items()
    assert said[0] == "sum_is_right"  # not merges_are_right
    assert said[1].startswith("totals are far from the sums of the gradients, which workers contribute whole")


@pytest.mark.parametrize(
    ("ratio", "fault"),
    [
        (5, "{kind: duplicate, rate: 2%, delay: 20us}"),
        (50, "{kind: corruption, detected: false, rate: 20%, links: ['h0->*']}"),
    ],
    ids=["copies", "flips"],
)
def test_wrong_sums_do_not_pass_as_approximate(tmp_path: Path, ratio: int, fault: str) -> None:
    result = simulate(tmp_path, *published(ratio), f"faults=[{fault}]")

    assert result.faults[0].count > 0
    assert summarize(result.facts, result.records)["verdict"] == "fail"
    assert " merged float32 words are not within " in failed_of(result)["merges_are_right"]
    assert ": slot " in failed_of(result)["merges_are_right"]


def test_atp_s_float_units_are_held_to_the_words_sent(tmp_path: Path) -> None:
    (job,) = simulate(tmp_path, ATP, LARGE).jobs
    checks = {check.name: (check.verdict, check.detail) for check in job.checks}

    assert {passed for passed, _ in checks.values()} == {"pass"}
    assert checks["merges_are_right"][1].endswith(
        " merged float32 words are within (n − 1) · 2⁻²⁴ · Σ|x| of the words sent"
    )
    count = int(checks["merges_are_right"][1].split()[1])
    assert 0 < count < 3000
    assert checks["merges_are_exact"][1] == "all merged integer words of 1 rounds equal their integer sums"
