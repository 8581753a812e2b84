"""The text, its tokens and pieces of words, against what is known of it and against plain Python."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.workload.training.data import wordpiece
from netfold.sim.workload.training.data.text import (
    UNKNOWN,
    load_characters,
    load_text,
    load_words,
    numbered,
    words_of,
)
from netfold.sim.workload.training.data.wordpiece import SPECIAL, cut, learned, load_pieces
from tests.examples import examples, nightly

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


@pytest.mark.slow
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


PIECES_SHA256 = "afa2ab5b25da161ff2dc691f1e8cfb1ff6c7516280da92f525451ef074269854"  # of BERT's default

counts = st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=12)


def reference(words: dict[str, int], vocabulary: int) -> list[str]:
    cuts = {word: [word[0], *("##" + letter for letter in word[1:])] for word in words}
    pieces = [*SPECIAL, *sorted({piece for own in cuts.values() for piece in own})]
    while len(pieces) < vocabulary:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, own in cuts.items():
            for pair in pairwise(own):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merged = best[0] + best[1][2:]
        if merged not in pieces:
            pieces.append(merged)
        for word, own in cuts.items():
            place = 0
            while place < len(own) - 1:
                if (own[place], own[place + 1]) == best:
                    own[place : place + 2] = [merged]
                place += 1
            cuts[word] = own
    return pieces[:vocabulary]


@examples(100)
@given(counts, st.integers(6, 60))
def test_pieces_are_those_of_the_reference(words: dict[str, int], vocabulary: int) -> None:
    assert learned(words, vocabulary) == reference(words, vocabulary)


@examples(100)
@given(counts, st.integers(6, 60))
def test_pieces_of_a_word_are_the_longest_first(words: dict[str, int], vocabulary: int) -> None:
    pieces = learned(words, vocabulary)
    numbers = {piece: number for number, piece in enumerate(pieces)}

    def longest(rest: str, prefix: str) -> list[str] | None:
        if not rest:
            return []
        for size in range(len(rest), 0, -1):
            if prefix + rest[:size] in pieces:
                after = longest(rest[size:], "##")
                return None if after is None else [prefix + rest[:size], *after]
        return None

    for word in words:
        expected = longest(word, "")
        found = [pieces[number] for number in cut(word, numbers)]
        assert found == (expected or [SPECIAL[wordpiece.UNKNOWN]])
        assert expected is None or "".join(piece.removeprefix("##") for piece in found) == word


def test_a_word_with_an_unknown_letter_is_unknown_as_a_whole() -> None:
    numbers = {piece: number for number, piece in enumerate(learned({"abab": 3}, 100))}

    assert cut("abc", numbers) == [wordpiece.UNKNOWN]
    assert cut("abab", numbers) == [numbers["abab"]]


@pytest.mark.slow
def test_a_text_is_all_in_pieces_that_spell_it() -> None:
    found = load_pieces("shakespeare", 1200)
    words = words_of(load_text("shakespeare"))[:500]
    spelled, place = [], 0
    for word in words:
        own = ""
        while len(own) < len(word):
            own += found.names[found.numbers[place]].removeprefix("##")
            place += 1
        spelled.append(own)

    assert spelled == words
    assert len(found.names) == 1200
    assert found.numbers.min() >= len(SPECIAL)  # every letter is in the vocabulary
    assert found.numbers.max() < 1200


def test_pieces_are_kept_and_made_again_if_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = "to be or not to be that is the question"
    monkeypatch.setenv("NETFOLD_CACHE", str(tmp_path))
    monkeypatch.setattr(wordpiece, "load_text", lambda name: text)
    asked: list[int] = []

    def counting(words: dict[str, int], vocabulary: int) -> list[str]:
        asked.append(vocabulary)
        return learned(words, vocabulary)

    monkeypatch.setattr(wordpiece, "learned", counting)

    def loaded(vocabulary: int) -> list[int]:
        load_pieces.cache_clear()
        found: list[int] = load_pieces("some", vocabulary).numbers.tolist()
        return found

    try:
        first = loaded(40)
        assert loaded(40) == first
        assert asked == [40]
        loaded(30)
        assert asked == [40, 30]
        (path,) = (tmp_path / "wordpiece").glob("some-40-*")
        path.write_text(path.read_text().replace("be", "bi"))
        with caplog.at_level(logging.WARNING):
            assert loaded(40) == first
        assert asked == [40, 30, 40]
        assert "is damaged and is made again" in caplog.text
        text = "another text"
        loaded(40)
        assert asked == [40, 30, 40, 40]
    finally:
        load_pieces.cache_clear()


@nightly
def test_the_default_vocabulary_is_the_same_everywhere() -> None:
    """5 s on one core."""
    pieces = learned(Counter(words_of(load_text("shakespeare-kjv"))), 30_522)

    assert len(pieces) == len(set(pieces)) == 30_522
    assert hashlib.sha256("\n".join(pieces).encode()).hexdigest() == PIECES_SHA256
    assert np.array_equal(load_pieces("shakespeare-kjv", 30_522).names, pieces)
