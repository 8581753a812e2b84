"""Recordings are read as they are described, and damaged, foreign or oversized ones are refused in words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.sim.capture import layout
from netfold.sim.capture.layout import read_trace
from netfold.sim.errors import DataError
from netfold.sim.study.source import file_source
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.layers import tensor_of
from netfold.sim.workload.trace.workload import TraceWorkload, trace_spec
from tests.sim.capture.folders import arrays_of, dense_of, rank_step, safetensors_bytes, write_recording


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
    "a negative time": (
        lambda t: first_of(t).update(before_ns=-1),
        "steps.0.ranks.0.before_ns",
    ),
    "a time beyond the limit": (
        lambda t: first_of(t).update(synced_ns=10**15 + 1),
        "steps.0.ranks.0.synced_ns",
    ),
    "a fraction": (lambda t: first_of(t).update(before_ns=0.5), "steps.0.ranks.0.before_ns"),
    "backward ends before it begins": (
        lambda t: first_of(t).update(backward_end_ns=19),
        "not in order",
    ),
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
