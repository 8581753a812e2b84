"""Exponential and logarithm: by Python's decimals, whose results are rounded correctly to any length."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest

from netfold.homomorphic.kernels.functions import LN2, expm1s, exps, log1ps, logs
from tests.examples import scaled

CONTEXT = decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))
SMALLEST = math.ulp(0.0)
RANDOM = np.random.Generator(np.random.PCG64(23))
COUNT = scaled(800)
EXPONENTS = np.concatenate(
    [
        RANDOM.uniform(-745, 709.7, COUNT),
        RANDOM.uniform(-1, 1, COUNT),
        RANDOM.normal(size=COUNT) * 2.0 ** RANDOM.integers(-40, 3, COUNT),
        np.array([0.0, -0.0, LN2, -LN2, LN2 / 2, -LN2 / 2, 1.0, -1.0, 709.782712893384, -708.4, -745.13]),
    ]
)
POSITIVE = np.concatenate(
    [
        np.exp2(RANDOM.uniform(-1074, 1023.9, COUNT)),
        RANDOM.uniform(0.5, 2, COUNT),
        1 + RANDOM.normal(size=COUNT) * 2.0 ** RANDOM.integers(-52, -2, COUNT),
        np.array([SMALLEST, 2.0**-1022, 1.0, 0.5, 2.0, math.sqrt(0.5), math.sqrt(2), 1.7976931348623157e308]),
    ]
)
SMALL = np.concatenate(
    [-RANDOM.uniform(0, 1, COUNT), -(2.0 ** -RANDOM.uniform(1, 60, COUNT)), np.array([0.5, 1.0])]
)


def worst(found: np.ndarray, values: np.ndarray, exact: Callable[[Decimal], Decimal]) -> float:
    """The largest error in units of the last place of the exact result."""
    errors = []
    for value, own in zip(values.tolist(), found.tolist(), strict=True):
        right = exact(Decimal(value))
        unit = max(math.ulp(float(right)), SMALLEST)
        errors.append(abs(float((Decimal(own) - right) / Decimal(unit))))
    return max(errors)


@pytest.mark.parametrize(
    ("function", "values", "exact", "units"),
    [
        (exps, EXPONENTS, lambda x: x.exp(CONTEXT), 1),
        (logs, POSITIVE, lambda x: x.ln(CONTEXT), 1),
        (expm1s, SMALL, lambda x: CONTEXT.subtract(x.exp(CONTEXT), Decimal(1)), 4),
        (log1ps, SMALL[SMALL > -1], lambda x: CONTEXT.add(Decimal(1), x).ln(CONTEXT), 4),
    ],
    ids=["exp", "log", "expm1", "log1p"],
)
def test_errors_are_below_units_of_the_last_place(
    function: Callable[[np.ndarray], np.ndarray],
    values: np.ndarray,
    exact: Callable[[Decimal], Decimal],
    units: int,
) -> None:
    assert worst(function(values), values, exact) < units


def test_values_that_are_no_numbers_or_beyond_them() -> None:
    assert exps(np.array([np.inf, 709.79, -np.inf, -745.2, 0.0])).tolist() == [np.inf, np.inf, 0.0, 0.0, 1.0]
    assert logs(np.array([np.inf, 0.0, -0.0, 1.0])).tolist() == [np.inf, -np.inf, -np.inf, 0.0]
    assert expm1s(np.array([-800.0, 0.0])).tolist() == [-1.0, 0.0]
    assert log1ps(np.array([-1.0, 0.0])).tolist() == [-np.inf, 0.0]
    assert np.isnan(exps(np.array([np.nan]))).all()
    assert np.isnan(logs(np.array([np.nan, -1.0, -np.inf]))).all()


@pytest.mark.parametrize("factor", [1.0, LN2, -3.5])
def test_a_float32_is_rounded_once(factor: float) -> None:
    values = RANDOM.uniform(-8, 8, (7, 50)).astype(np.float32)

    found = exps(values, factor)

    assert found.dtype == np.float32
    assert found.shape == values.shape
    assert found.tolist() == exps(values.astype(np.float64) * factor).astype(np.float32).tolist()


def test_powers_of_two_are_exact_in_float32() -> None:
    exponents = np.arange(-126, 128, dtype=np.float32)

    assert exps(exponents, LN2).tolist() == (2.0 ** exponents.astype(np.float64)).tolist()
