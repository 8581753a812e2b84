"""Takes checkpoints of a run, and puts them back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from netfold.errors import InvariantError
from netfold.sim.checkpoint.live import LiveReader, LiveWriter
from netfold.sim.checkpoint.store import Store, Stored
from netfold.sim.checkpoint.tables import read_tables, write_tables
from netfold.sim.checkpoint.values import DamagedError, UnstorableError, Writer
from netfold.sim.engine.engine import Engine
from netfold.sim.workload import Workload

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What a variant's state is in: everything that survives between two steps."""

    engine: Engine
    live: Mapping[str, Any]  # objects by name
    workloads: tuple[Workload, ...]  # of each job


@dataclass(frozen=True)
class Checkpoints:
    """What a user asks for: a checkpoint every so many steps, or to go on from one."""

    every: int = 0  # 0, where a run goes on: as before
    resumes: bool = False

    def keeper(self, store: Store) -> Keeper:
        """Begin to keep checkpoints in a store.

        Raises
        ------
        DataError
            There is nothing to go on from, or it cannot be used.
        """
        if not self.resumes:
            store.begin(self.every)
            return Keeper(store, self.every)
        every = store.require()
        return Keeper(store, self.every or every, resumes=True)


class State:
    """The stored state of a variant that was under way."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self._store, self._stored = store, stored
        try:
            tree = stored.tree
            self.variant, self.now_ps = int(tree["variant"]), int(tree["now_ps"])
            self.steps = [int(steps) for steps in tree["steps"]]  # done, of each job
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise store.damaged(None, str(error)) from error

    def put_into(self, parts: Parts) -> None:
        """Put the state into a variant that is built and has not begun.

        Raises
        ------
        DataError
            It is not of such a variant.
        """
        tree, reader = self._stored
        try:
            live = LiveReader(reader)
            for name, one in parts.live.items():
                live.read(one, tree["live"][name], name)
            read_tables(parts.engine, tree["tables"], reader)
            for workload, stored in zip(parts.workloads, tree["workloads"], strict=True):
                workload.restore(reader.read(stored))
        except (DamagedError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise self._store.damaged(None, str(error)) from error


class Keeper:
    """The checkpoints of one run: a state after every so many steps, and the result of each variant.

    Parameters
    ----------
    store
        Where they are.
    every
        After how many steps of a job the next state is due; 0: only results are kept.
    resumes
        Whether to go on from what is there.
    """

    def __init__(self, store: Store, every: int, resumes: bool = False) -> None:
        self._store, self._every, self._resumes = store, every, resumes
        self._steps = 0  # since the latest state
        self._variant = 0
        self._refused: set[str] = set()  # reasons that were told

    def begin_variant(self, number: int) -> None:
        """The variant with this number begins."""
        self._variant, self._steps = number, 0
        self._refused.clear()

    def result(self, number: int, kind: type[T]) -> T | None:
        """The result of a variant that is finished already."""
        stored = self._store.result(number) if self._resumes else None
        if stored is None:
            return None
        try:
            found = stored.reader.read(stored.tree)
        except DamagedError as error:
            raise self._store.damaged(number, str(error)) from error
        if not isinstance(found, kind):
            raise self._store.damaged(number, f"it holds no {kind.__name__}")
        return found

    def put_result(self, number: int, result: object) -> None:
        """Keep the result of a variant that has ended."""
        writer = Writer()
        try:
            tree = writer.write(result)
        except UnstorableError as error:
            raise InvariantError(f"a variant's result holds {error}") from error
        self._store.put_result(number, tree, writer)

    def state(self) -> State | None:
        """The state from which the variant goes on that begins now; None: it begins at its start."""
        stored = self._store.state() if self._resumes else None
        if stored is None:
            return None
        state = State(self._store, stored)
        return state if state.variant == self._variant else None

    def is_due(self) -> bool:
        """Whether a state is due after the step that has just ended."""
        self._steps += 1
        return bool(self._every) and self._steps >= self._every

    def put_state(self, parts: Parts, now_ps: int, steps: list[int]) -> None:
        """Keep the state of a variant between two steps.

        Raises
        ------
        UnstorableError
            This instant is not quiet; the next one may be.
        """
        writer = Writer()
        live = LiveWriter(writer)
        tree = {
            "variant": self._variant,
            "now_ps": now_ps,
            "steps": steps,
            "live": {name: live.write(one, name) for name, one in parts.live.items()},
            "tables": write_tables(parts.engine, writer),
            "workloads": [writer.write(dict(one.state())) for one in parts.workloads],
        }
        size = self._store.put_state(tree, writer)
        self._steps = 0
        _LOGGER.debug("checkpoint of %.1f MB", size / 1e6)

    def refuse(self, what: str, error: UnstorableError) -> None:
        """Say, once for each reason, why a state that is due cannot be stored now."""
        if str(error) not in self._refused:
            self._refused.add(str(error))
            _LOGGER.warning("%s: no checkpoint now: %s; it is taken after a later step", what, error)

    def refuse_all(self, what: str, reason: str) -> None:
        """Say why no state of a variant can be stored; its result can."""
        if self._every:
            _LOGGER.warning("%s: no checkpoint before its end: %s", what, reason)

    @property
    def unfinished(self) -> str:
        """Name of the folder that the run has its finished variants in; "": none."""
        return self._store.unfinished

    def note_unfinished(self, name: str) -> None:
        """Note that folder, so that a run that goes on removes it at its end."""
        self._store.note_unfinished(name)

    def finish(self) -> None:
        """The run has its folder: checkpoints are needed no more."""
        self._store.remove()
