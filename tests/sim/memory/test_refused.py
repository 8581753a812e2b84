"""What does not fit the memory that is available is refused in words, before anything large is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import netfold.sim.resolve.memory
from netfold.sim.memory.available import BASE_BYTES, Footprint
from netfold.sim.resolve.memory import JobSize
from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.training.models.ncf import Ncf
from tests.sim.scenes import job_plan, only, refused
from tests.sim.scenes import plan as planned

ELEMENTS, WORKERS = 10_000_000, 3
SETS = (
    f"workload={{kind: synthetic, elements: {ELEMENTS}}}",
    "codec={kind: none}",
    "collective={kind: ring}",
)
RING_LEAST = BASE_BYTES + ELEMENTS * (4 * WORKERS + 16)  # gradients, and segments on their way


Available = Callable[[int], None]


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Available:
    def so_much(size_bytes: int) -> None:
        monkeypatch.setattr(netfold.sim.resolve.memory, "available_bytes", lambda: size_bytes)

    return so_much


def test_less_than_the_gradients_alone_is_refused(tmp_path: Path, available: Available) -> None:
    available(RING_LEAST - 1)

    message = refused(tmp_path, *SETS)
    assert "workload.elements: 10,000,000 elements of 3 workers take about " in message
    assert ", 267 MiB of this machine's memory are free for them\n" in message


def hinted(message: str) -> int:
    """The largest number that a refusal names."""
    found = re.search(r"use (?:a model of )?([\d,]+) (?:elements|steps|workers|weights) at most", message)
    assert found, message
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(("codec", "bucket"), [("none", ""), ("exact", ", bucket: 4MB"), ("fixed_point", "")])
def test_what_the_hint_names_fits_and_a_little_more_does_not(
    tmp_path: Path, available: Available, codec: str, bucket: str
) -> None:
    """Buckets make a part of it constant, so that half the memory is not for half the elements."""
    collective = "ring" if codec == "none" else "in_network"

    def sets(elements: int) -> tuple[str, ...]:
        workload = f"workload={{kind: synthetic, elements: {elements}{bucket}}}"
        return workload, f"codec={{kind: {codec}}}", f"collective={{kind: {collective}}}"

    available(BASE_BYTES + (90 << 20))
    most = hinted(refused(tmp_path, *sets(10**8)))

    assert only(tmp_path, *sets(most))
    assert hinted(refused(tmp_path, *sets(most * 11 // 10))) == pytest.approx(most, rel=0.01)


def test_records_of_many_steps_are_refused_with_the_largest_number_of_steps(
    tmp_path: Path, available: Available
) -> None:
    """Measured: 7.9 KB for each step of 8 workers and one bucket, so some 1 KB for a worker's."""
    few = "workload={kind: synthetic, elements: 10, steps: %d}"
    available(2 * BASE_BYTES)
    message = refused(tmp_path, few % 10**9)
    most = hinted(message)

    assert "workload.steps: the records of 1,000,000,000 steps of 3 workers take about " in message
    assert 0.5 < most * 3 * 1000 / BASE_BYTES < 1.5
    assert only(tmp_path, few % most)


def test_what_reading_a_file_leaves_in_memory_is_counted(tmp_path: Path, available: Available) -> None:
    """Of an archive in column order every row lies all over it: 32 workers are unpacked where 4 are used."""
    gradients = np.zeros((32, 1 << 18), np.float32)  # 32 MiB, in 32 KiB
    np.savez_compressed(tmp_path / "rows.npz", gradients)
    np.savez_compressed(tmp_path / "columns.npz", np.asfortranarray(gradients))
    available(BASE_BYTES + (30 << 20))
    wanted = ("workers=2", "codec={kind: none}", "collective={kind: ring}")

    assert only(tmp_path, "workload={kind: file, path: rows.npz}", *wanted)
    message = refused(tmp_path, "workload={kind: file, path: columns.npz}", *wanted)
    assert "workload.path: 262,144 elements of 2 workers take about " in message


def test_a_codec_that_holds_more_is_refused_where_another_fits(tmp_path: Path, available: Available) -> None:
    """`exact` holds its digits and their sums for every worker: more than 8 bytes for each element."""
    available(RING_LEAST + 12 * ELEMENTS)

    assert only(tmp_path, *SETS)
    message = refused(tmp_path, *SETS, "codec={kind: exact}")
    assert "elements of 3 workers take about" in message
    assert "iB with exact, " in message


def test_a_model_that_is_too_large_is_refused_without_building_it(tmp_path: Path) -> None:
    message = refused(tmp_path, "workload={kind: training, model: ncf, expand: [100000, 100000]}")

    assert "workload.model: 50,400,107,073 elements of 3 workers take about" in message


def test_a_batch_that_is_too_large_for_a_model_is_refused(tmp_path: Path) -> None:
    """Activations of ResNet-50 take about 112 MB a sample: the growth of the peak from batch 1 to 16."""
    assert "workload.model: 25,557,032 elements of 3 workers take about" in refused(
        tmp_path, "workload={kind: training, model: resnet50, batch: 1000000}"
    )


def test_a_model_has_the_weights_that_are_counted_for_it() -> None:
    for spec in (TrainingSpec("mlp", batch=1), TrainingSpec(Ncf(expand=(2, 1)), batch=1)):
        elements = sum(bucket.elements for bucket in training_workload(spec, 1, 1).buckets)
        assert spec.elements == elements


def test_what_one_worker_more_takes_is_reported_by_its_share(tmp_path: Path) -> None:
    """Of a codec that holds 10 bytes for each element and worker: its 4 of the gradient and these."""
    resolved = planned(tmp_path, *SETS)
    job = job_plan(resolved.variants[0])
    sized = [JobSize(None, job.workload, workers, job.codec, job.collective) for workers in (2, 3)]  # type: ignore[arg-type]  # no error is raised
    few, more = (one.bytes(Footprint(0.0, 10.0), records=False) for one in sized)

    assert more - few == 14 * ELEMENTS
