"""What packets carry: every gradient, a few of them for all workers, or no words; sizes stay the same."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold
from netfold.errors import ScenarioError
from netfold.homomorphic.codec import Codec, Encoder, Exchange, codec_kinds, make_encoders
from netfold.homomorphic.error_bounds import count_inexact, sums_of_parts
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient, Round, Step
from tests.homomorphic.test_error_bounds import rounded
from tests.sim.scenes import plan

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


def run(folder: Path, payload: object, **more: Any) -> netfold.Run:
    workload = {**SCENARIO["workload"], "payload": payload}
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
    for codec in ("exact", "lossless"):
        with pytest.raises(ScenarioError, match=rf"workload.payload.*none: what {codec} sends depends"):
            plan(tmp_path, "workload.payload=none", f"codec={{kind: {codec}}}")
    with pytest.raises(ScenarioError, match="payload none has no gradients"):
        plan(tmp_path, "workload.payload=none", "codec={kind: fixed_point}", "keep=[gradients]")
    with pytest.raises(ScenarioError, match=r"must be all, none or \{shared: COUNT\}, found 'some'"):
        plan(tmp_path, "workload.payload=some")
    for wrong in ("{shared: 0}", "{shared: 2, of: 3}"):
        with pytest.raises(ScenarioError, match=r"must be all, none or \{shared: COUNT\}, found a mapping"):
            plan(tmp_path, f"workload.payload={wrong}")
