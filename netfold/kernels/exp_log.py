"""Exponential and logarithm of float64, with the same bits on every processor.

NumPy and the C library choose their versions by the processor, and those differ in the last bit. These are
made of additions, products and quotients in a fixed order, which Numba compiles as they are written. Errors
are below 1 unit in the last place (`exp`, `log`), and below 4 (`expm1`, `log1p`).

Reductions and polynomials: FreeBSD's msun, e_exp.c and e_log.c (Sun Microsystems, 1993). `expm1` and `log1p`
correct the two by what the rounding of 1 + x has lost (Kahan; Higham, "Accuracy and Stability of Numerical
Algorithms", 2002, section 1.14.1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.bits import bits_of, double_of
from netfold.kernels.compiled import inlined, kernel

LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LARGEST, _SMALLEST = 709.782712893384, -745.1332191019412  # beyond: infinity, and zero
_FRACTION, _ONE_BITS = (1 << 52) - 1, 1023 << 52
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_TINY = 2.0**-1022  # smaller numbers have fewer bits
_E1, _E2, _E3 = 1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05
_E4, _E5 = -1.65339022054652515390e-06, 4.13813679705723846039e-08
_L1, _L2, _L3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
_L4, _L5, _L6 = 2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01
_L7 = 1.479819860511658591e-01

Floats = NDArray[np.floating[Any]]


@inlined
def exp(x: float) -> float:
    """e to the power of x."""
    if x != x:
        return x
    if x > _LARGEST:
        return np.inf
    if x < _SMALLEST:
        return 0.0
    power = np.int64(x / LN2 + (0.5 if x > 0 else -0.5))
    high, low = x - power * _LN2_HIGH, power * _LN2_LOW
    remainder = high - low
    square = remainder * remainder
    odd = remainder - square * (_E1 + square * (_E2 + square * (_E3 + square * (_E4 + square * _E5))))
    value = 1.0 - ((low - remainder * odd / (2.0 - odd)) - high)
    half = power // 2  # two factors: 2**power itself may be no float64
    scaled: float = value * double_of((half + 1023) << 52) * double_of((power - half + 1023) << 52)
    return scaled


@inlined
def log(x: float) -> float:
    """The natural logarithm of x: −inf of zero, NaN below."""
    if not 0.0 < x < np.inf:
        return x if x != x or x > 0 else (-np.inf if x == 0 else np.nan)
    power = np.int64(0)
    if x < _TINY:
        power, x = np.int64(-54), x * 2.0**54
    bits = bits_of(x) + (_ONE_BITS - _SQRT_HALF_BITS)
    power += (bits >> 52) - 1023
    # x = 2^power · (1 + f), with 1 + f from √½ to √2.
    f = double_of((bits & _FRACTION) + _SQRT_HALF_BITS) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (_L2 + w * (_L4 + w * _L6))
    odd = z * (_L1 + w * (_L3 + w * (_L5 + w * _L7)))
    half_square = 0.5 * f * f
    value: float = power * _LN2_HIGH - (
        (half_square - (s * (half_square + (even + odd)) + power * _LN2_LOW)) - f
    )
    return value


@inlined
def expm1(x: float) -> float:
    """exp(x) − 1, accurate near zero; x is below 700."""
    grown = exp(x)
    if grown == 1.0:
        return x
    return grown - 1.0 if grown == 0.0 else (grown - 1.0) * x / log(grown)


@inlined
def log1p(x: float) -> float:
    """log(1 + x), accurate near zero; x is finite."""
    grown = 1.0 + x
    return x if grown == 1.0 else log(grown) * x / (grown - 1.0)


@kernel
def _write_exp(values: Floats, factor: float, results: Floats) -> None:
    for i in range(values.size):
        results[i] = exp(np.float64(values[i]) * factor)


@kernel
def _write_log(values: Floats, results: Floats) -> None:
    for i in range(values.size):
        results[i] = log(np.float64(values[i]))


@kernel
def _write_expm1(values: Floats, results: Floats) -> None:
    for i in range(values.size):
        results[i] = expm1(np.float64(values[i]))


@kernel
def _write_log1p(values: Floats, results: Floats) -> None:
    for i in range(values.size):
        results[i] = log1p(np.float64(values[i]))


def exps(values: Floats, factor: float = 1.0) -> Any:
    # exp(value · factor), in float64 and then rounded to the values' type.
    return _each(_write_exp, values, float(factor))


def logs(values: Floats) -> Any:
    return _each(_write_log, values)


def expm1s(values: Floats) -> Any:
    return _each(_write_expm1, values)


def log1ps(values: Floats) -> Any:
    return _each(_write_log1p, values)


def _each(write: Any, values: Floats, *more: float) -> Any:
    flat = np.ascontiguousarray(values).reshape(-1)
    results = np.empty_like(flat)
    write(flat, *more, results)
    return results.reshape(values.shape)
