"""Messages of rows that were damaged on the way."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.homomorphic.codec import DecodeError, Request
from netfold.homomorphic.codecs.bird.gathered import RowsEncoder, RowsServer
from netfold.homomorphic.codecs.bird.published import Bird
from netfold.homomorphic.message import Merged
from netfold.homomorphic.round import Round
from tests.homomorphic.codecs.bird.layers import Shapes, folded, round_of, tensors_of


def damaged(change: str) -> np.ndarray:
    shapes: Shapes = [(8, 4, 0)]
    words = folded(Bird(0.5), [np.ones(32, np.float32)], round_of(shapes)).messages[0][0][0].words.copy()
    assert words.size == 1 + 1 + 1 + 4 + 1  # scale, count, signs, indices, rows of the layer
    match change:
        case "short":
            return words[:2]
        case "longer":
            return np.append(words, np.uint32(4))
        case "signs":
            words[1] = 17
        case "rows":
            words[-1] = 9
        case "index":
            words[-2] = 8
        case "order":
            words[3] = words[4]
    return words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("short", "has 2 words, too few for 1 scales"),
        ("longer", "has 9 words and 16 signs, its rows need 8 and 16"),
        ("signs", "has 8 words and 17 signs, its rows need 8 and 16"),
        ("rows", "has more rows than their layer"),
        ("index", "its indices are not ascending rows of 8"),
        ("order", "its indices are not ascending rows of 8"),
    ],
)
def test_damaged_messages(change: str, reason: str) -> None:
    request = Request(0, 0, 0, "rows", tensors_of([(8, 4, 0)]))

    with pytest.raises(DecodeError, match=f"worker 1's message of rows is damaged: .*{reason}"):
        RowsServer(False).merge([damaged(""), damaged(change)], request)


def test_a_sum_of_another_length() -> None:
    exchange = RowsEncoder(Bird(), 0).exchange(np.ones(4, np.float32), Round(0, 0, 1, 1))
    next(exchange)

    with pytest.raises(DecodeError, match="has 3 elements, not 4"):
        exchange.send((Merged(np.ones(3, np.float32), 1),))
