"""Workloads that variants share: built once, and restarted for the next variant."""

from __future__ import annotations

from collections.abc import Iterable

from netfold.sim.workload import (
    FileSpec,
    SyntheticSpec,
    TrainingSpec,
    file_workload,
    synthetic_workload,
    training_workload,
)
from netfold.sim.workload.workload import Workload

Spec = TrainingSpec | SyntheticSpec | FileSpec
Key = tuple[int, Spec, int]  # number of the job in its variant, what it is, workers


class Workloads:
    """The workloads of a run.

    Jobs of one variant never share a workload, since they are at different steps.

    Parameters
    ----------
    wanted
        Keys of the workloads of every variant, in the order in which variants run.
    seed
        Of the run.
    """

    def __init__(self, wanted: Iterable[Iterable[Key]], seed: int) -> None:
        self._later = [set(keys) for keys in wanted]
        self._seed = seed
        self._made: dict[Key, Workload] = {}

    def begin_variant(self) -> None:
        """Begin the next variant: if it needs a new workload, drop those that it does not use."""
        now = self._later.pop(0) if self._later else set()
        if any(key not in self._made for key in now):  # free memory; dropped ones are built again if needed
            self._made = {key: made for key, made in self._made.items() if key in now}

    def end_variant(self) -> None:
        """End a variant: drop workloads that no later variant uses."""
        later = set().union(*self._later)
        self._made = {key: made for key, made in self._made.items() if key in later}

    def get(self, key: Key) -> Workload:
        """A workload before its first step.

        Raises
        ------
        DataError
            Its data is not available.
        """
        if key in self._made:
            self._made[key].restart()
        else:
            self._made[key] = _make(key, self._seed)
        return self._made[key]


def _make(key: Key, seed: int) -> Workload:
    _, spec, workers = key
    if isinstance(spec, SyntheticSpec):
        return synthetic_workload(spec, workers, seed)
    if isinstance(spec, FileSpec):
        return file_workload(spec, workers)
    return training_workload(spec, workers, seed)
