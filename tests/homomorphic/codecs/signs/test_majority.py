"""Codec `majority` against votes counted in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.codecs.signs.majority import Majority, MajorityEncoder
from netfold.homomorphic.message import Merged
from netfold.homomorphic.round import Round
from netfold.testing import check_round
from tests.examples import examples

VALUES = st.sampled_from([-1e30, -1.0, -1e-45, -0.0, 0.0, 1e-45, 2.5, math.inf, -math.inf])


@examples(50)
@given(
    rows=st.integers(1, 40).flatmap(
        lambda elements: st.lists(
            st.lists(VALUES, min_size=elements, max_size=elements), min_size=1, max_size=15
        )
    )
)
def test_a_round_by_plain_python(rows: list[list[float]]) -> None:
    workers = len(rows)
    signs = [[1 if value >= 0 else -1 for value in row] for row in rows]
    balance = [sum(column) for column in zip(*signs, strict=True)]
    majority = [0 if not one else math.copysign(workers, one) for one in balance]

    found = check_round(Majority(), [np.array(row, np.float32) for row in rows])

    assert found.decoded[0].tolist() == majority
    assert [one.tolist() for one in found.contributions] == signs
    words = found.messages[0][0][0].words.view(np.uint32)
    votes = [int(words[place // 8]) >> 4 * (place % 8) & 15 for place in range(8 * words.size)]
    assert votes == [int(sign > 0) for sign in signs[0]] + [0] * (8 * words.size - len(signs[0]))


def test_how_many_workers_fit() -> None:
    assert Majority().refusal(15, "wrap") is None
    refusal = Majority().refusal(16, "wrap")
    assert refusal is not None
    assert refusal.reason == "majority has room for 15 workers, found 16"
    for overflow in ("saturate", "sticky"):
        refusal = Majority().refusal(2, overflow)
        assert refusal is not None
        assert "needs adders that wrap: votes are packed in words" in refusal.reason


def test_a_value_that_is_no_number_has_no_sign() -> None:
    with pytest.raises(EncodeError, match=r"gradient\[1\] is nan"):
        check_round(Majority(), [np.array([1, math.nan], np.float32)])


def test_more_votes_than_workers_are_refused() -> None:
    exchange = MajorityEncoder().exchange(np.zeros(9, np.float32), Round(0, 0, 3, 1))
    next(exchange)

    with pytest.raises(DecodeError, match="element 8 has more votes than there are workers, 3"):
        exchange.send((Merged(np.array([0x33333333, 4], np.int32), 3),))
