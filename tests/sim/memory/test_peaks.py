"""What runs really take, as the system counts it, against what is promised and what is estimated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import netfold.sim.resolve.variant
from netfold.sim.memory.available import BASE_BYTES
from netfold.sim.resolve import resolve
from netfold.sim.resolve.memory import JobSize, _footprint
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from tests import ROOT
from tests.examples import nightly

RUN = """
import resource, sys
from netfold.sim.run.run import run_variant
from netfold.sim.resolve import resolve
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
workload: {kind: training, model: ncf, expand: %s, batch: 1024, steps: 3}
codec: {kind: %s}
collective: {%s, frame: roce-1024}
"""
SWITCHML = "kind: in_network, program: switchml"
SMALL = {LARGE: "4000", TRAINED: "[1, 1]"}
COMMAND = """
import resource, subprocess, sys

subprocess.run([sys.executable, "-m", "netfold", "run", sys.argv[1]], check=True, stdout=sys.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peaks_kib(script: str, file: Path) -> list[int]:
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
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
    monkeypatch.setattr(netfold.sim.resolve.variant, "refuse_more_than_fits", jobs.extend)
    resolve(load(file))
    estimate = BASE_BYTES + jobs[-1].bytes(_footprint(jobs[-1]))

    (peak,) = peaks_kib(COMMAND, file)
    assert 1 / 1.2 <= estimate / (1024 * peak) <= 1.2
