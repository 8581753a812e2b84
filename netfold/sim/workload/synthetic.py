"""Synthetic gradients with chosen sparsity, for sizes and structures that no bundled model has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import StepFact, Tensor
from netfold.kernels.functions import LN2, exps
from netfold.sim.workload.devices.device import Passes
from netfold.sim.workload.draws import keyed
from netfold.sim.workload.fusion import ONE_BUCKET, Fusion
from netfold.sim.workload.layers import Layer, layers_of
from netfold.sim.workload.normals import fill_normal
from netfold.sim.workload.trace.recorded import RecordedTimes
from netfold.sim.workload.workload import FACTS_WITHOUT_TRAINING, Untrained

Pattern = Literal["iid", "rows", "columns", "blocks"]
Distribution = Literal["normal", "lognormal", "loguniform", "integer"]

BLOCK_ELEMENTS = 256  # the block of OmniReduce: Fei et al., SIGCOMM 2021
LOGNORMAL_SIGMA = 3.0  # of ln |x|: 99 % of the values within a factor of 2·10³ of 1
LOGUNIFORM_BINADES = 24  # |x| from 2^-24 to 1
INTEGER_MAX = 127  # whole numbers from ±1 to ±127: float32 sums of up to 2^17 workers are exact


@dataclass(frozen=True)
class SyntheticSpec:
    """Size, sparsity and values of synthetic gradients.

    The flat gradient is cut into units, and a worker's unit is non-zero as a whole or zero as a whole:
    single elements (`iid`), rows of a matrix with `row_elements` columns (`rows`, as embedding tables
    have), its columns (`columns`), or runs of 256 elements (`blocks`).
    """

    elements: int
    density: float = 1.0  # share of the units that are non-zero, rounded to whole units
    pattern: Pattern = "iid"
    row_elements: int = 64
    overlap: float = 0.0  # share of a worker's non-zero units common to all workers; the rest is independent
    distribution: Distribution = "normal"
    shapes: tuple[Tensor, ...] = ()  # its tensors, one after another; empty: one vector
    ready_shares: tuple[float, ...] = ()  # of backward, after which each tensor is ready; empty: not known
    fusion: Fusion = ONE_BUCKET
    times: RecordedTimes | None = None  # of its passes, in place of a device's
    given: str = ""  # the file that its sizes come from, as the scenario writes it
    held_steps: int | None = None  # of that file; None: there is no such number
    notes: tuple[str, ...] = ()  # on that file

    @property
    def longest_ps(self) -> int:
        """The longest recorded passes of a step; 0: a device says how long they take."""
        return self.times.longest_ps if self.times else 0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the gradient, in gradient-ready order."""
        return self.shapes or (Tensor("part0", (self.elements,), ""),)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, in gradient-ready order."""
        return layers_of(self.tensors, ready_shares=self.ready_shares)

    @property
    def facts(self) -> frozenset[StepFact]:
        """What its workload knows of a step."""
        return FACTS_WITHOUT_TRAINING


class SyntheticWorkload(Untrained):
    """A `Workload` without training: every step draws new gradients keyed by (seed, step, worker).

    Every worker has exactly k = round(density · units) non-zero units, of which the same c = round(overlap
    · k) for all workers of a step; the other k - c are drawn from the rest by each worker alone, so the
    union over W workers is expected to be c + (units - c)·(1 - (1 - (k - c)/(units - c))^W) units. A
    `normal` value is itself 0 about once in 8 million.
    """

    def __init__(self, spec: SyntheticSpec, workers: int, seed: int) -> None:
        super().__init__(spec.tensors, spec.fusion, workers, spec.ready_shares)
        self._spec, self._seed = spec, seed
        self._flat = np.empty((workers, spec.elements), np.float32)
        self._drawn: int | None = None  # the step whose gradients `_flat` holds
        self._gradients: list[list[Gradient]] = []

    def recorded(self, step: int, worker: int) -> Passes | None:
        """The times of its spec."""
        return self._spec.times.passes(step, worker) if self._spec.times else None

    def gradients(self, step: int) -> list[list[Gradient]]:
        """The step's gradients as `[worker][bucket]`, drawn at its first call."""
        if self._drawn != step:
            self._drawn = None
            self._gradients = []  # freed before the next ones are cut
            self._draw(step)
            self._gradients = [self._cutter.cut(row) for row in self._flat]
            self._drawn = step
        return self._gradients

    def _draw(self, step: int) -> None:
        units = _units(self._spec)
        chosen = round(self._spec.density * units)
        if chosen == units:  # the same draws, since choosing all units draws nothing
            for worker, flat in enumerate(self._flat):
                _fill(flat, self._spec.distribution, keyed(self._seed, "gradient", step, worker))
            return
        common = _choose(units, round(self._spec.overlap * chosen), keyed(self._seed, "common", step))
        free = np.flatnonzero(~common)
        private = chosen - (units - free.size)
        for worker, flat in enumerate(self._flat):
            generator = keyed(self._seed, "gradient", step, worker)
            live = common.copy()
            live[free[_choose(free.size, private, generator)]] = True
            support = _spread(live, self._spec)
            flat.fill(0)
            flat[support] = _VALUES[self._spec.distribution](generator, int(np.count_nonzero(support)))


def _units(spec: SyntheticSpec) -> int:
    """Number of units in the gradient; the last row or block may be shorter."""
    if spec.pattern == "columns":
        return min(spec.row_elements, spec.elements)
    return -(-spec.elements // _unit_elements(spec))


def _unit_elements(spec: SyntheticSpec) -> int:
    """Consecutive elements of a unit."""
    return {"iid": 1, "columns": 1, "rows": min(spec.row_elements, spec.elements), "blocks": BLOCK_ELEMENTS}[
        spec.pattern
    ]


def _choose(units: int, count: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Mask `(units,)` with `count` random places set, all choices equally likely."""
    few = 2 * count <= units  # choosing takes time in proportion to the number chosen
    mask = np.full(units, not few)
    mask[generator.choice(units, count if few else units - count, replace=False, shuffle=False)] = few
    return mask


def _spread(live: NDArray[np.bool_], spec: SyntheticSpec) -> NDArray[np.bool_]:
    """Mask of elements `(elements,)` from the mask of units."""
    if spec.pattern == "iid":
        return live
    if spec.pattern == "columns":
        return np.resize(live, spec.elements)
    return np.repeat(live, _unit_elements(spec))[: spec.elements]


def _fill(flat: Gradient, distribution: Distribution, generator: np.random.Generator) -> None:
    """Write a value into every element."""
    if distribution == "normal":
        fill_normal(flat, generator)
    else:
        flat[:] = _VALUES[distribution](generator, flat.size)


def _normal(generator: np.random.Generator, count: int) -> Gradient:
    values = np.empty(count, np.float32)
    fill_normal(values, generator)
    return values


def _lognormal(generator: np.random.Generator, count: int) -> Gradient:
    exponents = _normal(generator, count) * np.float32(LOGNORMAL_SIGMA)
    return _signed(exps(exponents), generator)


def _loguniform(generator: np.random.Generator, count: int) -> Gradient:
    exponents = generator.random(count, np.float32) * np.float32(-LOGUNIFORM_BINADES)
    return _signed(exps(exponents, LN2), generator)


def _integer(generator: np.random.Generator, count: int) -> Gradient:
    magnitudes = generator.integers(1, INTEGER_MAX, count, np.int8, endpoint=True)
    return _signed(magnitudes.astype(np.float32), generator)


def _signed(magnitudes: Gradient, generator: np.random.Generator) -> Gradient:
    """Give each value a random sign, in place."""
    negative = generator.integers(0, 2, magnitudes.size, np.bool_, endpoint=False)
    return np.negative(magnitudes, out=magnitudes, where=negative)


_VALUES: dict[Distribution, Callable[[np.random.Generator, int], Gradient]] = {
    "normal": _normal,
    "lognormal": _lognormal,
    "loguniform": _loguniform,
    "integer": _integer,
}
