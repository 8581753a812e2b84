"""Synthetic gradients with chosen sparsity, for sizes and structures that no bundled model has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from netfold.errors import DataError, shown
from netfold.homomorphic.message import Gradient, StepFact, Tensor
from netfold.kernels.compiled import inlined, intrinsic, kernel
from netfold.kernels.exp_log import LN2, exps
from netfold.sim.files import UnreadableError, read_text
from netfold.sim.keys import Count, Option, Share
from netfold.sim.workload.device_rooflines import Passes
from netfold.sim.workload.fusion import ONE_BUCKET, Fusion, bucket_count
from netfold.sim.workload.layers import (
    SHAPE_PATTERN,
    Layer,
    elements_of,
    layers_of,
    read_profile,
    read_tensors,
)
from netfold.sim.workload.recording import RecordedTimes
from netfold.sim.workload.workload import (
    FACTS_WITHOUT_TRAINING,
    GradientSource,
    Untrained,
    Workload,
    WorkloadOption,
    keyed,
)

# NumPy's normal float32 values, the same bits, three to four times as fast.
#
# Drawing gradients was half of a run's CPU time. `numpy.random.Generator` fetches every 32 random bits
# through a pointer to a function; here the generator (PCG64) and the method (the ziggurat) are compiled
# into one loop.
#
# Sources: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random
# Number Generation", 2014 (PCG XSL-RR 128/64); Marsaglia and Tsang, "The Ziggurat Method for Generating
# Random Variables", Journal of Statistical Software 5(8), 2000, with 256 layers as NumPy cuts them.


_LAYERS = 256
_BASE = 3.6541528853610088
"""Where the tail begins."""
_TAIL_START, _TAIL_SCALE = np.float32(_BASE), np.float32(1 / _BASE)
_MAGNITUDES = 1 << 23  # a draw has 8 bits for the layer, one for the sign and 23 for the magnitude
_DRAWN_AT_ONCE = 1 << 26  # values: 0.15 s in which no signal is seen
_MULTIPLIER_HIGH, _MULTIPLIER_LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)
_LOW_HALF = (1 << 64) - 1


class _Ziggurat(NamedTuple):
    """The layers, each `(256,)`."""

    inner: NDArray[np.uint32]
    """A smaller magnitude is under the curve."""
    widths: NDArray[np.float32]
    """Width of a layer, for each step of the magnitude."""
    heights: NDArray[np.float32]
    """Height of the curve at a layer's edge."""


def _ziggurat() -> _Ziggurat:
    """Layers of equal area under exp(−x²/2); the lowest has the tail beyond `_BASE` in it."""

    def curve(x: float) -> float:
        return math.exp(-x * x / 2)

    area = _BASE * curve(_BASE) + math.sqrt(math.pi / 2) * math.erfc(_BASE / math.sqrt(2))
    edges = [_BASE]
    while len(edges) < _LAYERS - 1:
        edges.append(math.sqrt(-2 * math.log(area / edges[-1] + curve(edges[-1]))))
    edges = [area / curve(_BASE), *edges[::-1]]
    shares = [inner / outer for inner, outer in pairwise(edges[1:])]
    shares = [_BASE / edges[0], 0.0, *shares]
    return _Ziggurat(
        np.array([round(share * _MAGNITUDES) for share in shares], np.uint32),
        np.array([edge / _MAGNITUDES for edge in edges], np.float32),
        np.array([1.0, *map(curve, edges[1:])], np.float32),
    )


_ZIGGURAT = _ziggurat()


def fill_normal(values: NDArray[np.float32], generator: np.random.Generator) -> None:
    """Write what `generator.standard_normal(out=values, dtype=np.float32)` would, and draw as much.

    Parameters
    ----------
    values
        `(n,)` contiguous; overwritten.
    generator
        One of PCG64; afterwards its state is the one that NumPy would leave.
    """
    state: Any = generator.bit_generator.state
    numbers = state["state"]
    stream = np.array(
        [
            numbers["state"] >> 64,
            numbers["state"] & _LOW_HALF,
            numbers["inc"] >> 64,
            numbers["inc"] & _LOW_HALF,
            state["has_uint32"],
            state["uinteger"],
        ],
        np.uint64,
    )
    for begin in range(0, values.size, _DRAWN_AT_ONCE):
        _fill(values[begin : begin + _DRAWN_AT_ONCE], stream, *_ZIGGURAT)
    high, low, _, _, has_half, half = stream.tolist()
    generator.bit_generator.state = state | {
        "state": numbers | {"state": high << 64 | low},
        "has_uint32": has_half,
        "uinteger": half,
    }


@intrinsic
def _multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    """The upper 64 bits of the product of two uint64."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@inlined
def _next(high: Any, low: Any, more_high: Any, more_low: Any) -> Any:
    """The generator's next state, both halves of it, and the 64 bits that it gives."""
    product = low * _MULTIPLIER_LOW
    carried = _multiply_high(low, _MULTIPLIER_LOW) + high * _MULTIPLIER_LOW + low * _MULTIPLIER_HIGH
    low = product + more_low
    high = carried + more_high + np.uint64(low < product)
    mixed = high ^ low
    turn = high >> np.uint64(58)
    return high, low, mixed >> turn | mixed << (np.uint64(64) - turn & np.uint64(63))


@inlined
def _next_half(stream: NDArray[np.uint64]) -> Any:
    """The next 32 random bits; every 64 of the generator serve twice, the lower half first."""
    if stream[4]:
        stream[4] = np.uint64(0)
        return stream[5]
    stream[0], stream[1], drawn = _next(stream[0], stream[1], stream[2], stream[3])
    stream[4], stream[5] = np.uint64(1), drawn >> np.uint64(32)
    return drawn & np.uint64(0xFFFFFFFF)


@inlined
def _next_fraction(stream: NDArray[np.uint64]) -> Any:
    # Uniform in [0, 1), a float32 multiple of 2^-24.
    return np.float32(_next_half(stream) >> np.uint64(8)) * np.float32(2.0**-24)


@inlined
def _first_try(bits: Any, inner: NDArray[np.uint32], widths: NDArray[np.float32]) -> Any:
    """The value that 32 bits stand for, and whether it is surely under the curve: 99 of 100 are."""
    layer = bits & np.uint64(0xFF)
    magnitude = np.uint32(bits >> np.uint64(9))
    value = np.float32(magnitude) * widths[layer]
    return _signed(value, bits >> np.uint64(8)), magnitude < inner[layer]


@inlined
def _signed(value: Any, bits: Any) -> Any:
    # The lowest bit is the sign.
    return -value if bits & np.uint64(1) else value


@kernel
def _beyond_base(stream: NDArray[np.uint64]) -> Any:
    """How far a value of the tail lies beyond `_BASE` (Marsaglia's method)."""
    while True:
        distance = -_TAIL_SCALE * np.log1p(-_next_fraction(stream))
        bound = -np.log1p(-_next_fraction(stream))
        if bound + bound > distance * distance:
            return distance


@kernel
def _finish(
    bits: Any,
    stream: NDArray[np.uint64],
    inner: NDArray[np.uint32],
    widths: NDArray[np.float32],
    heights: NDArray[np.float32],
) -> Any:
    """The value where the first try is not surely under the curve."""
    while True:
        value, is_in = _first_try(bits, inner, widths)
        if is_in:
            return value
        layer = bits & np.uint64(0xFF)
        if layer == 0:
            sign = bits >> np.uint64(17)  # the tail's sign is another bit
            return _signed(_TAIL_START + _beyond_base(stream), sign)
        height = (heights[layer - 1] - heights[layer]) * _next_fraction(stream) + heights[layer]
        if np.float64(height) < math.exp(-0.5 * np.float64(value) * np.float64(value)):
            return value
        bits = _next_half(stream)


@kernel
def _fill(
    values: NDArray[np.float32],
    stream: NDArray[np.uint64],
    inner: NDArray[np.uint32],
    widths: NDArray[np.float32],
    heights: NDArray[np.float32],
) -> None:
    high, low, has_half, half = stream[0], stream[1], stream[4], stream[5]
    for position in range(values.size):
        bits = half
        if not has_half:
            high, low, drawn = _next(high, low, stream[2], stream[3])
            bits, half = drawn & np.uint64(0xFFFFFFFF), drawn >> np.uint64(32)
        has_half ^= np.uint64(1)
        value, is_in = _first_try(bits, inner, widths)
        if not is_in:
            stream[0], stream[1], stream[4], stream[5] = high, low, has_half, half
            value = _finish(bits, stream, inner, widths, heights)
            high, low, has_half, half = stream[0], stream[1], stream[4], stream[5]
        values[position] = value
    stream[0], stream[1], stream[4], stream[5] = high, low, has_half, half


Pattern = Literal["iid", "rows", "columns", "blocks"]
Distribution = Literal["normal", "lognormal", "loguniform", "integer"]

BLOCK_ELEMENTS = 256  # the block of OmniReduce: Fei et al., SIGCOMM 2021
LOGNORMAL_SIGMA = 3.0
"""Deviation of ln |x|: 99 % of the values are within a factor of 2·10³ of 1."""
LOGUNIFORM_BINADES = 24  # |x| from 2^-24 to 1
INTEGER_MAX = 127  # whole numbers from ±1 to ±127: float32 sums of up to 2^17 workers are exact


@dataclass(frozen=True, kw_only=True)
class SharedPayload(Option):
    """A few distinct gradients for all workers."""

    shared: Count
    """Distinct gradients: worker w has gradient w mod this. Memory is that of these, and sums are checked
    with each gradient counted as often as workers have it."""


@dataclass(frozen=True, kw_only=True)
class SampledPayload(Option):
    """Values in the packets of some buckets of each step."""

    sample: Count
    """Of so many buckets of a step, one after another, packets of one carry its values. The seed and the step
    decide which, so that in as many steps each bucket has its turn. Of fewer buckets it is one, too."""


def _read_payload(value: object) -> object:
    """Refuse what is no payload, with one message for all forms."""
    (key, count), *others = value.items() if isinstance(value, Mapping) and value else [("", 0)]
    is_counted = key in ("shared", "sample") and type(count) is int and count > 0 and not others
    if not (is_counted or isinstance(value, SharedPayload | SampledPayload) or value in ("all", "none")):
        forms = "all, none, {shared: COUNT} or {sample: COUNT} with a COUNT of 1 or more"
        raise ValueError(f"must be {forms}, found {shown(value)}")
    return value


Payload = Annotated[Literal["all", "none"] | SharedPayload | SampledPayload, BeforeValidator(_read_payload)]


@dataclass(frozen=True, kw_only=True)
class RandomValues(Option):
    """Sparsity and values of synthetic gradients.

    The flat gradient is cut into units, and a worker's unit is non-zero as a whole or zero as a whole:
    single elements (`iid`), rows of a matrix with `row_elements` columns (`rows`, as embedding tables
    have), its columns (`columns`), or runs of 256 elements (`blocks`).
    """

    density: Share = 1.0
    """Share of non-zero elements at each worker."""
    pattern: Pattern = "iid"
    """Which elements are zero together: iid: each on its own; rows, columns: whole rows or columns; blocks:
    runs as long as a row."""
    row_elements: Count = 64
    """Elements of a row."""
    overlap: Share = 0.0
    """Share of a worker's non-zero positions that all workers have in common."""
    distribution: Distribution = "normal"
    """Distribution of the non-zero elements."""
    payload: Payload = "all"
    """Values that packets carry: all: each worker's own; {shared: K}: those of K distinct gradients; {sample:
    K}: each worker's own in every K-th bucket of a step, whose sums are checked, and none in the others;
    none: no values, so a run gives times, packets and bytes, and sums are not checked. Packets and bytes are
    those of all workers in each case."""

    def of(self, **sizes: Any) -> SyntheticSpec:
        """Gradients with these values, of these sizes."""
        values = {field.name: getattr(self, field.name) for field in fields(RandomValues)}
        return SyntheticSpec(**values, **sizes)


@dataclass(frozen=True)
class SyntheticSpec(RandomValues):
    """Synthetic gradients: their values, sizes and times."""

    elements: int
    shapes: tuple[Tensor, ...] = ()  # its tensors, one after another; empty: one vector
    ready_shares: tuple[float, ...] = ()
    """Share of backward after which each tensor is ready; empty: not known."""
    fusion: Fusion = ONE_BUCKET
    times: RecordedTimes | None = None
    """Times of its passes, in place of a device's."""
    given: str = ""
    """The file that its sizes come from, as the scenario writes it."""
    held_steps: int | None = None
    """Steps that this file holds; None: there is no such number."""
    notes: tuple[str, ...] = ()

    @property
    def longest_ps(self) -> int:
        # Without recorded times a device says how long passes take.
        return self.times.longest_ps if self.times else 0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.shapes or (Tensor("part0", (self.elements,), ""),)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return layers_of(self.tensors, ready_shares=self.ready_shares)

    @property
    def facts(self) -> frozenset[StepFact]:
        return FACTS_WITHOUT_TRAINING

    def distinct_gradients(self, workers: int) -> int:
        """How many gradients so many workers hold in memory; without values one, of zeros."""
        if isinstance(self.payload, SharedPayload):
            return min(self.payload.shared, workers)
        return workers if words_every(self) else 1

    @property
    def payload_notes(self) -> tuple[str, ...]:
        """What a reader of results must know of the values that packets carry."""
        if isinstance(self.payload, SharedPayload):
            count = self.payload.shared
            return (f"{count} distinct gradients: worker w has gradient w mod {count}",)
        if isinstance(self.payload, SampledPayload) and self.payload.sample > 1:
            every = min(self.payload.sample, bucket_count(self.tensors, self.fusion.outline))
            if every == 1:
                return ("a step has one bucket, so all packets carry words: 'bucket' is the size of buckets",)
            return (f"packets of one bucket in {every} carry words: the sums of the others are not checked",)
        return () if words_every(self) else ("packets carry no words: sums are not checked",)

    def workload(self, workers: int, seed: int) -> Workload:
        return SyntheticWorkload(self, workers, seed)


def words_every(source: GradientSource) -> int:
    # Of so many buckets of a step, the packets of one carry words; 0: packets carry none.
    payload = source.payload if isinstance(source, SyntheticSpec) else "all"
    return payload.sample if isinstance(payload, SampledPayload) else int(payload != "none")


def buckets_with_words(source: GradientSource, buckets_count: int, seed: int, step: int) -> range:
    # Which of a step's buckets these are.
    every = min(words_every(source), buckets_count)
    if not every:
        return range(0)
    first = int(keyed(seed, "sample").integers(every)) + step
    return range(first % every, buckets_count, every)


PROFILE_BYTES_MAX = 2**22


def _read_tensors(items: tuple[str | int, ...] | None) -> tuple[str | int, ...] | None:
    """Refuse items that are no tensors."""
    if items is not None:
        read_tensors(items)
    return items


TensorShapes = Annotated[
    tuple[
        Annotated[
            str | int,
            WithJsonSchema({"type": ["string", "integer"], "pattern": f"^{SHAPE_PATTERN}$", "minimum": 1}),
        ],
        ...,
    ],
    Field(min_length=1),
    AfterValidator(_read_tensors),
]


@dataclass(frozen=True, kw_only=True)
class Synthetic(RandomValues, WorkloadOption):
    """Random gradients of a given size and sparsity; nothing is trained."""

    kind: ClassVar[str] = "synthetic"
    file_key: ClassVar[str] = "profile"
    elements: Count | None = None
    """Elements of the gradient. Without them it needs tensors or a profile."""
    tensors: TensorShapes | None = None
    """Tensors of the gradient, which otherwise is one vector: in gradient-ready order, such as 128x64, or
    with a name fc1.weight=128x64."""
    profile: str | None = None
    """A JSON file with a model's layers, and when each was ready in a backward pass, instead of tensors; its
    path is relative to the scenario file."""
    shrink: Count = 1
    """The elements of each layer of the profile are divided by this, and rounded up. If rates of links and
    memory are divided by it too, times stay as they are."""
    steps: Count = 1
    """Optimizer steps."""

    def __post_init__(self) -> None:
        if self.profile is not None:
            if self.elements is not None or self.tensors is not None:
                other = "elements" if self.elements is not None else "tensors"
                raise ValueError(
                    f"{other} and profile are both given\nthe profile has the layers: leave out {other}"
                )
        elif self.shrink != 1:
            raise ValueError("shrink is given without a profile\nit makes the layers of a profile smaller")
        elif self.elements is None and self.tensors is None:
            raise ValueError(
                "the key 'elements' is missing\ngive the elements of the gradient, or its tensors, or a "
                "profile of layers"
            )
        elif self.elements is not None and self.tensors is not None:
            raise ValueError(
                "elements and tensors are both given\nthe tensors say how many: leave out elements"
            )

    def resolved(self, folder: Path, workers: int, seed: int) -> SyntheticSpec:
        tensors, ready_shares = self._layers(folder)
        elements = self.elements or elements_of(tensors)
        return self.of(elements=elements, shapes=tensors, ready_shares=ready_shares, fusion=self.fusion)

    def _layers(self, folder: Path) -> tuple[tuple[Tensor, ...], tuple[float, ...]]:
        if self.profile is None:
            return read_tensors(self.tensors or ()), ()
        try:
            return read_profile(read_text(folder / self.profile, PROFILE_BYTES_MAX), self.shrink)
        except UnreadableError as error:
            message = f"cannot read {shown(self.profile)}: {error.message}"
            hint = "give the path of a JSON file of layers, relative to the scenario file"
        except ValueError as error:
            message, _, hint = str(error).partition("\n")
            message = f"{self.profile}: {message}"
        raise DataError(message, hint)


class SyntheticWorkload(Untrained):
    """A `Workload` without training: every step draws new gradients keyed by (seed, step, worker).

    Every worker has exactly k = round(density · units) non-zero units, of which the same c = round(overlap
    · k) for all workers of a step; the other k - c are drawn from the rest by each worker alone, so the
    union over W workers is expected to be c + (units - c)·(1 - (1 - (k - c)/(units - c))^W) units. A
    `normal` value is itself 0 about once in 8 million. With a shared payload only the first workers'
    gradients are drawn, and the others have them too. With a sampled one, each is drawn and cut in the same
    memory, and the buckets that packets carry are kept; all others are one array of zeros.
    """

    def __init__(self, spec: SyntheticSpec, workers: int, seed: int) -> None:
        super().__init__(spec.tensors, spec.fusion, workers, spec.ready_shares)
        self._spec, self._seed = spec, seed
        self._every, self._distinct = words_every(spec), spec.distinct_gradients(workers)
        rows = self._distinct if self._every == 1 else 1
        self._flat = np.empty((rows, spec.elements), np.float32)  # takes memory when it is written
        self._zeros = self._cutter.cut(np.zeros(0 if self._every == 1 else spec.elements, np.float32))
        self._drawn: int | None = None  # the step whose gradients `_flat` holds
        self._gradients: list[list[Gradient]] = []

    def recorded(self, step: int, worker: int) -> Passes | None:
        return self._spec.times.passes(step, worker) if self._spec.times else None

    def gradients(self, step: int) -> list[list[Gradient]]:
        """The step's gradients as `[worker][bucket]`, drawn at its first call."""
        if self._drawn != step:
            self._drawn = None
            self._gradients = []  # freed before the next ones are cut
            drawn = map(self._cutter.cut, self._draw(step) if self._every else ())
            distinct = [self._carried(buckets, step) for buckets in drawn] or [self._zeros]
            self._gradients = [distinct[worker % len(distinct)] for worker in range(self._workers)]
            self._drawn = step
        return self._gradients

    def _carried(self, buckets: list[Gradient], step: int) -> list[Gradient]:
        """The buckets of a worker as packets carry them."""
        if self._every == 1:
            return buckets
        carried = list(self._zeros)
        for bucket in buckets_with_words(self._spec, len(buckets), self._seed, step):
            carried[bucket] = buckets[bucket].copy()
        return carried

    def _draw(self, step: int) -> Iterator[Gradient]:
        """Every distinct gradient, in memory that may be the next one's."""
        units = _units(self._spec)
        chosen = round(self._spec.density * units)
        rows = [self._flat[worker % len(self._flat)] for worker in range(self._distinct)]
        if chosen == units:  # the same draws, since choosing all units draws nothing
            for worker, flat in enumerate(rows):
                _fill_gradient(flat, self._spec.distribution, keyed(self._seed, "gradient", step, worker))
                yield flat
            return
        common = _choose(units, round(self._spec.overlap * chosen), keyed(self._seed, "common", step))
        free = np.flatnonzero(~common)
        private = chosen - (units - free.size)
        for worker, flat in enumerate(rows):
            generator = keyed(self._seed, "gradient", step, worker)
            live = common.copy()
            live[free[_choose(free.size, private, generator)]] = True
            support = _spread(live, self._spec)
            flat.fill(0)
            flat[support] = _VALUES[self._spec.distribution](generator, int(np.count_nonzero(support)))
            yield flat


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


def _fill_gradient(flat: Gradient, distribution: Distribution, generator: np.random.Generator) -> None:
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
    return _with_signs(exps(exponents), generator)


def _loguniform(generator: np.random.Generator, count: int) -> Gradient:
    exponents = generator.random(count, np.float32) * np.float32(-LOGUNIFORM_BINADES)
    return _with_signs(exps(exponents, LN2), generator)


def _integer(generator: np.random.Generator, count: int) -> Gradient:
    magnitudes = generator.integers(1, INTEGER_MAX, count, np.int8, endpoint=True)
    return _with_signs(magnitudes.astype(np.float32), generator)


def _with_signs(magnitudes: Gradient, generator: np.random.Generator) -> Gradient:
    """Give each value a random sign, in place."""
    negative = generator.integers(0, 2, magnitudes.size, np.bool_, endpoint=False)
    return np.negative(magnitudes, out=magnitudes, where=negative)


_VALUES: dict[Distribution, Callable[[np.random.Generator, int], Gradient]] = {
    "normal": _normal,
    "lognormal": _lognormal,
    "loguniform": _loguniform,
    "integer": _integer,
}
