"""Parameters that the loss of a pass does not depend on: experts, branches that are dropped, spare heads.

Their gradients are zero, as with `find_unused_parameters` of PyTorch's DistributedDataParallel, and what no
worker uses in a step is left alone by the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import State

_KEY = "unused"


class Usage:
    """Counts of each parameter how many gradients of workers leave it out.

    Parameters
    ----------
    names
        Of all parameters that are trained.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._step: list[frozenset[str]] = []  # what each worker used in the last step
        self.restart()

    def begin(self) -> None:
        """Begin a step."""
        self._step = []

    def add(self, used: frozenset[str]) -> None:
        """What another worker used in this step."""
        self._step.append(used)

    def close(self) -> frozenset[str]:
        """Count the step; returns what no worker used."""
        self._unused += [sum(name not in used for used in self._step) for name in self._names]
        return frozenset(self._names).difference(*self._step)

    def restart(self) -> None:
        """Forget the counts; the last step stays as it is."""
        self._unused = np.zeros(len(self._names), np.int64)

    def notes(self, gradients: int) -> tuple[str, ...]:
        """What a reader of the results should know, after so many gradients of workers."""
        counts = list(zip(self._names, self._unused.tolist(), strict=True))
        never = [name for name, count in counts if 0 < count == gradients]
        partly = [name for name, count in counts if 0 < count < gradients]
        notes = []
        if partly:
            notes.append(
                f"{_some(partly)} not used in every pass: the gradient is zero there, and a step in which no "
                "worker uses a tensor leaves it as it is"
            )
        if never:
            notes.append(f"{_some(never)} used in no pass: the gradient is zero, and is sent all the same")
        return tuple(notes)

    def is_own(self, name: str) -> bool:
        """Whether a name of a state is that of the counts."""
        return name == _KEY

    def state(self) -> State:
        """A copy of the counts; empty where every gradient has all parameters."""
        return {_KEY: self._unused.copy()} if self._unused.any() else {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state of the same parameters."""
        self._unused = np.array(state.get(_KEY, np.zeros(len(self._names))), np.int64)


def _some(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"the tensor {names[0]!r} is"
    return f"{len(names)} tensors, such as {names[0]!r}, are"
