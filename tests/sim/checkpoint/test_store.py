"""Files of checkpoints: what is refused, in which words, and what is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from netfold.sim.checkpoint.keeper import Checkpoints, Keeper
from netfold.sim.errors import DataError, UnwrittenError
from netfold.sim.files import durable
from tests.sim.checkpoint.stops import Stop, content, run, stopped_after, write

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
    assert sorted(one.name for one in checkpoint.iterdir()) == ["run.json", "state.safetensors"]
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
            keeper.finish()
        elif len(stored) == 2:
            raise Stop

    with mock.patch.object(Keeper, "put_state", put_and_finish), pytest.raises(Stop):
        run(path, out, Checkpoints(1))
    assert content(run(path, out, RESUME)) == content(run(path, tmp_path / "whole"))


def test_finished_already(tmp_path: Path) -> None:
    path, out, checkpoint = _stopped(tmp_path)
    finished = run(path, out, RESUME)
    assert not checkpoint.exists()
    with pytest.raises(DataError, match="finished already") as caught:
        run(path, out, RESUME)
    assert str(finished) in str(caught.value)


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
    path = checkpoint / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _cut(checkpoint: Path) -> None:
    path = checkpoint / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_edited("version", "0.0"), "is of netfold 0.0; this is"),
        (_edited("format", 2), "has format 2; this version reads 1"),
        (_edited("packages", {"numpy": "0.1"}), r"other packages: numpy 0\.1 \(now"),
        (_edited("every", "often"), "run.json is damaged"),
        (lambda folder: (folder / "run.json").unlink(), "run.json is damaged"),
        (_flipped, "state.safetensors is damaged: its content is not what was written"),
        (_cut, "state.safetensors is damaged"),
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
        mock.patch("netfold.sim.checkpoint.store.shutil.disk_usage", return_value=usage),
        pytest.raises(UnwrittenError, match=r"cannot write a checkpoint of .* MB to .*0\.0 MB are free"),
    ):
        run(path, tmp_path / "out", Checkpoints(1))


def test_a_state_is_whole_or_the_old_one(tmp_path: Path) -> None:
    """If the disk is full in the middle of a write, the state before it is still there."""
    path, out, checkpoint = _stopped(tmp_path)
    before = (checkpoint / "state.safetensors").read_bytes()
    write_file = durable.write_file

    def full(target: Path, data: bytes) -> None:
        if target.name == "state.safetensors":
            raise OSError(28, "No space left on device")
        write_file(target, data)

    with (
        mock.patch("netfold.sim.checkpoint.store.files.write_file", full),
        pytest.raises(UnwrittenError, match="No space left"),
    ):
        run(path, out, RESUME)
    assert (checkpoint / "state.safetensors").read_bytes() == before
    run(path, out, RESUME)
