"""Gradients of real trainings are recorded: what is written, in which layout, and by which launcher."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from safetensors import safe_open

import netfold
from netfold.errors import DataError, RunError
from netfold.sim.capture import recording_files as capture_parts
from netfold.sim.capture import recording_files as layout
from netfold.sim.capture.capture import CaptureSettings, check_settings
from netfold.sim.capture.recording_files import (
    RecordingParts,
    TensorRow,
    join_parts,
    most_bytes,
    read_trace,
    require_space,
)
from netfold.sim.studies.codec_study_inputs import file_source
from netfold.sim.workload.fusion import ONE_BUCKET
from netfold.sim.workload.layers import tensor_of
from netfold.sim.workload.recording import TraceWorkload, trace_spec
from tests import ROOT
from tests.command_line import run_command
from tests.examples import nightly
from tests.sim.capture.folders import (
    TENSORS,
    arrays_of,
    dense_of,
    rank_step,
    safetensors_bytes,
    write_recording,
)
from tests.sim.capture.trainings import all_trained, trained, waited
from tests.sim.workload.given import by_name, totals
from tests.torch.processes import returned, run

EXACT = ("plain", "view", "zeroed", "accumulated", "unused", "accumulated_unused", "rows", "scalar")
MODES = (*EXACT, "half", "overflowing", "double")
STEPS, WANTED = 6, 4
Recorded = tuple[Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The folder of all recordings, and what the processes say of them."""
    folder = tmp_path_factory.mktemp("recorded")
    return folder, returned(2, folder, all_trained, folder, MODES, STEPS, WANTED)


@pytest.mark.processes
def test_the_sums_and_times_are_those_of_ddp(recorded: Recorded) -> None:
    """Bit for bit: two ranks have one order of summing, and halves are exact; what is kept are no means.

    Each gradient is ready after the ones before it in the order of DDP's first buckets.
    """
    folder, answers = recorded
    for mode in EXACT:
        trace = read_trace(folder / mode)
        workload = TraceWorkload(trace_spec(folder / mode, mode, 2))

        assert [step.step for step in trace.steps] == [1, 2, 3, 4]
        for index, step in enumerate(trace.steps):
            found = by_name(workload, totals(workload, index))
            assert not np.array_equal(*(np.concatenate(own) for own in workload.gradients(index)))
            for rank, own in enumerate(step.ranks):
                expected = answers[rank][mode][step.step]
                for name, total in found.items():
                    there = expected.get(name, np.zeros_like(total))
                    assert np.array_equal(total, there.reshape(total.shape)), (mode, step.step, name)
                assert own.micro_batches == (3 if mode.startswith("accumulated") else 1)
                assert own.synced_ns >= own.backward_end_ns
                if mode in ("plain", "view", "accumulated"):
                    ready = [time for time in own.ready_ns if time is not None]
                    assert own.backward_start_ns < min(ready)
                    assert sorted(ready) == ready
        for workers in (1, 3):
            with pytest.raises(DataError, match=f"of 2 ranks, there are {workers} workers"):
                trace_spec(folder / mode, mode, workers)


@pytest.mark.processes
def test_buckets_are_those_of_ddp(recorded: Recorded) -> None:
    """After the first step it fills 2 KiB in the order in which gradients are ready, last layers first.

    Where parameters may be unused, buckets stay as they were first.
    """
    folder, _ = recorded
    trace = read_trace(folder / "plain")
    names = [[trace.tensors[place].name for place in own] for own in trace.buckets]
    assert names == [["4.bias", "4.weight", "2.bias", "2.weight"], ["0.bias", "0.weight"]]
    assert trace.notes == []
    trace = read_trace(folder / "unused")
    assert len(trace.buckets) > 1
    last_first = [f"{layer}.{kind}" for layer in ("last", "side", "first") for kind in ("bias", "weight")]
    assert [trace.tensors[place].name for own in trace.buckets for place in own] == last_first
    assert len(trace.notes) == 1
    assert "first buckets" in trace.notes[0]
    places = {one.name: place for place, one in enumerate(trace.tensors)}
    has_side = [
        [own.ready_ns[places["side.weight"]] is not None for own in step.ranks] for step in trace.steps
    ]
    assert has_side == [[step.step % 3 == rank for rank in range(2)] for step in trace.steps]


@pytest.mark.processes
def test_other_gradients_are_kept_as_they_are_left_out_or_refused(recorded: Recorded) -> None:
    """Halves and rows are kept; steps that are not finite at one rank are dropped, as loss scalers do."""
    folder, answers = recorded
    trace = read_trace(folder / "half")

    assert {one.dtype for one in trace.tensors} == {"bfloat16"}
    assert trace.steps[0].ranks[0].bytes < 4 * trace.elements
    values = np.concatenate(TraceWorkload(trace_spec(folder / "half", "half", 2)).gradients(0)[0])
    assert not (values.view(np.uint32) & 0xFFFF).any()  # 8 bits of fraction

    # a table of 500 rows, of which a batch of 6 times 3 uses at most 18
    trace = read_trace(folder / "rows")
    table = next(one for one in trace.tensors if one.name == "table.weight")

    assert (table.layout, table.shape) == ("rows", [500, 8])
    opener: Any = safe_open
    with opener(str(folder / "rows" / trace.steps[0].ranks[0].file), framework="pt") as opened:
        rows = opened.get_tensor("table.weight@rows").tolist()
        assert 0 < len(rows) <= 18
        assert rows == sorted(set(rows))
        assert list(opened.get_slice("table.weight").get_shape()) == [len(rows), 8]

    trace = read_trace(folder / "overflowing")

    assert [step.step for step in trace.steps] == [1, 3, 4]
    assert "not finite" in trace.notes[0]
    assert {path.name for path in (folder / "overflowing").iterdir()} == {
        "trace.json",
        *(own.file for step in trace.steps for own in step.ranks),
    }

    assert "0.weight: its gradients are float64" in answers[0]["double"]
    assert "model.float()" in answers[1]["double"]
    assert not (folder / "double").exists()


@pytest.mark.processes
def test_a_run_replays_the_sums_and_the_times(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, answers = recorded
    totals: list[Any] = []
    monkeypatch.setattr(
        TraceWorkload, "apply", lambda self, step, found, are_updates=(): totals.append(found)
    )
    monkeypatch.chdir(folder)
    scenario = folder / "replay.yaml"
    scenario.write_text(
        "{name: replay, topology: {kind: star, hosts: 2}, workers: 2, workload: {kind: trace, path: plain}, "
        "variants: [{name: ring, codec: {kind: none}, collective: {kind: ring}}]}"
    )

    replayed = netfold.run(str(scenario), out=str(tmp_path))

    assert replayed.verdict == "pass"
    trace = read_trace(folder / "plain")
    for index, (step, found) in enumerate(zip(trace.steps, totals, strict=True)):
        for bucket, own in enumerate(trace.buckets):
            names = [trace.tensors[place].name for place in own]
            expected = np.concatenate([answers[0]["plain"][step.step][name].reshape(-1) for name in names])
            assert np.array_equal(found[bucket], expected), (index, bucket)
    passes = replayed.phases.filter((replayed.phases["step"] == 1) & (replayed.phases["phase"] == "backward"))
    for own, row in zip(trace.steps[1].ranks, passes.sort("worker").iter_rows(named=True), strict=True):
        assert row["end_ps"] - row["start_ps"] == 1000 * (own.backward_end_ns - own.backward_start_ns)
    kept = {one["path"] for one in json.loads((replayed.path / "summary.json").read_text())["inputs"]}
    assert kept == {f"plain/{path.name}" for path in (folder / "plain").iterdir()}


@pytest.mark.processes
def test_a_rank_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The other rank sees that the connection is closed; neither leaves a recording."""
    first, second = run(2, tmp_path, trained, tmp_path, "failing", 4, 3)

    assert second.error == "ValueError: a bad sample"
    assert "Error" in first.error
    assert not (tmp_path / "failing").exists()


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("mode", ["plain", "unused", "accumulated_unused", "rows"])
def test_one_process_records_its_gradients(tmp_path: Path, mode: str) -> None:
    answers = trained(0, tmp_path, mode, 4, 2)
    workload = TraceWorkload(trace_spec(tmp_path / mode, mode, 1))

    assert [step.step for step in read_trace(tmp_path / mode).steps] == [1, 2]
    for index in range(2):
        for name, total in by_name(workload, totals(workload, index)).items():
            expected = answers[index + 1].get(name, np.zeros_like(total))
            assert np.array_equal(total, expected.reshape(total.shape)), name


@pytest.mark.usefixtures("alone")
def test_what_cannot_be_recorded_in_one_process(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a bad sample"):
        trained(1, tmp_path, "failing", 4, 3)
    with pytest.raises(DataError, match=r"0\.weight: its gradients are float64, must be float32, float16"):
        trained(0, tmp_path, "double", 4, 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_times_are_taken_when_the_device_has_done_what_it_was_given(tmp_path: Path) -> None:
    """It is waited for around the forward pass, before backward, at every gradient and at the end."""
    returned(1, tmp_path, waited, tmp_path)
    trace = read_trace(tmp_path / "plain")
    ((own,),) = (step.ranks for step in trace.steps)

    assert (own.before_ns, own.forward_end_ns, own.backward_start_ns) == (1, 1, 2)
    assert {*own.ready_ns} == {3 + place for place in range(len(trace.tensors))}
    assert own.synced_ns == 3 + len(trace.tensors)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_recording(tmp_path / "mine")
    return tmp_path / "mine"


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change trace.json."""
    path = folder / "trace.json"
    trace = json.loads(path.read_text())
    change(trace)
    path.write_text(json.dumps(trace))


def first_of(trace: dict[str, Any]) -> dict[str, Any]:
    """What rank 0 has of the first step."""
    found: dict[str, Any] = trace["steps"][0]["ranks"][0]
    return found


def replaced(folder: Path, arrays: dict[str, Any], **times: Any) -> None:
    """Give rank 0 of the first step other gradients, with a trace.json that fits the file."""
    content = safetensors_bytes(arrays)
    one = {**rank_step(0, 0, content), **times}
    (folder / one["file"]).write_bytes(content)
    changed(folder, lambda trace: first_of(trace).update(one))


def test_a_recording_made_by_hand_is_read(folder: Path) -> None:
    """Buckets by tensors, zeros where a table has no row, and steps that repeat."""
    workload = TraceWorkload(trace_spec(folder, "mine", 2))

    assert [[one.name for one in bucket.tensors] for bucket in workload.buckets] == [
        ["fc.weight", "fc.bias"],
        ["table"],
    ]
    for step in (0, 1, 2, 3):
        for rank in range(2):
            found = np.concatenate(workload.gradients(step)[rank])
            assert found.dtype == np.float32
            assert np.array_equal(found, dense_of(step % 2, rank)), (step, rank)


def test_times_are_those_of_step_and_rank(folder: Path) -> None:
    changed(folder, lambda trace: trace["steps"][1]["ranks"][1].update(before_ns=1007))
    workload = TraceWorkload(trace_spec(folder, "mine", 2))

    for step, rank, forward in ((0, 0, 27_000), (1, 1, 1_027_000), (3, 1, 1_027_000)):
        passes = workload.recorded(step, rank)
        assert passes is not None
        assert (passes.forward_ps, passes.backward_ps) == (forward, 50_000)
        ready = [(time - 20 + 5 * rank) * 1000 for time in (40, 60)]  # the later of its tensors
        assert [passes.bucket_ps(own.tensors, own.ready_share) for own in workload.buckets] == ready
    spec = trace_spec(folder, "mine", 2, with_times=False)
    assert TraceWorkload(spec).recorded(0, 0) is None
    shares = [(40 + 45 - 40) / 100] * 2 + [(60 + 65 - 40) / 100]  # of both ranks; none before the one before
    assert spec.ready_shares == pytest.approx(shares)


def test_an_unused_tensor_is_zero_and_ready_at_once(folder: Path) -> None:
    arrays = arrays_of(0, 0)
    del arrays["fc.bias"]
    replaced(folder, arrays, ready_ns=[40, None, 60], bucket_ready_ns=[40, 60])
    workload = TraceWorkload(trace_spec(folder, "mine", 2))
    passes, expected = workload.recorded(0, 0), dense_of(0, 0)
    expected[6:8] = 0

    assert np.array_equal(np.concatenate(workload.gradients(0)[0]), expected)
    assert passes is not None
    assert passes.ready_ps["fc.bias"] == 0


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another format": (lambda t: t.update(format="netfold trace 2"), "this version reads 'netfold trace 1'"),
    "no format": (lambda t: t.pop("format"), "is no trace of netfold"),
    "no tensors": (lambda t: t.update(tensors=[]), "tensors: list should have at least 1 item"),
    "a rank is missing": (lambda t: t["steps"][1]["ranks"].pop(), "step 2 has 1 ranks, world_size says 2"),
    "a tensor twice": (lambda t: t["tensors"][1].update(name="fc.weight"), "'fc.weight' appears twice"),
    "no such type": (lambda t: t["tensors"][0].update(dtype="float64"), "tensors.0.dtype"),
    "a dimension of 0": (lambda t: t["tensors"][0].update(shape=[0, 3]), "tensors.0.shape.0"),
    "too many elements": (
        lambda t: t["tensors"][0].update(shape=[2**27, 2**26]),
        "elements, at most 9,007,199,254,740,992",
    ),
    "a tensor in two buckets": (lambda t: t.update(buckets=[[0, 1], [1]]), "each of the 3 tensors once"),
    "a bucket of another tensor": (lambda t: t.update(buckets=[[0, 1], [3]]), "each of the 3 tensors once"),
    "a negative time": (lambda t: first_of(t).update(before_ns=-1), "steps.0.ranks.0.before_ns"),
    "a time beyond the limit": (
        lambda t: first_of(t).update(synced_ns=10**15 + 1),
        "steps.0.ranks.0.synced_ns",
    ),
    "a fraction": (lambda t: first_of(t).update(before_ns=0.5), "steps.0.ranks.0.before_ns"),
    "backward ends before it begins": (lambda t: first_of(t).update(backward_end_ns=19), "not in order"),
    "a gradient after backward": (
        lambda t: first_of(t).update(ready_ns=[40, 30, 71], bucket_ready_ns=[40, 71]),
        "ready outside of the backward pass",
    ),
    "a bucket before its last tensor": (
        lambda t: first_of(t).update(bucket_ready_ns=[39, 60]),
        "ready with the last of its tensors",
    ),
    "a time too few": (lambda t: first_of(t)["ready_ns"].pop(), "a time for each tensor"),
    "a path": (lambda t: first_of(t).update(file="../x.safetensors"), "steps.0.ranks.0.file"),
    "a file twice": (
        lambda t: t["steps"][0]["ranks"][1].update(first_of(t)),
        "s0r0.safetensors appears twice",
    ),
    "another size": (lambda t: first_of(t).update(bytes=1), "trace.json says 1"),
    "no steps": (lambda t: t.update(steps=[]), "steps"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_told(folder: Path, what: str) -> None:
    change, message = BROKEN[what]
    changed(folder, change)

    with pytest.raises(DataError) as caught:
        read_trace(folder)

    assert message in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "netfold capture" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is not JSON"), (b"[1]", "no trace of netfold"), (b"{", "is not JSON"), (b"\xff", "is not JSON")],
)
def test_files_of_other_kinds_are_refused(folder: Path, content: bytes, message: str) -> None:
    (folder / "trace.json").write_bytes(content)

    with pytest.raises(DataError, match=message):
        read_trace(folder)
    with pytest.raises(DataError, match="there is no such file"):
        read_trace(folder.parent)


def test_limits_hold_just_inside_and_not_outside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(folder, lambda trace: first_of(trace).update(synced_ns=10**15))
    size_bytes = (folder / "trace.json").stat().st_size
    monkeypatch.setattr(layout, "TRACE_BYTES_MAX", size_bytes)
    assert read_trace(folder).steps[0].ranks[0].synced_ns == 10**15
    monkeypatch.setattr(layout, "TRACE_BYTES_MAX", size_bytes - 1)
    with pytest.raises(DataError, match="too large"):
        read_trace(folder)


VALUES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a tensor is missing": (lambda a: a.pop("fc.bias"), "has no tensor 'fc.bias'"),
    "rows are missing": (lambda a: a.pop("table@rows"), "has no tensor 'table@rows'"),
    "a tensor too many": (lambda a: a.update(other=np.zeros(1, np.float32)), "'other', which is no tensor"),
    "another shape": (
        lambda a: a.update({"fc.weight": np.zeros((3, 2), np.float32)}),
        r"holds float32 (3, 2), trace.json says float32 (2, 3)",
    ),
    "another type": (
        lambda a: a.update({"fc.bias": np.zeros(2, np.float32)}),
        "holds float32 (2,), trace.json says float16 (2,)",
    ),
    "a row too far": (lambda a: a.update({"table@rows": np.array([0, 4])}), "must rise from 0 to 3"),
    "a negative row": (lambda a: a.update({"table@rows": np.array([-1, 0])}), "must rise from 0 to 3"),
    "a row twice": (lambda a: a.update({"table@rows": np.array([3, 3])}), "must rise from 0 to 3"),
    "more rows than values": (
        lambda a: a.update({"table@rows": np.array([0, 1, 2])}),
        "table holds float32 (2, 2), trace.json says float32 (3, 2)",
    ),
    "an infinite number": (
        lambda a: a.update({"fc.bias": np.array([1, np.inf], np.float16)}),
        "fc.bias holds a number that is not finite: inf (rank 0)",
    ),
}


@pytest.mark.parametrize("what", VALUES)
def test_gradients_that_do_not_fit_are_refused(folder: Path, what: str) -> None:
    change, message = VALUES[what]
    arrays = arrays_of(0, 0)
    change(arrays)
    replaced(folder, arrays)
    workload = TraceWorkload(trace_spec(folder, "mine", 2))

    with pytest.raises(DataError) as caught:
        workload.gradients(0)

    assert message in str(caught.value)
    assert "s0r0.safetensors" in str(caught.value)


def test_damaged_and_missing_files_are_noticed(folder: Path) -> None:
    """Before the run, but for bytes that have changed."""
    path = folder / "s1r1.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    workload = TraceWorkload(trace_spec(folder, "mine", 2))

    workload.gradients(0)
    with pytest.raises(DataError, match=r"s1r1\.safetensors: is damaged"):
        workload.gradients(1)
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"s1r1\.safetensors: has .* it is damaged"):
        trace_spec(folder, "mine", 2)
    path.unlink()
    with pytest.raises(DataError, match=r"s1r1\.safetensors: there is no such file"):
        trace_spec(folder, "mine", 2)


def test_a_folder_that_changes_meanwhile_is_refused(folder: Path) -> None:
    """Variants share a workload by the hash of its spec; other rules of fusion see layers."""
    spec, fused = trace_spec(folder, "mine", 2), trace_spec(folder, "mine", 2, ONE_BUCKET)
    assert copy.deepcopy(spec) == spec
    assert hash(trace_spec(folder, "mine", 2)) == hash(spec)
    assert [layer.name for layer in fused.layers] == ["fc", "table"]
    assert fused.tensors[0].layer == tensor_of("fc.weight", (2, 3)).layer
    assert len(TraceWorkload(fused).buckets) == 1

    changed(folder, lambda trace: trace["steps"].pop())
    with pytest.raises(DataError, match="changed since the run began"):
        TraceWorkload(spec)


def test_a_study_reads_a_step_in_every_round(folder: Path) -> None:
    source = file_source(folder, None)

    rounds = [[own.copy() for own in one] for one in source.cells[0].rounds(3)]

    assert (source.workers, source.elements, len(source.tensors)) == (2, 16, 3)
    for number, gradients in enumerate(rounds):
        for rank, own in enumerate(gradients):
            assert np.array_equal(own, dense_of(number % 2, rank))
    live = sum(np.count_nonzero(dense_of(0, rank)) for rank in range(2))
    assert source.cells[0].density == live / 32
    with pytest.raises(DataError, match="of 2 workers, --workers says 3"):
        file_source(folder, 3)


def part_of(folder: Path, rank: int, steps: tuple[int, ...], bad: tuple[int, ...] = ()) -> dict[str, Any]:
    """What a rank gives, and its files in a folder; steps in `bad` had numbers that are not finite."""
    listed: list[dict[str, Any]] = []
    for step in steps:
        if step in bad:
            listed.append({"step": step, "times": None})
            continue
        content = safetensors_bytes(arrays_of(step, rank))
        one = rank_step(step, rank, content)
        (folder / one["file"]).write_bytes(content)
        listed.append({"step": step, "times": one})
    return {
        "model": "Tiny",
        "world_size": 2,
        "tensors": TENSORS,
        "buckets": [[0, 1], [2]],
        "steps": listed,
        "made_by": {},
        "notes": [],
        "wanted_steps": 3,
    }


def begin(folder: Path, ranks: tuple[int, ...] = (0, 1), is_watched: bool = True) -> RecordingParts:
    """A recording that these ranks have begun."""
    parts = RecordingParts(folder / "made", "abc", is_watched=is_watched)
    for rank in ranks:
        parts.begin(rank, {"world_size": 2, "steps": 3})
    return parts


@pytest.fixture
def begun(tmp_path: Path) -> RecordingParts:
    return begin(tmp_path)


@pytest.mark.parametrize("last", ["fails", "finishes"])
def test_the_last_rank_removes_what_failed_if_no_launcher_will(tmp_path: Path, last: str) -> None:
    parts = begin(tmp_path, is_watched=False)
    given = part_of(parts.path, 1, (1, 2, 3))
    parts.fail(0, "no memory")
    assert parts.path.is_dir()  # the other rank still writes
    if last == "fails":
        parts.fail(1, "its peer is gone")
    else:
        parts.finish(1, given)
    assert not list(tmp_path.iterdir())


def test_the_last_rank_joins(begun: RecordingParts) -> None:
    begun.finish(1, part_of(begun.path, 1, (1, 2, 3)))
    assert not begun.wanted.exists()
    begun.finish(0, part_of(begun.path, 0, (1, 2, 3)))

    trace = read_trace(begun.wanted)
    assert [step.step for step in trace.steps] == [1, 2, 3]
    assert trace.notes == []
    assert [path.name for path in begun.wanted.parent.iterdir()] == ["made"]
    assert len(list(begun.wanted.iterdir())) == 7


def test_steps_that_not_all_have_are_left_out(begun: RecordingParts) -> None:
    """With their files; both reasons are told."""
    begun.finish(0, part_of(begun.path, 0, (1, 2, 3), bad=(2,)))
    begun.finish(1, part_of(begun.path, 1, (1, 2)))

    trace = read_trace(begun.wanted)
    assert [step.step for step in trace.steps] == [1]
    assert len(trace.notes) == 2
    assert trace.notes[0].startswith("1 steps whose gradients were not finite")
    assert trace.notes[1] == "3 steps were wanted, all ranks recorded 2"
    left = {path.name for path in begun.wanted.iterdir()}
    assert left == {"trace.json", "s1r0.safetensors", "s1r1.safetensors"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tensors": TENSORS[:2]}, "rank 1 has other tensors"),
        ({"buckets": [[0, 1, 2]]}, "rank 1 has other buckets"),
        ({"steps": []}, "no step that all ranks recorded"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(begun: RecordingParts, change: dict[str, Any], told: str) -> None:
    parts = [part_of(begun.path, rank, (1,)) for rank in range(2)]

    with pytest.raises(RunError, match=told):
        join_parts([parts[0], {**parts[1], **change}])
    begun.finish(0, parts[0])
    with pytest.raises(RunError, match=told):
        begun.finish(1, {**parts[1], **change})
    assert list(begun.wanted.parent.iterdir()) == []


def test_what_became_of_each_rank_is_told(begun: RecordingParts) -> None:
    """One had all, one died after a step; what they wrote is removed."""
    begun.finish(0, part_of(begun.path, 0, (1, 2, 3)))
    for step in (1, 2, 3):
        (begun.path / f"s{step}r0.safetensors").rename(begun.path / f"step-{step}-rank-0000.safetensors")
    (begun.path / "step-000001-rank-0001.safetensors").write_bytes(b"")

    assert begun.report() == (
        "rank 0: recorded 3 steps",
        "rank 1: ended after 1 of 3 recorded steps, without a word",
    )
    assert list(begun.wanted.parent.iterdir()) == []


def test_a_failure_and_a_rank_that_never_began_are_told(tmp_path: Path) -> None:
    parts = begin(tmp_path, (1,))
    parts.fail(1, "the training ended with ValueError: a bad sample")

    assert parts.report() == (
        "rank 0: never wrapped a model in DistributedDataParallel",
        "rank 1: the training ended with ValueError: a bad sample",
    )
    assert begin(tmp_path, ()).report() == ()
    parts = begin(tmp_path)
    for rank, text in enumerate(("no memory", "its peer is gone")):
        parts.fail(rank, text)
    assert parts.report() == ("rank 0: no memory", "rank 1: its peer is gone")


def test_space_on_the_disk_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(capture_parts.shutil, "disk_usage", lambda _: Usage)
    require_space(tmp_path, 1000)
    with pytest.raises(DataError, match="takes up to 1,001 bytes, 1,000 are free"):
        require_space(tmp_path, 1001)


def test_the_most_that_a_step_takes() -> None:
    """A table may have gradients in all rows, each with its number."""
    row = TensorRow(name="w", shape=[10, 4], dtype="float16", layout="dense")
    table = row.model_copy(update={"name": "t", "layout": "rows"})
    assert most_bytes([row, table]) == 2 * 40 + 2 * 40 + 8 * 10


def test_settings_have_limits(tmp_path: Path) -> None:
    assert check_settings(tmp_path / "new", 100_000, 1) == CaptureSettings(str(tmp_path / "new"), 100_000, 1)
    for steps, skip in ((0, 1), (100_001, 1), (1, 0), (True, 1), (1.0, 1)):
        with pytest.raises(DataError, match="must be a whole number from 1"):
            check_settings(tmp_path / "new", steps, skip)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is there already"):
        check_settings(tmp_path, 1, 1)
    other, made = pytest.raises(DataError, match="Path cannot be recorded"), tmp_path / "made"
    with other as caught, netfold.capture(tmp_path, made):
        pass
    assert "DistributedDataParallel(model)" in caught.value.hint


SCRIPT = """\
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
model = DistributedDataParallel(nn.Linear(8, 3))
other = DistributedDataParallel(nn.Linear(2, 2))
assert os.environ.get("OF_THE_USER", "yes") == "yes"
for step in range(4):
    model.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    if sys.argv[1] == "raises" and step == 2 and dist.get_rank() == 1:
        raise ValueError("a bad sample")
dist.destroy_process_group()
sys.exit(5 if sys.argv[1] == "exits" else 0)
"""


def captured(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    paths = os.pathsep.join([*filter(None, [environment.pop("PYTHONPATH", "")]), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "netfold", "capture", "--out", "made", "--steps", "9", "--", *command],
        cwd=folder,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", **environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("folder", "command", "status", "told"),
    [
        ("made", ["./no-such-command"], 2, "./no-such-command: cannot be run: No such file or directory"),
        (".", ["touch", "ran"], 2, "is there already"),  # before the command runs
        ("made", ["sh", "-c", "exit 7"], 7, "no process of the command wrapped a model"),
        ("made", ["true"], 1, "no process of the command wrapped a model"),
    ],
)
def test_mistakes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, command: list[str], status: int, told: str
) -> None:
    """The status is the command's; 1 where that is 0."""
    monkeypatch.chdir(tmp_path)
    done = run_command("capture", "--out", folder, "--", *command)

    assert done.exit_code == status
    assert told in done.output + str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # two new interpreters import PyTorch
@pytest.mark.processes
def test_a_script_is_recorded_as_it_is(tmp_path: Path) -> None:
    """It ends before the wanted steps, with a status of its own; the user's sitecustomize runs too."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (mine / "sitecustomize.py").write_text("import os\nos.environ['OF_THE_USER'] = 'yes'\n")

    command = [sys.executable, "train.py", "exits", str(tmp_path / "meeting")]
    done = captured(tmp_path, *command, PYTHONPATH=str(mine), OF_THE_USER="no")

    assert done.returncode == 5, done.stderr
    trace = read_trace(tmp_path / "made")
    assert [step.step for step in trace.steps] == [1, 2, 3]
    assert {one.name: one.shape for one in trace.tensors} == {"weight": [3, 8], "bias": [3]}
    assert trace.notes == ["9 steps were wanted, all ranks recorded 3"]
    assert "the first is recorded" in done.stderr
    assert "Linear: 3 steps of 1 ranks, 27 elements" in done.stdout


@nightly
@pytest.mark.processes
def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    """A scheduler's SIGTERM ends the training, and its status is the command's."""
    text = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(200)\n"
    )
    words = [sys.executable, "-m", "netfold", "capture", "--", sys.executable, "-c", text]
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until = time.monotonic() + 200
        while not (tmp_path / "ready").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(200) == 43
    finally:
        process.kill()


@nightly  # 20 s, of which torchrun's own start is most
@pytest.mark.processes
def test_a_rank_that_fails_is_told(tmp_path: Path) -> None:
    """torchrun ends the other one, or it sees a closed connection before; nothing is left."""
    (tmp_path / "train.py").write_text(SCRIPT)
    torchrun = shutil.which("torchrun") or str(Path(sys.executable).parent / "torchrun")
    done = captured(tmp_path, torchrun, "--standalone", "--nproc-per-node", "2", "train.py", "raises")

    assert done.returncode == 1
    assert "made was not written" in done.stderr
    assert "rank 1: the training ended with ValueError: a bad sample" in done.stderr
    assert "rank 0: " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
