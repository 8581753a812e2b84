"""Warnings that several variants share are said once."""

from __future__ import annotations

import pytest

from netfold.sim.report.warnings import warnings


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], []),
        (["a: slow"], ["a: slow"]),
        (["a: slow", "b: slow"], ["a, b: slow"]),
        (["a: slow", "b: late", "c: slow"], ["a, c: slow", "b: late"]),
        ([f"{name}: slow" for name in "abcd"], ["a, b, c, d: slow"]),
        ([f"{name}: slow" for name in "abcde"], ["a, b, c and 2 more: slow"]),
        ([f"{name}: slow" for name in "abcdef"], ["all variants: slow"]),
        (["the run was stopped"], ["the run was stopped"]),
        (["a: 8: too many", "elsewhere: b: slow"], ["a: 8: too many", "elsewhere: b: slow"]),
    ],
)
def test_each_text_is_there_once_with_those_that_have_it(given: list[str], told: list[str]) -> None:
    variants = [{"name": name} for name in "abcdef"]

    assert warnings({"variants": variants, "warnings": given}) == told


def test_of_one_variant_the_name_stays() -> None:
    assert warnings({"variants": [{"name": "a"}], "warnings": ["a: slow"]}) == ["a: slow"]
