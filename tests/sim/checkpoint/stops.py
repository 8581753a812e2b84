"""Runs that are stopped at each of their checkpoints in turn, and compared with a run without a stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from netfold.sim.checkpoint.keeper import Checkpoints, Keeper
from netfold.sim.run.run import run_scenario
from tests.sim.scenario.files import write as write


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
