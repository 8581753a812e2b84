"""Memory: what there is, what a run takes, and scenarios that are refused as they would take more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import netfold.sim.plan.memory_footprint
import netfold.sim.scenario.resolve
import netfold.sim.scenario.run_limits
from netfold.sim.plan.memory_footprint import BASE_BYTES, Footprint, available_bytes, size_text
from netfold.sim.run.run import run_variant
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.run_limits import JobSize, _footprint
from netfold.sim.workload.models.ncf import Ncf
from netfold.sim.workload.workload_keys import Training
from tests.command_line import run_python
from tests.examples import nightly
from tests.sim.scenes import job_plan, only, refused
from tests.sim.scenes import plan as planned


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of our own: 1,000 KiB are available, no control groups."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n")
    monkeypatch.setattr(netfold.sim.plan.memory_footprint, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(netfold.sim.plan.memory_footprint, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(netfold.sim.plan.memory_footprint, "_CGROUP_ROOT", tmp_path / "groups")
    return tmp_path


def group(system: Path, name: str, **files: int | str) -> None:
    folder = system / "groups" / name
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in files.items():
        (folder / key.replace("__", ".")).write_text(f"{value}\n")


def test_without_control_groups_it_is_what_the_system_has(system: Path) -> None:
    assert available_bytes() == 1000 * 1024


@pytest.mark.parametrize(
    ("own", "name", "files", "left"),
    [
        ("0::/a/b", "a", {"memory__max": 9000, "memory__current": 4000}, 5000),
        # pages of files can be dropped
        (
            *("0::/a", "a"),
            {"memory__max": 9000, "memory__current": 4000, "memory__stat": "anon 7\ninactive_file 1500"},
            6500,
        ),
        ("0::/a", "a", {"memory__max": 10, "memory__current": 4000}, 0),
        (  # the first version of control groups
            *("5:cpu,cpuacct:/x\n7:memory:/job", "memory/job"),
            {"memory__limit_in_bytes": 300, "memory__usage_in_bytes": 100},
            200,
        ),
    ],
)
def test_a_control_group_may_leave_less(
    system: Path, own: str, name: str, files: dict[str, int | str], left: int
) -> None:
    (system / "cgroup").write_text(f"{own}\n")
    group(system, "a/b", memory__max="max", memory__current=5)
    group(system, name, **files)

    assert available_bytes() == left


def test_sizes_for_people() -> None:
    assert [size_text(size) for size in (1, 5 << 20, 1 << 30, 3 << 29)] == [
        "1 MiB",
        "5 MiB",
        "1.0 GiB",
        "1.5 GiB",
    ]


RUN = """
import resource, sys
from netfold.sim.run.run import run_variant
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario import load

plan = resolve(load(sys.argv[1]))
for variant in plan.variants:
    run_variant(plan, variant)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
FIVE = """\
name: five
topology: {kind: star, hosts: 4}
workers: 4
workload: {kind: synthetic, elements: 4000000}
codec: {kind: fixed_point}
collective: {kind: in_network, program: switchml, frame: roce-1024}
variants: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]
"""
LARGE = """\
name: large
topology: {kind: star, hosts: 8}
workers: 8
workload: {kind: synthetic, elements: %s, density: %s}
codec: {kind: %s}
collective: {kind: in_network, program: switchml, frame: roce-1024}
"""
TRAINED = """\
name: trained
topology: {kind: star, hosts: 8}
workers: 8
workload: {kind: training, model: ncf, expand: %s, batch: 1024, steps: 20}
codec: {kind: %s}
collective: {%s, frame: roce-1024}
"""
SWITCHML = "kind: in_network, program: switchml"
SAMPLE = "steps: 3, bucket: 4MB, payload: {sample: 8}"
SMALL = {LARGE: "4000", TRAINED: "[1, 1]"}
COMMAND = """
import resource, subprocess, sys

command = [sys.executable, "-m", "netfold", "run", "--no-report", sys.argv[1]]
subprocess.run(command, check=True, stdout=sys.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peaks_kib(script: str, file: Path) -> list[int]:
    """What a script prints."""
    done = run_python("-c", script, file, cwd=file.parent)
    return [int(line) for line in done.stdout.split()]


@nightly
def test_nothing_of_a_variant_is_left_in_memory(tmp_path: Path) -> None:
    """The peak after five equal variants is that after one; a variant's gradients alone are 61 MiB."""
    (tmp_path / "five.yaml").write_text(FIVE)
    peaks = peaks_kib(RUN, tmp_path / "five.yaml")

    assert len(peaks) == 5
    assert peaks[-1] <= 1.03 * peaks[0]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("scene", "values"),
    [
        (LARGE, ("4000000", "100%", "fixed_point")),
        pytest.param(LARGE, ("6000000", "5%", "lossless"), marks=nightly),
        pytest.param(LARGE, ("6000000", "100%", "exact"), marks=nightly),
        pytest.param(LARGE, ("6000000", "5%", "packed"), marks=nightly),
        pytest.param(LARGE, ("40000000", f"100%, {SAMPLE}", "fixed_point"), marks=nightly),
        pytest.param(
            TRAINED, ("[60, 16]", "fixed_point", "kind: in_network, program: switchml"), marks=nightly
        ),
        pytest.param(TRAINED, ("[60, 16]", "none", "kind: ring"), marks=nightly),
    ],
)
def test_the_estimate_is_within_a_fifth_of_the_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: str, values: tuple[str, ...]
) -> None:
    """Training goes on for three steps: what a step leaves behind must not add up."""
    file = tmp_path / "scenario.yaml"
    file.write_text(scene % (SMALL[scene], *values[1:]))
    plan = resolve(load(file))
    run_variant(plan, plan.variants[0])  # compiles what is not compiled yet
    file.write_text(scene % values)
    jobs: list[JobSize] = []
    monkeypatch.setattr(netfold.sim.scenario.resolve, "refuse_more_than_fits", jobs.extend)
    resolve(load(file))
    estimate = BASE_BYTES + jobs[-1].bytes(_footprint(jobs[-1]))

    (peak,) = peaks_kib(COMMAND, file)
    assert 1 / 1.2 <= estimate / (1024 * peak) <= 1.2


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
        monkeypatch.setattr(netfold.sim.scenario.run_limits, "available_bytes", lambda: size_bytes)

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


@pytest.mark.parametrize(
    ("keys", "elements"),
    [
        ("model: ncf, expand: [100000, 100000]", "50,400,107,073"),
        ("model: resnet50, batch: 1000000", "25,557,032"),  # activations of 112 MB a sample, as measured
    ],
)
def test_a_model_or_batch_that_is_too_large_is_refused_at_once(
    tmp_path: Path, keys: str, elements: str
) -> None:
    message = refused(tmp_path, f"workload={{kind: training, {keys}}}")
    assert f"workload.model: {elements} elements of 3 workers take about" in message


def test_a_model_has_the_weights_that_are_counted_for_it() -> None:
    for spec in (Training("mlp", batch=1), Training(Ncf(expand=(2, 1)), batch=1)):
        elements = sum(bucket.elements for bucket in spec.workload(1, 1).buckets)
        assert spec.elements == elements


def test_what_one_worker_more_takes_is_reported_by_its_share(tmp_path: Path) -> None:
    """Of a codec that holds 10 bytes for each element and worker: its 4 of the gradient and these."""
    resolved = planned(tmp_path, *SETS)
    job = job_plan(resolved.variants[0])
    sized = [JobSize(None, job.workload, workers, job.codec, job.collective) for workers in (2, 3)]  # type: ignore[arg-type]  # no error is raised
    few, more = (one.bytes(Footprint(0.0, 10.0), records=False) for one in sized)

    assert more - few == 14 * ELEMENTS
