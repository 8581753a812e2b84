"""What packets carry: all gradients, a few for all workers, some buckets, no words; sizes stay the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import netfold
from netfold.errors import ScenarioError
from netfold.homomorphic.codec import (
    BitsPerElement,
    Codec,
    Decoded,
    Encoder,
    Exchange,
    Request,
    Server,
    codec_kinds,
    make_encoders,
)
from netfold.homomorphic.error_bounds import ErrorBound, count_inexact, sums_of_parts
from netfold.homomorphic.fold import fold
from netfold.homomorphic.merge import Merge, Words
from netfold.homomorphic.message import Gradient, Message, Round, Step
from netfold.sim.results.summary import PATTERN, verdict_of_share, worst
from netfold.sim.scenario.run_limits import most_bytes
from netfold.sim.workload.synthetic import SampledPayload, SyntheticSpec, buckets_with_words
from tests.homomorphic.test_error_bounds import rounded
from tests.registry import registered
from tests.sim.scenes import DENSE, RING, entry_of, plan, simulate
from tests.sim.toys import Wide

WORKERS, ELEMENTS = 8, 5000
SCENARIO: dict[str, Any] = {
    "name": "payload",
    "topology": {
        "kind": "leaf_spine",
        "leaves": 2,
        "spines": 2,
        "hosts_per_leaf": 4,
        "rate": "100Gbps",
        "delay": "1us",
        "switch": "fpga",
    },
    "workers": WORKERS,
    "workload": {"kind": "synthetic", "elements": ELEMENTS, "steps": 2},
    "codec": {"kind": "none"},
    "variants": {
        "codec": {
            "float": {"kind": "none"},
            "blocks": {"kind": "fixed_point"},
            "factor": {"kind": "fixed_point", "factor": 1e6},
        },
        "collective": {
            "ring": {"kind": "ring"},
            "tree": {"kind": "tree"},
            "switches": {"kind": "in_network", "aggregators": "tree"},
        },
    },
}
VALUES = {"nonzeros", "union_nonzeros", "merges_verified", "bit_exact", "max_abs_error", "nmse", "cosine"}


def run(
    folder: Path, payload: object, sizes: Mapping[str, object] = MappingProxyType({}), **more: Any
) -> netfold.Run:
    workload = {**SCENARIO["workload"], **sizes, "payload": payload}
    return netfold.run({**SCENARIO, **more, "workload": workload}, out=folder, code=False)


def test_without_words_times_packets_and_bytes_are_the_same(tmp_path: Path) -> None:
    whole, bare = run(tmp_path / "all", "all"), run(tmp_path / "none", "none")
    for table in ("steps", "links", "phases"):
        assert getattr(bare, table).equals(getattr(whole, table)), table
    left_out = {*VALUES, "max_error_over_bound"}
    assert bare.rounds.drop(left_out).equals(whole.rounds.drop(left_out))
    assert whole.verdict == "pass"
    assert bare.verdict == "pass: sums not checked"
    for variant in bare.summary["variants"]:
        metrics = variant["metrics"]
        assert {metrics[name] for name in ("merges_verified", "bit_exact", "nmse", "max_abs_error")} == {None}
        (unchecked,) = (check for check in variant["checks"] if check["verdict"] != "pass")
        assert unchecked["name"] == "sum_is_right"


SWITCH = {"kind": "in_network"}
FACTOR = {"kind": "fixed_point", "factor": 1e6}
SAMPLE = {"sample": 2}
TRIO, SHARP = ({"topology": {**SCENARIO["topology"], "switch": switch}} for switch in ("trio", "sharp"))
SAMPLED: dict[str, dict[str, Any]] = {
    "ring": {"codec": {"kind": "none"}, "collective": {"kind": "ring"}},
    "halving": {"codec": {"kind": "fixed_point"}, "collective": {"kind": "halving_doubling"}},
    "tree": {"codec": {"kind": "fp16", "feedback": False}, "collective": {"kind": "tree"}},
    "server": {"codec": {"kind": "majority"}, "collective": {"kind": "parameter_server"}},
    "gather": {"codec": {"kind": "topk", "feedback": False}, "collective": {"kind": "all_gather"}},
    "hops": {"codec": {"kind": "cascaded_sign", "feedback": False}, "collective": {"kind": "ring"}},
    "switchml": {"codec": {"kind": "fixed_point"}, "collective": {**SWITCH, "program": "switchml"}},
    "atp": {"codec": FACTOR, "collective": {**SWITCH, "program": "atp"}},
    "timed": {
        "codec": FACTOR,
        "collective": {**SWITCH, "program": "timed", "slot_timer": "1ms"},
        **TRIO,
        "faults": [{"kind": "loss", "rate": "5%", "links": ["h*->leaf*"]}],
    },
    "sharp": {"codec": {"kind": "none"}, "collective": {**SWITCH, "program": "tree"}, **SHARP, "faults": []},
}


def test_sampled_buckets_are_checked_and_all_times_packets_and_bytes_are_the_same(tmp_path: Path) -> None:
    """Four buckets, of which the last is short; in two steps each is sampled once."""
    lossy: dict[str, Any] = {
        "workers": WORKERS - 1,
        "faults": [{"kind": "loss", "rate": "2%"}],
        "variants": [{"name": name, **keys} for name, keys in SAMPLED.items()],
    }
    sizes = {"elements": 1700, "bucket": "2KB", "steps": 2}
    whole, part = (
        run(tmp_path / str(number), payload, sizes, **lossy) for number, payload in enumerate(["all", SAMPLE])
    )
    assert whole.links["lost_packets"].sum() > 100
    for table in ("steps", "links", "phases"):
        assert getattr(part, table).equals(getattr(whole, table)), table
    left_out = {*VALUES, "max_error_over_bound"}
    assert part.rounds.drop(left_out).equals(whole.rounds.drop(left_out))
    round_keys = ["variant", "step", "bucket"]
    checked = part.rounds.filter(pl.col("merges_verified").is_not_null())
    assert checked.equals(whole.rounds.join(checked, on=round_keys, how="semi"))
    for variant in part.summary["variants"]:
        buckets = checked.filter(pl.col("variant") == variant["name"]).sort("bucket")
        assert buckets["bucket"].to_list() == [0, 1, 2, 3]
        assert set(buckets["step"]) == {0, 1}
        assert variant["verdict"] == "pass: 50 % of sums checked"
        assert variant["metrics"]["checked_share"] == 0.5
        assert variant["metrics"]["merges_verified"] is True
        assert {check["name"] for check in variant["checks"]} >= {"sum_is_right", "replicas_agree", "decodes"}
    assert (whole.verdict, part.verdict) == ("pass", "pass: 50 % of sums checked")
    assert any("packets of one bucket in 2 carry words" in warning for warning in part.summary["warnings"])


@given(
    sample=st.integers(1, 40),
    count=st.integers(1, 30),
    seed=st.integers(0, 2**32),
    begin=st.integers(0, 100),
)
def test_each_bucket_has_its_turn(sample: int, count: int, seed: int, begin: int) -> None:
    spec = SyntheticSpec(1000, payload=SampledPayload(sample=sample))
    steps = range(begin, begin + min(sample, count))
    turns = [list(buckets_with_words(spec, count, seed, step)) for step in steps]
    assert sorted(chain(*turns)) == list(range(count))
    assert all(turns)
    assert all(max(np.diff(turn), default=sample) == sample for turn in turns)


def test_the_seed_decides_which_bucket_is_first() -> None:
    spec = SyntheticSpec(1000, payload=SampledPayload(sample=8))
    firsts = [buckets_with_words(spec, 100, seed, 0)[0] for seed in range(200)]
    assert set(firsts) == set(range(8))
    assert firsts == [buckets_with_words(spec, 100, seed, 8)[0] for seed in range(200)]


class Halving(Server):
    """Answers with the sum and half of what it answered before."""

    def __init__(self) -> None:
        self.held: dict[int, Gradient] = {}

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        total: Gradient = np.sum([part.view(np.float32) for part in parts], axis=0, dtype=np.float32)
        held = self.held.get(request.bucket, np.zeros_like(total))
        self.held[request.bucket] = total + np.float32(0.5) * held
        return self.held[request.bucket].view(np.uint32)


@dataclass(frozen=True)
class Gathered(Codec):
    """Its server has a state, and its encoders see either gradients or zeros, and every step."""

    kind: ClassVar[str] = "gathered"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.GATHER})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return GatheredEncoder()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return Wide(1e9)  # the server's memory is in the sums

    def server(self, workers: int, seed: int) -> Server:
        return Halving()

    def bits_per_element(self, workers: int) -> BitsPerElement:
        return BitsPerElement(32, 32)


class GatheredEncoder(Encoder):
    def __init__(self) -> None:
        self.step = -1
        self.has_values: set[bool] = set()

    def begin(self, step: Step) -> None:
        self.step = step.number

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        self.has_values.add(bool(gradient.any()))
        if len(self.has_values) > 1 or self.step != round.step:
            raise ValueError(f"values {self.has_values} in step {self.step}")
        (merged,) = yield (Message(gradient.view(np.uint32), Merge.GATHER, "values"),)
        return Decoded(merged.words.view(np.float32), np.float32(0.5) * gradient)


def test_states_of_workers_are_of_sampled_rounds_and_a_servers_of_all(tmp_path: Path) -> None:
    with registered(Gathered):
        result = simulate(
            tmp_path,
            "workers=3",
            "codec={kind: gathered}",
            "collective={kind: parameter_server, placement: beside_workers}",
            "workload={kind: synthetic, elements: 1000, bucket: 2KB, steps: 4, payload: {sample: 2}}",
        )
    entry = entry_of(result)
    assert entry["verdict"] == "pass: 50 % of sums checked", entry["checks"]
    (replayed,) = (check["detail"] for check in entry["checks"] if check["name"] == "hosts_merge_right")
    assert "all 6000 words" in replayed  # 4 of 8 rounds, 500 words, 3 workers


def test_a_wrong_sum_fails_where_it_is_sampled(tmp_path: Path) -> None:
    """One bucket of one, and one of four."""
    flips = "faults=[{kind: corruption, rate: 20%, detected: false}]"
    sizes = "workload={kind: synthetic, elements: 20_000, bucket: %s, payload: {sample: 4}}"
    for bucket in ("80KB", "20KB"):
        entry = entry_of(simulate(tmp_path, flips, sizes % bucket))
        failed = {check["name"] for check in entry["checks"] if check["verdict"] == "fail"}
        assert entry["verdict"] == "fail"
        assert failed >= {"sum_is_right", "merges_are_exact"}
    entry = entry_of(simulate(tmp_path, sizes % "80KB"))
    assert entry["verdict"] == "pass"


def test_a_verdict_says_which_share_of_the_sums_is_checked() -> None:
    shares = {(1, 8): "12 %", (999, 1000): "99 %", (1, 1000): "<1 %", (10, 1000): "1 %"}
    for (checked, elements), share in shares.items():
        assert verdict_of_share(checked, elements) == f"pass: {share} of sums checked"
        assert re.fullmatch(PATTERN, verdict_of_share(checked, elements))
    none, least, few, most = (verdict_of_share(checked, 1000) for checked in (0, 1, 10, 500))
    assert none == "pass: sums not checked"
    order = ["pass", "approximate: 3 entries", most, few, least, none, "stalled", "fail"]
    for better, verdict in pairwise(order):
        assert worst([better, verdict, better]) == verdict


def test_memory_is_that_of_the_buckets_that_carry_words(tmp_path: Path) -> None:
    sizes = "workload={kind: synthetic, elements: 25_000_000, bucket: 4MB, payload: %s}"
    need = {
        payload: most_bytes(plan(tmp_path, "topology.hosts=65", "workers=64", RING, DENSE, sizes % payload))
        for payload in ("all", "{sample: 5}", "{sample: 25}", "none")
    }
    whole, fifth, few, none = need.values()
    assert whole - none > 64 * 100e6
    assert (whole - none) / 5 < fifth - none < (whole - none) / 2
    assert none < few < fifth


def test_a_step_with_one_bucket_is_sampled_whole_and_says_so(tmp_path: Path) -> None:
    def notes(bucket: str) -> tuple[str, ...]:
        sizes = f"workload={{kind: synthetic, elements: 1000, bucket: {bucket}, payload: {{sample: 8}}}}"
        return plan(tmp_path, sizes).variants[0].jobs[0].warnings

    assert any("a step has one bucket, so all packets carry words" in note for note in notes("1MB"))
    assert any("packets of one bucket in 4 carry words" in note for note in notes("1KB"))


@pytest.mark.parametrize("shared", [1, 3, 20])
def test_shared_gradients_are_those_of_the_first_workers(tmp_path: Path, shared: int) -> None:
    keep = ["gradients", "totals"]
    whole = run(tmp_path / "all", "all", keep=keep, variants={"collective": {"ring": {"kind": "ring"}}})
    few = run(tmp_path / "few", {"shared": shared}, keep=keep)
    assert few.verdict == "pass"
    for variant in few.variants["name"]:
        for step in range(2):
            gradients = [few.gradients(step, 0, worker, variant=variant) for worker in range(WORKERS)]
            for worker, gradient in enumerate(gradients):
                right = whole.gradients(step, 0, worker % shared)
                np.testing.assert_array_equal(gradient, right)
            total = np.sum(np.array(gradients, np.float64), axis=0)
            decoded = few.totals(step, 0, variant=variant)
            np.testing.assert_allclose(decoded, total, rtol=0, atol=2e-5)


def test_every_codec_sums_shared_gradients() -> None:
    """Gradients in one array are summed as equal gradients in several arrays."""
    for kind, make in codec_kinds().items():
        codec = make()
        if codec.needs:
            continue
        rows = [np.random.default_rng(row).normal(size=700).astype(np.float32) for row in range(2)]
        alike = [rows[worker % 2] for worker in range(5)]
        apart = [row.copy() for row in alike]
        totals = [netfold.fold(codec, gradients).decoded[0] for gradients in (alike, apart)]
        np.testing.assert_array_equal(*totals, err_msg=kind)


def test_shared_arrays_count_as_often_as_they_occur() -> None:
    generator = np.random.default_rng(4)
    rows: list[Gradient] = [generator.normal(size=40_000).astype(np.float32) for _ in range(3)]
    alike = [rows[worker % 3] for worker in range(11)]
    right = np.array(alike, np.float64).sum(0)
    for sums in sums_of_parts(alike):
        span = slice(sums.first, sums.first + sums.total.size)
        np.testing.assert_allclose(sums.total, right[span], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(sums.magnitude, np.abs(np.array(alike)[:, span]).sum(0, np.float64))
    few = [row[:300] for row in alike]
    columns = np.array(few).T.tolist()
    total = np.array([rounded(sum(map(Fraction, column), Fraction())) for column in columns], np.float32)
    assert count_inexact(total, few) == 0
    total[7] = np.nextafter(total[7], np.float32(np.inf))
    assert count_inexact(total, few) == 1


def test_bytes_of_other_codecs_are_the_same_for_zeros() -> None:
    """What `bits_per_element` says: without values a run has the bytes of any gradients."""
    counted = 0
    for kind, make in codec_kinds().items():
        codec = make()
        if codec.bits_per_element(WORKERS) is None:
            continue
        rows = [np.random.default_rng(row).normal(size=20_000).astype(np.float32) for row in range(WORKERS)]
        sizes = [sizes_of(codec, gradients) for gradients in (rows, [np.zeros_like(rows[0])] * WORKERS)]
        assert sizes[0] == sizes[1], kind
        counted += 1
    assert counted >= 10


def sizes_of(codec: Codec, gradients: list[Gradient]) -> list[tuple[int, ...]]:
    """Bytes of the messages of every worker, operation after operation."""
    sizes: list[tuple[int, ...]] = []
    encoders = make_encoders(codec, WORKERS, 0)
    for encoder, gradient in zip(encoders, gradients, strict=True):
        encoder.begin(Step(0, 0.01, None, [gradient], list))
    watched = [Watched(encoder, sizes) for encoder in encoders]
    fold(watched, gradients, Round(0, 0, WORKERS, 0), server=codec.server(WORKERS, 0))
    return sorted(sizes)


class Watched(Encoder):
    """An encoder whose messages are counted."""

    def __init__(self, encoder: Encoder, sizes: list[tuple[int, ...]]) -> None:
        self._encoder, self._sizes = encoder, sizes

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        exchange = self._encoder.exchange(gradient, round)
        answers = None
        while True:
            try:
                messages = exchange.send(answers)  # type: ignore[arg-type]  # None begins it
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self._sizes.append(tuple(message.size_bytes for message in messages))
            answers = yield messages


def test_bytes_that_depend_on_values_need_them(tmp_path: Path) -> None:
    for payload, kept in {"none": "no", "{sample: 8}": "not all"}.items():
        payload_set, told = f"workload.payload={payload}", re.escape(payload)
        for codec in ("exact", "lossless"):
            with pytest.raises(ScenarioError, match=f"workload.payload.*{told}: what {codec} sends depends"):
                plan(tmp_path, payload_set, f"codec={{kind: {codec}}}")
        with pytest.raises(ScenarioError, match=f"payload {told} has {kept} gradients"):
            plan(tmp_path, payload_set, "codec={kind: fixed_point}", "keep=[gradients]")
    forms = re.escape(
        "must be all, none, {shared: COUNT} or {sample: COUNT} with a COUNT of 1 or more, found "
    )
    wrong = {"some": "'some'"} | dict.fromkeys(
        ("{shared: 0}", "{shared: 2, of: 3}", "{sample: 0}", "{sample: -1}", "{sample: 2, shared: 2}", "{}"),
        "a mapping",
    )
    for payload, found in wrong.items():
        with pytest.raises(ScenarioError, match=forms + found):
            plan(tmp_path, f"workload.payload={payload}")
    with pytest.raises(ScenarioError, match="unknown key 'payload'"):
        plan(tmp_path, "workload={kind: training, model: mlp, payload: {sample: 2}}")
