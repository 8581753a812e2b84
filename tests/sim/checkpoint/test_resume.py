"""A run that goes on from any of its checkpoints writes the folder of a run without a stop."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from netfold.sim.checkpoint.keeper import Checkpoints, Keeper
from tests.examples import nightly
from tests.sim.checkpoint.stops import Stop, content, require_same, run, stopped_after, write

HEAD = """
name: stops
seed: 3
topology: {kind: star, hosts: 6, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 3
"""
SYNTHETIC = "workload: {kind: synthetic, elements: 2000, density: 0.1, steps: 3}\n"
TRAINING = "workload: {kind: training, model: mlp, batch: 8, steps: 3}\n"

ADAM = TRAINING.replace("steps: 3", "steps: 3, optimizer: {kind: adam}")
LOCAL = TRAINING.replace(
    "steps: 3", "steps: 3, local_steps: 2, optimizer: {kind: sgd, momentum: 0.9}, schedule: {kind: cosine}"
)
DEVICE = "device: {kind: roofline, model: v100}\n"  # compute takes time


@pytest.mark.parametrize(
    ("workload", "collective", "codec"),
    [
        # counters of links and hosts, slots, windows and late acknowledgements are state
        (SYNTHETIC, "{kind: in_network, program: switchml}", "{kind: packed}"),
        (SYNTHETIC, "{kind: in_network, program: atp}", "{kind: fixed_point, factor: 1000000.0}"),
        pytest.param(SYNTHETIC, "{kind: ring}", "{kind: none}", marks=nightly),
        pytest.param(SYNTHETIC, "{kind: tree}", "{kind: fixed_point}", marks=nightly),
        pytest.param(SYNTHETIC, "{kind: parameter_server, servers: 2}", "{kind: none}", marks=nightly),
        # so is what encoders and servers remember, and what checks add up over rounds
        (TRAINING, "{kind: ring}", "{kind: marsit}"),
        (TRAINING, "{kind: ring}", "{kind: count_sketch}"),
        pytest.param(TRAINING, "{kind: all_gather}", "{kind: sasg}", marks=nightly),
        (TRAINING, "{kind: parameter_server}", "{kind: sasg}"),
        (TRAINING, "{kind: all_gather}", "{kind: bird}"),
        (TRAINING, "{kind: ring}", "{kind: auto}"),
        (TRAINING, "{kind: all_gather}", "{kind: topk, share: 0.01, feedback: true}"),
        # and what optimizers and workers remember
        (ADAM + DEVICE, "{kind: in_network}", "{kind: fixed_point}"),
        (LOCAL + DEVICE, "{kind: in_network}", "{kind: fixed_point}"),
    ],
)
def test_every_kind_of_state(workload: str, collective: str, codec: str, tmp_path: Path) -> None:
    text = f"{HEAD}{workload}collective: {collective}\ncodec: {codec}\n"
    assert require_same(write(tmp_path, text), tmp_path) == [0, 0]


TWO_VARIANTS = f"""{HEAD}{SYNTHETIC}
codec: {{kind: fixed_point}}
variants:
  - {{name: first, collective: {{kind: ring}}}}
  - {{name: second, collective: {{kind: in_network}}}}
"""


def test_several_variants(tmp_path: Path) -> None:
    """Results of finished variants are kept, and a state is that of its variant."""
    assert require_same(write(tmp_path, TWO_VARIANTS), tmp_path) == [0, 0, 1, 1]


def test_killed_before_the_state_of_a_finished_variant_is_removed(tmp_path: Path) -> None:
    """A state of a variant whose result is there is not used for the next one."""
    path, out = write(tmp_path, TWO_VARIANTS), tmp_path / "out"
    wanted = content(run(path, tmp_path / "whole"))
    with pytest.raises(Stop), stopped_after(2):
        run(path, out, Checkpoints(1))
    (state,) = out.glob("stops/checkpoint-*/state.safetensors")
    of_first = state.read_bytes()
    with pytest.raises(Stop), stopped_after(1):
        run(path, out, Checkpoints(resumes=True))
    state.write_bytes(of_first)
    assert content(run(path, out, Checkpoints(resumes=True))) == wanted


def test_faults_before_and_after_the_checkpoint(tmp_path: Path) -> None:
    """Faults that hold, have held and will hold; packets lost so far; slow links."""
    text = f"""{HEAD}
workload: {{kind: synthetic, elements: 20000, steps: 3}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network, program: switchml, frame: roce-1024, slots: 64}}
variants:
  - name: timed
    faults:
      - {{kind: link_rate, links: ["h0->s0"], at: 3us, rate: 10Gbps, for: 30us}}
      - {{kind: start_skew, worker: 0, delay: 5us}}
      - {{kind: switch_reboot, switch: s0, at: 70us, clears: registers}}
  - name: loss
    faults: [{{kind: loss, rate: 1%}}]
"""
    stored = require_same(write(tmp_path, text), tmp_path)
    assert stored.count(0) >= 2
    assert stored.count(1) >= 1


COMING = f"""{HEAD.replace("workers: 3", "workers: 2")}
workload: {{kind: synthetic, elements: 2000, steps: 2}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network, program: switchml, frame: udp-256, slots: 64}}
"""


def test_jobs_of_a_template_with_hosts_of_their_own(tmp_path: Path) -> None:
    """Arrivals of a template are those of any resumed run; one job has ended when the other has not begun."""
    text = f"""{COMING}
admission: reserved
jobs:
  - {{name: first}}
  - {{name: late, count: 1, start: 2500us, arrivals: {{kind: poisson, mean_gap: 100us}}}}
"""
    assert require_same(write(tmp_path, text), tmp_path) == [0] * 3


def test_admitted_jobs_have_no_state_and_keep_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"""{COMING}
admission: fifo
jobs: [{{name: a, workers: 4, count: 2, arrivals: {{kind: even, gap: 1us}}}}]
variants: [{{name: first}}, {{name: second, workload: {{elements: 3000}}}}]
"""
    path, out = write(tmp_path, text), tmp_path / "out"
    put = Keeper.put_result

    def put_and_stop(keeper: Keeper, number: int, result: object) -> None:
        put(keeper, number, result)
        raise Stop

    with mock.patch.object(Keeper, "put_result", put_and_stop), pytest.raises(Stop):
        run(path, out, Checkpoints(1))
    messages = {record.getMessage() for record in caplog.records}
    assert "first: no checkpoint before its end: its jobs are admitted while it runs" in messages
    (checkpoint,) = out.glob("stops/checkpoint-*")
    assert {one.name for one in checkpoint.iterdir()} == {"run.json", "variant-000.safetensors"}
    with stopped_after(0) as stored:
        assert content(run(path, out, Checkpoints(resumes=True))) == content(run(path, tmp_path / "whole"))
    assert stored == []


def test_jobs_that_overlap_say_why_there_is_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job within a step cannot be stored; it is said once, and the run is the same."""
    text = f"""{HEAD.replace("workers: 3", "workers: 2")}
workload: {{kind: synthetic, elements: 2000, steps: 3}}
codec: {{kind: none}}
collective: {{kind: ring}}
variants:
  - name: together
    jobs:
      - name: first
      - {{name: second, start: 300ns}}
"""
    stored = require_same(write(tmp_path, text), tmp_path)
    assert len(stored) < 5
    messages = {record.getMessage() for record in caplog.records}
    assert any("together: no checkpoint now: another job is within a step" in one for one in messages)
