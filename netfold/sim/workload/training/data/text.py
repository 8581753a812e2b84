"""Text to train language models with: its characters or words, numbered by how often they occur."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.training.data.fetch import fetch_all

UNKNOWN = 0  # the number of all that the vocabulary leaves out

_SPEAKER = re.compile(r"\*\*(.+?)\*\*")
_MARKS = str.maketrans("’", "'", "#*_\\[]")  # headings, stage directions, additions
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d|[^\w\s]")


class Tokens(NamedTuple):
    """A text as numbers of its tokens."""

    numbers: NDArray[np.int64]  # (tokens,), each below the size of the vocabulary
    names: tuple[str, ...]  # of 1, 2 …: the tokens that have a number of their own


@cache
def load_text(name: str) -> str:
    """Return the text of `shakespeare`, or of `shakespeare-kjv`, without marks of Markdown and brackets."""
    found = []
    for file, path in fetch_all(name).items():
        content = path.read_text(encoding="utf-8")
        if file.endswith(".py"):
            content = content.split('"""')[1]  # the file is not run: its first literal is the text
        content = _SPEAKER.sub(r"\1:", content)
        found += ["", *map(str.strip, content.translate(_MARKS).strip().splitlines())]
    return "\n".join(found[1:])


def words_of(text: str) -> list[str]:
    """Words in lower case, with their apostrophes; every digit and mark of punctuation is one of its own."""
    return _WORD.findall(text.lower())


@cache
def load_words(name: str, vocabulary: int) -> Tokens:
    """Return the words of a text; the `vocabulary` − 1 most frequent ones have numbers of their own."""
    return numbered(words_of(load_text(name)), vocabulary)


@cache
def load_characters(name: str, vocabulary: int) -> Tokens:
    """Return the characters of a text; the `vocabulary` − 1 most frequent ones have numbers of their own."""
    return numbered(load_text(name), vocabulary)


def numbered(tokens: Sequence[str], vocabulary: int) -> Tokens:
    """Number tokens from 1 by how often they occur, those that occur equally often by their spelling."""
    counts = Counter(tokens)
    names = sorted(counts, key=lambda token: (-counts[token], token))[: vocabulary - 1]
    return Tokens(looked_up(tokens, {name: 1 + place for place, name in enumerate(names)}), tuple(names))


def looked_up(tokens: Sequence[str], numbers: Mapping[str, int]) -> NDArray[np.int64]:
    """The numbers of tokens; `UNKNOWN` where there is none."""
    return np.fromiter((numbers.get(token, UNKNOWN) for token in tokens), np.int64, len(tokens))
