"""What real processes record is what DDP summed, in its buckets and order, and replays to these sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import netfold
from netfold.sim.capture.layout import read_trace
from netfold.sim.errors import DataError
from netfold.sim.workload.trace.workload import TraceWorkload, trace_spec
from tests.sim.capture.trainings import all_trained, trained
from tests.torch.processes import returned, run

EXACT = ("plain", "view", "zeroed", "accumulated", "unused", "accumulated_unused", "rows", "scalar")
MODES = (*EXACT, "half", "overflowing", "double")
STEPS, WANTED = 6, 4
Recorded = tuple[Path, list[dict[str, Any]]]
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The folder of all recordings, and what the processes say of them."""
    folder = tmp_path_factory.mktemp("recorded")
    return folder, returned(2, folder, all_trained, folder, MODES, STEPS, WANTED)


def sums_of(workload: TraceWorkload, step: int) -> dict[str, Any]:
    """The sum of all ranks' gradients by parameter."""
    flat = [np.concatenate(own) for own in workload.gradients(step)]
    total = flat[0] + flat[1]
    return {
        tensor.name: total[bucket.start + tensor.start :][: tensor.elements].reshape(tensor.shape)
        for bucket in workload.buckets
        for tensor in bucket.tensors
    }


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
            found = sums_of(workload, index)
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


def test_a_rank_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The other rank sees that the connection is closed; neither leaves a recording."""
    first, second = run(2, tmp_path, trained, tmp_path, "failing", 4, 3)

    assert second.error == "ValueError: a bad sample"
    assert "Error" in first.error
    assert not (tmp_path / "failing").exists()
