"""Checkpoints: what is stored, and runs that were stopped or killed go on as if they had not been."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from netfold.errors import DataError, UnwrittenError
from netfold.sim import files as durable
from netfold.sim.run.checkpoint import Checkpoints, Keeper, SavedVariant, UnstorableError, pack, unpack
from netfold.sim.run.run import run_scenario
from tests.examples import nightly
from tests.sim.scenario.files import write


class Stop(BaseException):
    """The process ends here."""


def content(folder: Path) -> dict[str, bytes]:
    """All files of a run folder but run.json, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


def run(path: Path, out: Path, checkpoints: Checkpoints | None = None) -> Path:
    """Run a scenario to its end."""
    outcome = run_scenario(path, (), None, out, lambda *_: None, (), checkpoints)
    if outcome.stopped is not None:
        raise outcome.stopped
    assert outcome.run_dir is not None
    return outcome.run_dir


@contextmanager
def stopped_after(count: int) -> Iterator[list[int]]:
    """Let a run end just after its `count`-th state is stored; the list has the variants of the states."""
    stored: list[int] = []
    put = Keeper.put_state

    def put_and_stop(keeper: Keeper, *arguments: Any) -> None:
        put(keeper, *arguments)
        stored.append(keeper._variant)
        if len(stored) == count:
            raise Stop

    with mock.patch.object(Keeper, "put_state", put_and_stop):
        yield stored


def require_same(path: Path, folder: Path) -> list[int]:
    """Require that a run resumed from any of its checkpoints is as one without; returns their variants."""
    wanted = content(run(path, folder / "whole"))
    with stopped_after(0) as all_stored:
        found = content(run(path, folder / "kept", Checkpoints(1)))
    assert found == wanted
    for count in range(1, len(all_stored) + 1):
        out = folder / f"stopped-{count}"
        try:
            with stopped_after(count):
                run(path, out, Checkpoints(1))
        except Stop:
            pass
        resumed = content(run(path, out, Checkpoints(resumes=True)))
        changed = [name for name in wanted if resumed.get(name) != wanted[name]]
        assert not changed, f"resumed from checkpoint {count} of {len(all_stored)}"
        assert resumed.keys() == wanted.keys()
    return all_stored


@pytest.mark.parametrize("value", [os.getcwd, lambda: 0, iter(()), Path()])
def test_only_data_is_stored(value: object) -> None:
    with pytest.raises(UnstorableError):
        pack([value], [])


@pytest.mark.parametrize("value", [os.getcwd, durable.write_file, subprocess.Popen, Keeper])
def test_a_file_that_names_anything_but_data_is_not_read(value: object) -> None:
    """Nothing in it is called: what it names is refused before."""
    with pytest.raises(pickle.UnpicklingError, match="is no data"):
        unpack(pickle.dumps([value]), [])


def test_what_was_shared_is_shared_and_parts_are_not_copied() -> None:
    part = object()
    shared, first = [Fraction(1, 3)], np.arange(3)
    numbers, again, found, array = unpack(pack((shared, shared, part, first), [part]), [part])
    assert numbers == [Fraction(1, 3)]
    assert numbers is again
    assert found is part
    np.testing.assert_array_equal(array, first)


TEXT = """
name: stops
seed: 3
topology: {kind: star, hosts: 2, rate: 100Gbps, delay: 1us}
workers: 2
workload: {kind: synthetic, elements: 100, steps: 4}
codec: {kind: none}
collective: {kind: ring}
"""
RESUME = Checkpoints(resumes=True)


def _stopped(folder: Path, text: str = TEXT, every: int = 1) -> tuple[Path, Path, Path]:
    """A run that was stopped at its first state: scenario, runs, and the folder of its checkpoint."""
    path, out = write(folder, text), folder / "out"
    with pytest.raises(Stop), stopped_after(1):
        run(path, out, Checkpoints(every))
    (checkpoint,) = (out / "stops").glob("checkpoint-*")
    assert sorted(one.name for one in checkpoint.iterdir()) == ["run.json", "state.pickle"]
    return path, out, checkpoint


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to resume: there is no checkpoint at"):
        run(write(tmp_path, TEXT), tmp_path / "out", RESUME)


def test_another_run_of_the_same_that_ends_does_not_end_this_one(tmp_path: Path) -> None:
    """It removes the folder that both write to; the next checkpoint makes it again, and can be used."""
    path, out = write(tmp_path, TEXT), tmp_path / "out"
    put = Keeper.put_state
    stored: list[None] = []

    def put_and_finish(keeper: Keeper, *arguments: Any) -> None:
        put(keeper, *arguments)
        stored.append(None)
        if len(stored) == 1:
            keeper.store.remove()
        elif len(stored) == 2:
            raise Stop

    with mock.patch.object(Keeper, "put_state", put_and_finish), pytest.raises(Stop):
        run(path, out, Checkpoints(1))
    assert content(run(path, out, RESUME)) == content(run(path, tmp_path / "whole"))


def test_a_run_that_has_ended_has_no_checkpoint(tmp_path: Path) -> None:
    path, out, checkpoint = _stopped(tmp_path)
    run(path, out, RESUME)
    assert not checkpoint.exists()
    with pytest.raises(DataError, match="a run that ends removes it"):
        run(path, out, RESUME)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("elements: 100", "elements: 101"), "what differs: the scenario file$"),
        (("seed: 3", "seed: 4"), "the scenario file, the seed .3 there, 4 here."),
    ],
)
def test_changed_scenario(change: tuple[str, str], what: str, tmp_path: Path) -> None:
    path, out, _ = _stopped(tmp_path)
    path.write_text(TEXT.replace(*change))
    with pytest.raises(DataError, match="is of another run") as caught:
        run(path, out, RESUME)
    assert caught.match(what.replace("$", "\n"))


def _edited(name: str, value: object) -> Callable[[Path], None]:
    def edit(checkpoint: Path) -> None:
        path = checkpoint / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))

    return edit


def _flipped(checkpoint: Path) -> None:
    path = checkpoint / "state.pickle"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _cut(checkpoint: Path) -> None:
    path = checkpoint / "state.pickle"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_edited("netfold", "0.0"), r"was written with netfold 0\.0 \(now .*\): results would"),
        (_edited("format", 1), r"was written with format 1 \(now 3\)"),
        (_edited("numpy", "0.1"), r"was written with numpy 0\.1 \(now"),
        (_edited("every", "often"), "run.json is damaged"),
        (lambda folder: (folder / "run.json").unlink(), "run.json is damaged"),
        (_flipped, "state.pickle is damaged: its content is not what was written"),
        (_cut, "state.pickle is damaged"),
    ],
)
def test_damaged(damage: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    path, out, checkpoint = _stopped(tmp_path)
    damage(checkpoint)
    with pytest.raises(DataError, match=words):
        run(path, out, RESUME)
    assert checkpoint.exists(), "what is damaged is kept"


@pytest.mark.parametrize(("every", "states"), [(1, 3), (2, 1), (3, 1), (4, 0), (None, 0)])
def test_every_so_many_steps(every: int | None, states: int, tmp_path: Path) -> None:
    """None is taken after the last step, whose result is next; and none is left."""
    with stopped_after(0) as stored:
        finished = run(write(tmp_path, TEXT), tmp_path / "out", None if every is None else Checkpoints(every))
    assert len(stored) == states
    assert list((tmp_path / "out" / "stops").iterdir()) == [finished]


@pytest.mark.parametrize(("every", "resumes", "states"), [(1, True, 2), (2, True, 0), (1, False, 3)])
def test_a_resumed_run_goes_on_every_so_many_steps_and_a_new_one_begins_anew(
    every: int, resumes: bool, states: int, tmp_path: Path
) -> None:
    path, out, checkpoint = _stopped(tmp_path, every=every)
    with stopped_after(0) as stored:
        run(path, out, RESUME if resumes else Checkpoints(every))
    assert len(stored) == states
    assert not checkpoint.exists()


def test_too_little_space(tmp_path: Path) -> None:
    usage = mock.Mock(free=100)
    path = write(tmp_path, TEXT)
    with (
        mock.patch("netfold.sim.run.checkpoint.shutil.disk_usage", return_value=usage),
        pytest.raises(UnwrittenError, match=r"cannot write a checkpoint of .* MB to .*0\.0 MB are free"),
    ):
        run(path, tmp_path / "out", Checkpoints(1))


def test_a_state_is_whole_or_the_old_one(tmp_path: Path) -> None:
    """If the disk is full in the middle of a write, the state before it is still there."""
    path, out, checkpoint = _stopped(tmp_path)
    before = (checkpoint / "state.pickle").read_bytes()
    write_file = durable.write_file

    def full(target: Path, data: bytes) -> None:
        if target.name == "state.pickle":
            raise OSError(28, "No space left on device")
        write_file(target, data)

    with (
        mock.patch("netfold.sim.run.checkpoint.files.write_file", full),
        pytest.raises(UnwrittenError, match="No space left"),
    ):
        run(path, out, RESUME)
    assert (checkpoint / "state.pickle").read_bytes() == before
    run(path, out, RESUME)


HEAD = """
name: stops
seed: 3
topology: {kind: star, hosts: 6, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 3
"""
SYNTHETIC = "workload: {kind: synthetic, elements: 2000, density: 0.1, steps: 3}\n"
SAMPLED = SYNTHETIC.replace("density: 0.1", "bucket: 2KB, payload: {sample: 2}")
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
        pytest.param(
            SYNTHETIC,
            "{kind: in_network, program: atp}",
            "{kind: fixed_point, factor: 1000000.0}",
            marks=nightly,
        ),
        pytest.param(SYNTHETIC, "{kind: ring}", "{kind: none}", marks=nightly),
        pytest.param(SYNTHETIC, "{kind: tree}", "{kind: fixed_point}", marks=nightly),
        pytest.param(SAMPLED, "{kind: ring}", "{kind: fp16, feedback: true}", marks=nightly),
        pytest.param(SYNTHETIC, "{kind: parameter_server, servers: 2}", "{kind: none}", marks=nightly),
        # so is what encoders and servers remember, and what checks add up over rounds
        (TRAINING, "{kind: ring}", "{kind: marsit}"),
        pytest.param(TRAINING, "{kind: ring}", "{kind: count_sketch}", marks=nightly),
        pytest.param(TRAINING, "{kind: all_gather}", "{kind: sasg}", marks=nightly),
        (TRAINING, "{kind: parameter_server}", "{kind: sasg}"),
        pytest.param(TRAINING, "{kind: all_gather}", "{kind: bird}", marks=nightly),
        (TRAINING, "{kind: ring}", "{kind: auto}"),
        pytest.param(
            TRAINING, "{kind: all_gather}", "{kind: topk, share: 0.01, feedback: true}", marks=nightly
        ),
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


def test_nothing_of_a_finished_variant_stays_in_memory(tmp_path: Path) -> None:
    put_state, put_result = Keeper.put_state, Keeper.put_result
    fabrics: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    def put_and_note(keeper: Keeper, saved: SavedVariant) -> None:
        put_state(keeper, saved)
        fabrics.append(weakref.ref(saved._fabric))

    def put_and_look(keeper: Keeper, number: int, result: object) -> None:
        alive.extend(fabric() is not None for fabric in fabrics)
        put_result(keeper, number, result)

    with (
        mock.patch.object(Keeper, "put_state", put_and_note),
        mock.patch.object(Keeper, "put_result", put_and_look),
    ):
        run(write(tmp_path, TWO_VARIANTS), tmp_path / "out", Checkpoints(1))
    assert alive == [False] * (2 + 4)


def test_killed_before_the_state_of_a_finished_variant_is_removed(tmp_path: Path) -> None:
    """A state of a variant whose result is there is not used for the next one."""
    path, out = write(tmp_path, TWO_VARIANTS), tmp_path / "out"
    wanted = content(run(path, tmp_path / "whole"))
    with pytest.raises(Stop), stopped_after(2):
        run(path, out, Checkpoints(1))
    (state,) = out.glob("stops/checkpoint-*/state.pickle")
    of_first = state.read_bytes()
    with pytest.raises(Stop), stopped_after(1):
        run(path, out, Checkpoints(resumes=True))
    state.write_bytes(of_first)
    assert content(run(path, out, Checkpoints(resumes=True))) == wanted


def test_faults(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Packets lost so far and late starts are state; with faults that begin at a time there is none."""
    text = f"""{HEAD}
workload: {{kind: synthetic, elements: 20000, steps: 3}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network, program: switchml, frame: roce-1024, slots: 64}}
variants:
  - {{name: loss, faults: [{{kind: loss, rate: 1%}}, {{kind: start_skew, worker: 0, delay: 5us}}]}}
  - {{name: slower, faults: [{{kind: link_rate, links: ["h0->s0"], at: 3us, rate: 10Gbps, for: 30us}}]}}
"""
    stored = require_same(write(tmp_path, text), tmp_path)
    assert set(stored) == {0}
    messages = {record.getMessage() for record in caplog.records}
    assert "slower: no checkpoint before its end: it has faults that begin at a time" in messages


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ("jobs: [{name: a}, {name: b, start: 300ns}]", "it has several jobs"),
        ("admission: fifo\njobs: [{name: a, workers: 4, count: 1}]", "its job waits to be admitted"),
    ],
)
def test_jobs_without_a_state_keep_results(
    jobs: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"""{HEAD.replace("workers: 3", "workers: 2")}
workload: {{kind: synthetic, elements: 2000, steps: 2}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network, program: switchml, frame: udp-256, slots: 64}}
{jobs}
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
    assert f"first: no checkpoint before its end: {reason}" in messages
    (checkpoint,) = out.glob("stops/checkpoint-*")
    assert {one.name for one in checkpoint.iterdir()} == {"run.json", "variant-000.pickle"}
    with stopped_after(0) as stored:
        assert content(run(path, out, Checkpoints(resumes=True))) == content(run(path, tmp_path / "whole"))
    assert stored == []


KILL_TEXT = """
name: killed
seed: 5
topology: {kind: star, hosts: 3, rate: 100Gbps, delay: 1us}
workers: 3
codec: {kind: fixed_point}
variants:
  - {name: switch, collective: {kind: in_network}}
  - {name: ring, collective: {kind: ring}}
"""
KILLED = "workload: {kind: synthetic, elements: 2000, steps: 25}\n"  # a process that imports no PyTorch
KILLED_AT_NIGHT = "workload: {kind: training, model: mlp, batch: 8, steps: 40, optimizer: {kind: adam}}\n"

FINISHED = "*-seed5"  # a run folder: not a checkpoint, nor one with "unfinished" in its name


def _has_newer_state(out: Path, since: float) -> bool:
    try:
        return any(one.stat().st_mtime > since for one in out.glob("killed/checkpoint-*/*.pickle"))
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
@pytest.mark.parametrize(
    ("kills", "workload"), [(1, KILLED), pytest.param(3, KILLED_AT_NIGHT, marks=nightly)]
)
def test_kill_and_resume(tmp_path: Path, kills: int, workload: str) -> None:
    """Killed and resumed, at last in this process, it writes the folder of a run that was left alone."""
    path, out = write(tmp_path, KILL_TEXT + workload), tmp_path / "out"
    wanted = content(run(path, tmp_path / "whole"))
    draws = random.Random()
    command = [sys.executable, "-m", "netfold", "run", str(path), "--out", str(out), "--no-report"]
    begun = 0
    for options in [["--checkpoint", "3"], ["--resume"], ["--resume"]][:kills]:
        process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        begun_at = time.time()
        while process.poll() is None and not _has_newer_state(out, begun_at):
            time.sleep(0.01)
        time.sleep(draws.uniform(0, 0.3))
        begun += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:  # it was faster
            break
    if not list((out / "killed").glob(FINISHED)):
        run(path, out, Checkpoints(resumes=True))
    assert begun
    (finished,) = (out / "killed").glob(FINISHED)
    assert content(finished) == wanted
    assert [one.name for one in (out / "killed").iterdir()] == [finished.name], "leftovers"
