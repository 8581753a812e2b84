"""Pieces of words, against a reference that counts all pairs anew before each merge."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.workload.training.data import wordpiece
from netfold.sim.workload.training.data.text import load_text, words_of
from netfold.sim.workload.training.data.wordpiece import SPECIAL, UNKNOWN, cut, learned, load_pieces
from tests.examples import examples, nightly

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
        assert found == (expected or [SPECIAL[UNKNOWN]])
        assert expected is None or "".join(piece.removeprefix("##") for piece in found) == word


def test_a_word_with_an_unknown_letter_is_unknown_as_a_whole() -> None:
    numbers = {piece: number for number, piece in enumerate(learned({"abab": 3}, 100))}

    assert cut("abc", numbers) == [UNKNOWN]
    assert cut("abab", numbers) == [numbers["abab"]]


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
