"""Workers that have nothing to contribute, through `netfold.run`: a codec that skips by a keyed rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import netfold
from netfold.homomorphic import codec as registry
from netfold.homomorphic.bounds import ErrorBound, FactorBound, FloatAddBound
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Scaling
from netfold.homomorphic.numbers.exponents import block_exponents, scales_of
from netfold.homomorphic.round import Round
from netfold.sim.collectives.in_network.run import InNetwork
from netfold.sim.network.fabric import Fabric
from tests.sim.sabotage import Due, before_merges

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
RACKS = {"kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 4, "switch": "ideal"}
SWITCHES = {"kind": "in_network", "aggregators": "tree", "switch": "spine0"}
COLLECTIVES: dict[str, dict[str, Any]] = {
    "ring": {"collective": {"kind": "ring"}},
    "torus": {"collective": {"kind": "torus_2d", "rows": 3}},
    "switchml": {},
    "roce": {"collective": {"kind": "in_network", "slots": 8}},
    "tree": {"collective": {"kind": "in_network", "program": "tree"}},
    "timed": {"collective": {"kind": "in_network", "program": "timed", "slot_timer": "1ms"}},
    "two racks": {"topology": RACKS, "collective": {**SWITCHES, "frame": "udp-256"}},
    "tree of sharp": {"topology": RACKS, "collective": {**SWITCHES, "program": "tree"}},
}
FAULTS = {
    "loss": [{"kind": "loss", "rate": "5%"}],
    "copies": [{"kind": "duplicate", "rate": "5%"}],
}


def is_absent(who: str, rank: int, step: int) -> bool:
    """The rule that all workers know."""
    return {
        "none": False,
        "some": mix_plain(rank, step, 99) % 3 == 0,
        "all": True,
        "others": rank != 2,
        "in turn": step % WORKERS == rank,
    }[who]


@dataclass(frozen=True)
class Skipper(Codec):
    """Sums of those workers that do not skip.

    absent: who skips.
    words: added as integers, as floats, or as integers with agreed exponents.
    declares: whether it says that a worker may be absent.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "skipper"
    seen: ClassVar[list[tuple[int, int, int, list[int]]]] = []  # rank, step, contributors and which

    absent: str = "some"
    words: str = "integers"
    declares: bool = True

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.FLOAT_ADD if self.words == "floats" else Merge.ADD})

    @property
    def is_linear(self) -> bool:
        return self.words != "scaled"

    @property
    def may_be_absent(self) -> bool:
        return self.declares

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return SkippingEncoder(self, rank)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        if self.words == "floats":
            return FloatAddBound(len(contributions))
        return FactorBound(len(contributions), 1e4 if self.words == "scaled" else 1e6, may_be_float=False)


@dataclass(frozen=True)
class SkippingEncoder(Encoder):
    """One worker's side."""

    codec: Skipper
    rank: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        is_out = is_absent(self.codec.absent, self.rank, round.step)
        whole = self._message(gradient, round)
        message = whole if not is_out else without_words(whole)
        (merged,) = yield (message,)
        present = merged.present if merged.present is not None else np.ones(round.workers, np.bool_)
        Skipper.seen.append((self.rank, round.step, merged.workers, np.flatnonzero(present).tolist()))
        return Decoded(self._sums(merged, round), np.zeros_like(gradient) if is_out else gradient)

    def _message(self, gradient: Gradient, round: Round) -> Message:
        if self.codec.words == "floats":
            return Message(gradient, Merge.FLOAT_ADD, "values")
        if self.codec.words == "scaled":
            scaling = Scaling(block_exponents(gradient, 64, round.workers), 64, round.workers)
            return Message(gradient, Merge.ADD, "values", scaling=scaling)
        return Message(np.rint(gradient * 1e6).astype(np.int32), Merge.ADD, "values")

    def _sums(self, merged: Merged, round: Round) -> Gradient:
        if self.codec.words == "floats":
            return merged.words.copy()
        if self.codec.words == "scaled":
            assert merged.exponents is not None
            scales = np.repeat(scales_of(merged.exponents, round.workers), 64)[: merged.words.size]
            return (merged.words / scales).astype(np.float32)
        return (merged.words / 1e6).astype(np.float32)


def without_words(message: Message) -> Message:
    """The message of a worker that skips."""
    return Message(
        message.words[:0],
        message.merge,
        message.label,
        scaling=message.scaling,
        absent_words=message.words.size,
    )


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    netfold.register(Skipper)
    Skipper.seen.clear()


def run(folder: Path, **changes: Any) -> Any:
    return netfold.run({**SCENARIO, **changes}, out=folder)


def assert_seen(who: str) -> None:
    """Every worker was told who contributed, in every step."""
    assert len(Skipper.seen) == WORKERS * STEPS
    for _, step, count, present in Skipper.seen:
        right = [rank for rank in range(WORKERS) if not is_absent(who, rank, step)]
        assert (count, present) == (len(right), right)


WHO = ("some", "none", "all", "others", "in turn")
WORDS = ("integers", "floats", "scaled")
RUNS = [  # every network, with the words and with those who are absent in turn
    (name, WHO[(number + turn) % 5], WORDS[(number + turn) % 3])
    for number, name in enumerate(COLLECTIVES)
    for turn in range(2)
]


@pytest.mark.parametrize(("name", "who", "words"), RUNS)
def test_sums_are_those_of_the_workers_that_are_there(
    tmp_path: Path, name: str, who: str, words: str
) -> None:
    words = "integers" if (name, words) == ("timed", "scaled") else words  # timers need a linear codec
    found = run(tmp_path, **COLLECTIVES[name], codec={"kind": "skipper", "absent": who, "words": words})

    assert found.verdict == "pass", found
    assert_seen(who)


@pytest.mark.parametrize(
    ("name", "who", "fault"),
    [
        ("ring", "some", "loss"),
        ("torus", "others", "copies"),
        ("switchml", "all", "loss"),
        ("roce", "some", "copies"),
        ("two racks", "others", "loss"),
    ],
)
def test_headers_are_lost_and_come_twice_like_any_packet(
    tmp_path: Path, name: str, who: str, fault: str
) -> None:
    codec = {"kind": "skipper", "absent": who}
    workload = {**SCENARIO["workload"], "elements": 10_000}
    found = run(tmp_path, **COLLECTIVES[name], codec=codec, faults=FAULTS[fault], workload=workload)

    assert found.verdict == "pass", found
    assert_seen(who)
    if fault == "loss":
        assert found.variants["packets_retransmitted"][0] > 0


def test_a_codec_that_has_not_declared_it_ends_the_run(tmp_path: Path) -> None:
    found = run(tmp_path, codec={"kind": "skipper", "declares": False})

    assert found.verdict == "fail"
    (detail,) = (
        check["detail"] for check in found.summary["variants"][0]["checks"] if check["name"] == "finishes"
    )
    assert "message 'values': its worker contributes nothing to 1000 words by add, and " in detail
    assert "'skipper' does not declare that a worker may be absent" in detail


def test_a_missing_worker_is_told_from_absent_ones(tmp_path: Path) -> None:
    """Worker 2 alone has words; the headers of worker 5 are lost, and all wait for these."""
    dead = [{"kind": "loss", "rate": "100%", "links": ["h5->s0"]}]
    found = run(tmp_path, codec={"kind": "skipper", "absent": "others"}, faults=dead)

    assert found.verdict == "stuck"
    (finishes,) = (check for check in found.summary["variants"][0]["checks"] if check["name"] == "finishes")
    assert "link h5->s0 loses every packet" in finishes["detail"]
    assert "unit 0 of stream 0 at s0: worker 5 missing" in finishes["detail"]


def test_switch_results_that_claim_another_worker_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are right. Bits of the bitmap are swapped where the result is read."""
    right = InNetwork._with_members

    def swapped(self: InNetwork, merged: Merged, workers: int, bitmap: np.uint32) -> Merged:
        return right(self, merged, workers, np.uint32(int(bitmap) >> 1 | (int(bitmap) & 1) << WORKERS - 1))

    monkeypatch.setattr(InNetwork, "_with_members", swapped)
    for words, check in (("integers", "merges_are_exact"), ("floats", "merges_are_right")):
        found = run(tmp_path, codec={"kind": "skipper", "absent": "in turn", "words": words})
        details = {one["name"]: one["detail"] for one in found.summary["variants"][0]["checks"]}
        assert found.verdict == "fail"
        assert "(it claims words of workers 0, 1, 2, 3, 4, 5, 6; they were sent by" in details[check]


def test_a_ring_that_counts_absent_workers_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    found = run(tmp_path, **COLLECTIVES["torus"], codec={"kind": "skipper", "words": "floats"})
    details = {one["name"]: one["detail"] for one in found.summary["variants"][0]["checks"]}
    assert found.verdict == "fail"
    assert "(parts of it claim different contributors)" in details["merges_are_right"]
