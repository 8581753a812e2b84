"""A run that goes on from any of its checkpoints writes the folder of a run without a stop."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from netfold.sim.checkpoint.keeper import Checkpoints, Keeper
from tests.sim.checkpoint.stops import Stop, content, require_same, run, stopped_after, write

HEAD = """
name: stops
seed: 3
topology: {kind: star, hosts: 6, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 3
"""
SYNTHETIC = "workload: {kind: synthetic, elements: 2000, density: 0.1, steps: 3}\n"
TRAINING = "workload: {kind: training, model: mlp, batch: 8, steps: 3}\n"

COLLECTIVES = [
    "{kind: in_network, program: switchml}, codec: {kind: packed}",
    "{kind: in_network, program: atp}, codec: {kind: fixed_point, factor: 1000000.0}",
    "{kind: ring}, codec: {kind: none}",
    "{kind: tree}, codec: {kind: fixed_point}",
    "{kind: parameter_server, servers: 2}, codec: {kind: none}",
    "{kind: all_gather}, codec: {kind: topk, share: 0.01, feedback: true}",
]
CODECS = [
    "{kind: marsit}, collective: {kind: ring}",
    "{kind: count_sketch}, collective: {kind: ring}",
    "{kind: sasg}, collective: {kind: all_gather}",
    "{kind: sasg}, collective: {kind: parameter_server}",
    "{kind: bird}, collective: {kind: all_gather}",
    "{kind: auto}, collective: {kind: ring}",
    "{kind: topk, share: 0.01, feedback: true}, collective: {kind: all_gather}",
]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_kind_of_collective(collective: str, tmp_path: Path) -> None:
    """Counters of links and hosts, slots, windows and late acknowledgements are state."""
    text = f"{HEAD}{SYNTHETIC}variants:\n  - {{name: one, collective: {collective}}}\n"
    assert require_same(write(tmp_path, text), tmp_path) == [0, 0]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs_with_state(codec: str, tmp_path: Path) -> None:
    """What encoders and servers remember is state; so is what checks add up over rounds."""
    text = f"{HEAD}{TRAINING}variants:\n  - {{name: one, codec: {codec}}}\n"
    assert require_same(write(tmp_path, text), tmp_path) == [0, 0]


@pytest.mark.parametrize(
    "options",
    [
        "optimizer: {kind: adam}",
        "optimizer: {kind: sgd, momentum: 0.9}, schedule: {kind: cosine}",
        "local_steps: 2, optimizer: {kind: sgd, momentum: 0.9}",
    ],
)
def test_training(options: str, tmp_path: Path) -> None:
    """What optimizers and workers remember is state; compute takes time here."""
    workload = TRAINING.replace("steps: 3", f"steps: 3, {options}")
    device = "device: {kind: roofline, model: v100}\n"
    text = f"{HEAD}{workload}{device}codec: {{kind: fixed_point}}\ncollective: {{kind: in_network}}\n"
    assert require_same(write(tmp_path, text), tmp_path) == [0, 0]


def test_several_variants(tmp_path: Path) -> None:
    """Results of finished variants are kept, and a state is that of its variant."""
    text = f"""{HEAD}{SYNTHETIC}
codec: {{kind: fixed_point}}
variants:
  - {{name: first, collective: {{kind: ring}}}}
  - {{name: second, collective: {{kind: in_network}}}}
"""
    assert require_same(write(tmp_path, text), tmp_path) == [0, 0, 1, 1]


def test_killed_before_the_state_of_a_finished_variant_is_removed(tmp_path: Path) -> None:
    """A state of a variant whose result is there is not used for the next one."""
    text = f"""{HEAD}{SYNTHETIC}
codec: {{kind: fixed_point}}
variants:
  - {{name: first, collective: {{kind: ring}}}}
  - {{name: second, collective: {{kind: in_network}}}}
"""
    path, out = write(tmp_path, text), tmp_path / "out"
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
workload: {{kind: synthetic, elements: 20000, steps: 4}}
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


def test_jobs_that_do_not_overlap(tmp_path: Path) -> None:
    """One job has ended, or another has not begun: there are checkpoints between."""
    text = f"""{HEAD.replace("workers: 3", "workers: 2")}
workload: {{kind: synthetic, elements: 2000, steps: 3}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network}}
variants:
  - name: apart
    jobs:
      - name: first
      - {{name: second, start: 1ms}}
"""
    assert len(require_same(write(tmp_path, text), tmp_path)) == 5


COMING = f"""{HEAD.replace("workers: 3", "workers: 2")}
workload: {{kind: synthetic, elements: 2000, steps: 2}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network, program: switchml, frame: udp-256, slots: 64}}
"""


def test_jobs_of_a_template_with_hosts_of_their_own(tmp_path: Path) -> None:
    """Arrivals of a template are those of any resumed run; all jobs are there from the beginning."""
    text = f"""{COMING}
admission: reserved
jobs:
  - {{name: even, count: 2, arrivals: {{kind: even, gap: 1ms}}}}
  - {{name: late, count: 1, start: 2500us, arrivals: {{kind: poisson, mean_gap: 100us}}}}
"""
    assert require_same(write(tmp_path, text), tmp_path) == [0] * 5


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
