"""What does not fit the memory that is available is refused in words, before anything large is made."""

from __future__ import annotations

from pathlib import Path

import pytest

import sim.resolve.memory
from sim.memory import BASE_BYTES, Footprint
from sim.resolve.memory import Sized, _bytes
from sim.workload import TrainingSpec, training_elements, training_workload
from tests.sim.scenes import job_plan, only, refused
from tests.sim.scenes import plan as planned

ELEMENTS, WORKERS = 10_000_000, 3
SETS = (
    f"workload={{kind: synthetic, elements: {ELEMENTS}}}",
    "codec={kind: none}",
    "collective={kind: ring}",
)
RING_LEAST = BASE_BYTES + ELEMENTS * (4 * WORKERS + 16)  # gradients, and segments on their way


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> object:
    def so_much(size_bytes: int) -> None:
        monkeypatch.setattr(sim.resolve.memory, "available_bytes", lambda: size_bytes)

    return so_much


def test_less_than_the_gradients_alone_is_refused(tmp_path: Path, available: object) -> None:
    assert callable(available)
    available(RING_LEAST - 1)

    told = refused(tmp_path, *SETS)
    assert "workload.elements: 10,000,000 elements of 3 workers take about 267 MiB, 267 MiB of this " in told
    assert "  use 9,999,999 elements at most, or fewer workers" in told


def test_what_fits_with_room_to_spare_is_fine(tmp_path: Path, available: object) -> None:
    assert callable(available)
    available(RING_LEAST + 16 * ELEMENTS)

    assert job_plan(only(tmp_path, *SETS)).steps == 1


def test_a_codec_that_holds_more_is_refused_where_another_fits(tmp_path: Path, available: object) -> None:
    """`exact` holds its digits and their sums for every worker: more than 8 bytes for each element."""
    assert callable(available)
    available(RING_LEAST + 12 * ELEMENTS)

    assert only(tmp_path, *SETS)
    assert "elements of 3 workers take about" in refused(tmp_path, *SETS, "codec={kind: exact}")


def test_a_model_that_is_too_large_is_refused_without_building_it(tmp_path: Path) -> None:
    told = refused(tmp_path, "workload={kind: training, model: ncf, expand: [100000, 100000]}")

    assert "workload.expand: 50,400,107,073 elements of 3 workers take about" in told


def test_a_model_has_the_weights_that_are_counted_for_it() -> None:
    for spec in (TrainingSpec("mlp", batch=1), TrainingSpec("ncf", batch=1, expand=(2, 1))):
        elements = sum(bucket.elements for bucket in training_workload(spec, 1, 1).buckets)
        assert training_elements(spec) == elements


def test_what_one_worker_more_takes_is_told_by_its_share(tmp_path: Path) -> None:
    """Of a codec that holds 10 bytes for each element and worker: its 4 of the gradient and these."""
    resolved = planned(tmp_path, *SETS)
    job = job_plan(resolved.variants[0])
    sized = [Sized(None, job.workload, workers, job.codec, job.collective) for workers in (2, 3)]  # type: ignore[arg-type]  # no error is raised
    few, more = (_bytes(one, Footprint(0.0, 10.0)) for one in sized)

    assert more - few == 14 * ELEMENTS
