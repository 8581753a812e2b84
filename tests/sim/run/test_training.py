"""Runs that train: gradients that are computed, weights that stay equal, jobs in lock step."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.codec_driver import CodecError
from netfold.homomorphic.merge import Merge, Merged
from netfold.homomorphic.message import Message
from netfold.sim.checks.round_findings import RecordedOperation
from netfold.sim.collectives.collective import OperationId
from netfold.sim.report.compare import results_table
from netfold.sim.report.html_report import build_report
from netfold.sim.results.folder import load
from netfold.sim.run.step import MessageAgreement
from netfold.sim.run.variant import JobResult
from netfold.sim.workload.device_rooflines import HARDWARE
from netfold.sim.workload.devices import NOTE
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.workload import Workload
from netfold.sim.workload.workload_keys import Training
from netfold.units import PS_PER_US
from tests.sim.checks.test_checks_limits import FINE
from tests.sim.run.test_failures import run_netfold
from tests.sim.scenes import DENSE, RING, TINY, metrics_of, run, simulate
from tests.sim.workload.given import made, totals, weights_of
from tests.sim.workload.test_loop import DENSE as DENSE_TABLE
from tests.sim.workload.test_loop import TABLE

MLP = "workload={kind: training, model: mlp, batch: 32, steps: 6, learning_rate: 1.0, bucket: 8KiB}"


def test_tests_are_recorded_and_take_no_simulated_time(tmp_path: Path, trained: list[Workload]) -> None:
    untested = simulate(tmp_path, MLP, RING, DENSE)
    tested = simulate(tmp_path, MLP, RING, DENSE, "workload.evaluate={every: 4}")
    metrics = metrics_of(tested)
    last = trained[1].score(5, is_last=True)

    assert last is not None
    assert [one.test_score for one in untested.steps] == [None] * 6
    assert [one.test_metric for one in tested.steps] == [None, None, None, "accuracy", None, "accuracy"]
    assert [one.test_score is not None for one in tested.steps] == [False, False, False, True, False, True]
    assert (metrics["test_metric"], metrics["test_score"]) == last
    assert tested.steps[-1].test_score == last.value
    assert [one.end_ps for one in tested.steps] == [one.end_ps for one in untested.steps]


def test_gradients_that_explode_fail_in_words(tmp_path: Path) -> None:
    outcome = run(tmp_path, MLP, "workload.learning_rate=1e30", "codec={kind: lossless}")

    (variant,) = outcome.summary["variants"]
    assert variant["checks"][0] == {
        "name": "finishes",
        "verdict": "fail",
        "detail": "gradient[0] is nan: only finite values can be carried; "
        "lower the learning rate, or skip such steps (worker 0, step 1, bucket 0, operation 0)",
    }
    assert (outcome.summary["verdict"], variant["metrics"]["steps"]) == ("fail", 1)
    assert "diagnosis" not in variant


def test_gradients_that_explode_fail_the_check_of_a_codec_that_carries_them(tmp_path: Path) -> None:
    outcome = run(tmp_path, MLP, "workload.learning_rate=1e30", "workload.steps=2", DENSE, RING)

    (variant,) = outcome.summary["variants"]
    assert outcome.summary["verdict"] == "fail"
    assert [check["name"] for check in variant["checks"] if check["verdict"] == "fail"] == ["sum_is_right"]
    assert variant["metrics"]["max_abs_error"] is None  # JSON has no infinity


# Local steps, and gradients of rows: how long steps take, and what is trained.

LOCAL = """\
name: local
topology: {kind: star, hosts: 4, rate: 10Gbps, switch: ideal}
workers: 3
workload: {kind: training, model: mlp, batch: 8, steps: 3, learning_rate: 0.1, bucket: 4KB}
device: {kind: fixed, forward: 30us, backward: 50us}
codec: {kind: exact}
collective: {kind: in_network}
"""


def job_of(folder: Path, *sets: str) -> JobResult:
    (job,) = simulate(folder, *sets, text=LOCAL).jobs
    assert {check.verdict for check in job.checks} == {"pass"}
    return job


@pytest.mark.parametrize("local", [1, 4])
def test_steps_are_computed_one_after_the_other_before_anything_is_sent(tmp_path: Path, local: int) -> None:
    """k passes of 30 + 50 µs; without local steps a bucket leaves while backward goes on."""
    journal = job_of(tmp_path, f"workload.local_steps={local}").journal
    for step in journal.steps:
        assert step.backward_end_ps - step.start_ps == local * 80 * PS_PER_US
        assert step.forward_end_ps - step.start_ps == (local * 80 - 50) * PS_PER_US
        if local == 1:
            assert step.aggregation_start_ps < step.backward_end_ps
        else:
            assert step.aggregation_start_ps == step.backward_end_ps
    spans = [
        (row.phase, (row.end_ps - row.start_ps) // PS_PER_US)
        for row in journal.phases
        if (row.step, row.worker, row.bucket) == (1, 0, -1)
    ]
    assert spans == [("forward", 30), ("backward", 50)] * local


def test_passes_at_kept_weights_are_as_many_as_local_steps(tmp_path: Path) -> None:
    sets = ("collective={kind: parameter_server}", "workload.local_steps=3", "workload.learning_rate=0.01")
    job = job_of(tmp_path, "codec={kind: sasg, staleness: 1}", *sets)
    again = [row for row in job.journal.phases if row.phase == "more passes"]

    assert {row.end_ps - row.start_ps for row in again} == {3 * 80 * PS_PER_US}


def test_gradients_of_rows_are_trained_as_dense_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sparse table; what the run trains is what a loop of exact sums trains."""
    made_by: list[TrainingWorkload] = []
    for task in (TABLE, DENSE_TABLE):

        def workload(spec: Training, workers: int, seed: int, task: object = task) -> TrainingWorkload:
            made_by.append(made(task, workers, spec.learning_rate))  # type: ignore[arg-type]
            return made_by[-1]

        monkeypatch.setattr(Training, "workload", workload)
        job = job_of(tmp_path, "overlap={buckets_in_flight: 2}")
        assert all(record.merges_verified for record in job.journal.rounds)
    loop = made(TABLE, 3, 0.1)
    for step in range(3):
        loop.apply(step, totals(loop, step))
    rows, dense = made_by
    assert rows.rows(0)
    assert not dense.rows(0)
    for name, own in weights_of(rows).items():
        np.testing.assert_allclose(own, weights_of(dense)[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(own, weights_of(loop)[name], rtol=1e-5, atol=1e-7)


TRAINED = TINY.replace(
    "  kind: synthetic\n  elements: 1000\n",
    "  {kind: training, model: mlp, batch: 8, steps: 2, bucket: 4KiB}\n",
)
NO_TIME = "compute takes no time"


def test_results_say_where_compute_takes_no_time(tmp_path: Path, plain: None) -> None:
    text = TRAINED + "variants:\n  - name: none\n  - {name: some, device: a100}\n"
    outcome = run(tmp_path, text=text)
    summary = load(outcome.run_dir or tmp_path).summary
    none, some = summary["variants"]

    assert none["metrics"]["compute_time_us"] == 0
    assert none["compute"] == NO_TIME
    assert some["metrics"]["compute_time_us"] > 0
    assert "compute" not in some
    with (shown := Console(width=300)).capture() as printed:
        shown.print(results_table(summary))
    assert f"{NO_TIME} in none:" in printed.get()
    page = build_report(outcome.run_dir or tmp_path).read_text()
    assert page.count("(aggregation alone)") == 1


def test_passes_and_updates_are_recorded(tmp_path: Path) -> None:
    """The update moves 12 bytes a weight, at what is reached of the memory's rate."""
    found = simulate(tmp_path, "device=a100", text=TRAINED)
    updates = [one for one in found.phases if one.phase == "update"]
    row = HARDWARE["a100"]
    moved_ps = 12 * (64 * 128 + 128 + 128 * 10 + 10) * 1e12 / (row.memory.peak * row.memory.share)

    assert len(updates) == 3 * 2
    assert all(one.end_ps - one.start_ps == pytest.approx(row.launch_ps + moved_ps, abs=2) for one in updates)
    first, second = found.steps
    assert first.end_ps == second.start_ps == max(one.end_ps for one in updates if one.step == 0)
    assert first.end_ps > first.aggregation_end_ps


def test_layers_are_ready_after_their_kernels_and_not_by_their_bytes(tmp_path: Path) -> None:
    """The first bucket, the output layer with a seventh of the weights, takes more than half of backward."""

    def share(device: str) -> float:
        result = simulate(tmp_path, f"device={device}", text=TRAINED)
        step, first = result.steps[0], min(one.start_ps for one in result.rounds if one.step == 0)
        return (first - step.forward_end_ps) / (step.backward_end_ps - step.forward_end_ps)

    assert 0.5 < share("a100") < 0.9
    even = share("{kind: roofline, model: a100}")
    assert even == pytest.approx((1280 + 10) / (8192 + 128 + 1280 + 10), abs=0.01)


def test_a_recording_sets_the_pace(tmp_path: Path) -> None:
    order = [["2.bias", 1, 10], ["2.weight", 2, 1280], ["0.bias", 10, 128], ["0.weight", 11, 8192]]
    (tmp_path / "t.json").write_text(json.dumps({"res": {"fwd_ms": 3, "bwd_ms": 12}, "order": order}))
    found = simulate(tmp_path, "device={kind: trace, path: t.json}", text=TRAINED)
    step = found.steps[0]
    starts = sorted(one.start_ps for one in found.rounds if one.step == 0)

    assert step.forward_end_ps == 3 * 10**9
    assert step.backward_end_ps == 15 * 10**9
    assert starts == [5 * 10**9, 14 * 10**9]


def test_measured_times_are_of_real_passes_and_marked(tmp_path: Path) -> None:
    variants = "variants: [{name: a}, {name: b, codec: {kind: packed}}]\n"
    outcome = run(tmp_path, "device={kind: measured}", text=TRAINED + variants)
    found = outcome.as_dict()
    one, other = (variant["metrics"]["compute_time_us"] for variant in found["variants"])

    assert one == other > 1  # measured once for both
    assert f"a: {NOTE}" in found["warnings"]
    assert found["variants"][0]["setup"]["device"] == {"kind": "measured"}


# One flipped bit of a result at worker 0 alone makes it ask for a fallback that no other worker sends.
SCENARIO = """\
name: flip
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us}
workers: 4
workload: {kind: synthetic, elements: 20000, density: 0.05, steps: 2, bucket: 8KB}
codec: {kind: lossless}
collective: {kind: in_network, program: switchml, frame: udp-256, slots: 16}
variants:
  - {name: sound}
  - name: damaged
    faults: [{kind: corruption, detected: false, links: ["s0->h0"], rate: 1%}]
  - {name: sound-too}
"""


def message(words: int, label: str = "values", merge: Merge = Merge.ADD) -> tuple[Message, ...]:
    return (Message(np.zeros(words, np.int32), merge, label),)


@pytest.mark.parametrize(("codec", "seed"), [("{kind: lossless}", 1), ("{kind: auto}", 4)])
def test_a_worker_that_redoes_alone_is_reported(tmp_path: Path, seed: int, codec: str) -> None:
    file = tmp_path / "flip.yaml"
    file.write_text(f"seed: {seed}\n{SCENARIO}", encoding="utf-8")

    summary = run_netfold(tmp_path, file, f"codec={codec}")

    assert summary.exit_code == 1
    assert {name: one["verdict"] for name, one in summary.variants.items()} == {
        **{"sound": "pass", "damaged": "fail", "sound-too": "pass"}
    }
    detail = summary.detail("damaged", "finishes")
    found = re.fullmatch(
        r"worker (\d) sends (.*) where worker (\d) sends (.*) \(step \d, bucket \d+, operation \d\): "
        "they read different words of '.*', so some were damaged on the way",
        detail,
    )
    assert found is not None
    both = {int(found[1]): found[2], int(found[3]): found[4]}
    assert "'fallback' (" in both[0]  # whose words were damaged
    (other,) = both.keys() - {0}
    assert re.fullmatch(r"nothing more, having decoded \d+ elements", both[other])
    assert summary.checks("damaged")["decodes"] == "fail"


PLACE = OperationId(2, 1, 3)


def decoded(elements: int = 4) -> Decoded:
    return Decoded(np.zeros(elements, np.float32), np.zeros(elements, np.float32))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (message(6), "'values' (add of 6 int32 words)"),
        (message(5, "fallback"), "'fallback' (add of 5 int32 words)"),
        (message(5, merge=Merge.MAX), "'values' (max of 5 int32 words)"),
        ((), "no messages"),
        ((*message(5), *message(5)), "'values' (add of 5 int32 words) and 'values' (add of 5 int32 words)"),
        (decoded(), "nothing more, having decoded 4 elements"),
        ((replace(message(5)[0], lane_bits=8),), "'values' (add of 5 int32 words in 8-bit lanes)"),
        ((replace(message(5)[0], digest=26),), "'values' (add of 5 int32 words, digest 0x1a)"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_differs(other: tuple[Message, ...] | Decoded, words: str, is_first: bool) -> None:
    """Both messages are named, whoever was first; a worker that ends its round differs from all others."""
    agreement = MessageAgreement(2)
    usual = "'values' (add of 5 int32 words)"
    sent = [(other, words), (message(5), usual)] if is_first else [(message(5), usual), (other, words)]
    agreement.require(PLACE, 1, sent[0][0])

    with pytest.raises(CodecError) as caught:
        agreement.require(PLACE, 0, sent[1][0])

    assert str(caught.value) == (
        f"worker 0 sends {sent[1][1]} where worker 1 sends {sent[0][1]} (step 2, bucket 1, operation 3): "
        "all workers must send the same messages, and these read the same words before"
    )
    assert not caught.value.is_undecoded


def received(*words: int) -> tuple[Merged, ...]:
    return (Merged(np.array(words, np.int32), 3),)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_damaged_words_are_named_as_the_cause(is_damaged: bool) -> None:
    """Of the two workers that differ: what a third one received is not the cause."""
    before = RecordedOperation(
        {rank: message(2, "index") for rank in range(3)},
        {0: received(1, 2), 1: received(1, 3 if is_damaged else 2), 2: received(7, 7)},
    )
    agreement = MessageAgreement(3)
    agreement.require(PLACE, 0, message(5), [before])

    with pytest.raises(CodecError) as caught:
        agreement.require(PLACE, 1, message(6), [before])

    damage = "they read different words of 'index', so some were damaged on the way"
    assert str(caught.value).endswith(damage) == is_damaged
    assert caught.value.is_undecoded == is_damaged


@pytest.mark.parametrize("agree", [True, False])
def test_earlier_rounds_that_were_decoded_differently_are_the_cause(agree: bool) -> None:
    findings = [replace(FINE, replicas_agree=agree)]
    agreement = MessageAgreement(2, findings)
    agreement.require(PLACE, 0, message(5))

    with pytest.raises(CodecError) as caught:
        agreement.require(PLACE, 1, message(6))

    assert ("different sums in an earlier round" in str(caught.value)) == (not agree)
    assert caught.value.is_undecoded == (not agree)


def test_rounds_may_overlap_and_what_all_have_sent_is_forgotten() -> None:
    """Worker 0 is a bucket ahead in one place and behind in another; lengths differ from place to place."""
    agreement = MessageAgreement(2)
    places = [OperationId(0, bucket, number) for bucket in range(2) for number in range(2)]
    for size, place in enumerate(places):
        agreement.require(place, 0, message(size))
    for size, place in reversed(list(enumerate(places))):
        agreement.require(place, 1, message(size))

    assert not agreement._begun
