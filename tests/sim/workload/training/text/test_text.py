"""The text and its tokens, against what is known of it and against plain Python."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.workload.training.data.text import (
    UNKNOWN,
    load_characters,
    load_text,
    load_words,
    numbered,
    words_of,
)
from tests.examples import examples

VERSES = (  # the first, one with an added word, and the last of the Bible
    "In the beginning God created the heaven and the earth.",
    "and darkness was upon the face of the deep",
    "The grace of our Lord Jesus Christ be with you all. Amen.",
)
LINES = (  # of three plays
    "HAMLET:\nTo be, or not to be: that is the question:",
    "\nIf music be the food of love, play on;",
    "Friends, Romans, countrymen, lend me your ears;",
)


def test_the_plays_are_there_and_after_them_the_bible_once() -> None:
    """Without marks of their formats; the King James Bible has about 788 thousand words (66 books)."""
    plays, both = load_text("shakespeare"), load_text("shakespeare-kjv")
    word = r"[^\W\d_]+(?:['-][^\W\d_]+)*"

    assert all(line in plays for line in LINES)
    assert both.startswith(plays)
    assert all(verse in both and verse not in plays for verse in VERSES)
    assert both.endswith(VERSES[-1])
    assert not set(both) & set("#*_[]\\’")
    assert not re.search(r"Book\.|^import |[ \t]$|^[ \t]", both, re.MULTILINE)
    assert len(re.findall(r"^ACT I$", both, re.MULTILINE)) == 38  # plays
    assert len(re.findall(word, both[len(plays) :])) == pytest.approx(788_000, rel=0.01)
    assert 800_000 < len(re.findall(word, plays)) < 1_100_000


def test_words() -> None:
    assert words_of("O, that this too-too\nsolid Flesh 'd melt!") == (
        ["o", ",", "that", "this", "too", "-", "too", "solid", "flesh", "'", "d", "melt", "!"]
    )
    assert words_of("Bellona's 12 Æneas") == ["bellona's", "1", "2", "æneas"]


@examples(50)
@given(st.lists(st.sampled_from("abcdefgh")), st.integers(2, 10))
def test_tokens_are_numbered_by_frequency(tokens: list[str], vocabulary: int) -> None:
    found = numbered(tokens, vocabulary)
    counts = Counter(tokens)

    assert len(found.names) == min(vocabulary - 1, len(counts))
    assert found.numbers.dtype == np.int64
    for token, number in zip(tokens, found.numbers.tolist(), strict=True):
        more = sum(counts[one] > counts[token] for one in counts)
        equal = sum(counts[one] == counts[token] and one < token for one in counts)
        assert number == (1 + more + equal if 1 + more + equal < vocabulary else UNKNOWN)
        assert number == UNKNOWN or found.names[number - 1] == token


def test_the_vocabulary_is_full_and_covers_most_of_the_text() -> None:
    found = load_words("shakespeare-kjv", 10_000)

    assert found.numbers.max() == 9_999
    assert (found.numbers != UNKNOWN).mean() > 0.97
    assert len(found.numbers) == len(words_of(load_text("shakespeare-kjv")))


def test_characters_are_those_of_tiny_shakespeare_and_a_dash() -> None:
    """Its 65 are the letters, the white space, and !$&',-.3:;?; here $ and 3 are too rare, and — is not."""
    found = load_characters("shakespeare", 65)

    letters = {chr(first + place) for first in (65, 97) for place in range(26)}
    assert set(found.names) - letters == set("\n !&',-.:;?—")
    assert "".join(found.names[number - 1] for number in found.numbers[:26]) == "A Midsummer Night's Dream\n"
