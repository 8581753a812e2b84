"""NumPy's normal float32 values, the same bits, three to four times as fast.

Drawing gradients was half of a run's CPU time. `numpy.random.Generator` fetches every 32 random bits
through a pointer to a function; here the generator (PCG64) and the method (the ziggurat) are compiled
into one loop.

Sources: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random
Number Generation", 2014 (PCG XSL-RR 128/64); Marsaglia and Tsang, "The Ziggurat Method for Generating
Random Variables", Journal of Statistical Software 5(8), 2000, with 256 layers as NumPy cuts them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import inlined, intrinsic, kernel

_LAYERS = 256
_BASE = 3.6541528853610088  # where the tail begins
_TAIL_START, _TAIL_SCALE = np.float32(_BASE), np.float32(1 / _BASE)
_MAGNITUDES = 1 << 23  # a draw has 8 bits for the layer, one for the sign and 23 for the magnitude
_DRAWN_AT_ONCE = 1 << 26  # values: 0.15 s in which no signal is seen
_MULTIPLIER_HIGH, _MULTIPLIER_LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)
_LOW_HALF = (1 << 64) - 1


class _Ziggurat(NamedTuple):
    """The layers, each `(256,)`."""

    inner: NDArray[np.uint32]  # a smaller magnitude is under the curve
    widths: NDArray[np.float32]  # of a layer, for each step of the magnitude
    heights: NDArray[np.float32]  # of the curve at a layer's edge


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
    before: Any = generator.bit_generator.state
    numbers = before["state"]
    stream = np.array(
        [
            numbers["state"] >> 64,
            numbers["state"] & _LOW_HALF,
            numbers["inc"] >> 64,
            numbers["inc"] & _LOW_HALF,
            before["has_uint32"],
            before["uinteger"],
        ],
        np.uint64,
    )
    for begin in range(0, values.size, _DRAWN_AT_ONCE):
        _fill(values[begin : begin + _DRAWN_AT_ONCE], stream, *_ZIGGURAT)
    high, low, _, _, has_half, half = stream.tolist()
    generator.bit_generator.state = before | {
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
    """Uniform in [0, 1), a float32 multiple of 2^-24."""
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
    """The value, or its negative, as the lowest bit says."""
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
