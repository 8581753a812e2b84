"""WordPiece: words cut into pieces, of which there is a fixed number.

Schuster and Nakajima, Japanese and Korean voice search, ICASSP 2012; a piece that does not begin a word is
written ##piece, as in BERT. The vocabulary is learned by merging the most frequent pair of neighbouring
pieces again and again (Sennrich et al., ACL 2016), as Hugging Face's WordPieceTrainer does; of pairs that
occur equally often, the first in the order of their spelling. A word is cut by the longest piece that it
begins with, then the longest that the rest begins with, and so on.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from netfold.sim.workload.training.data.fetch import cache_folder, write_whole
from netfold.sim.workload.training.data.text import Tokens, load_text, words_of

log = logging.getLogger(__name__)

_FORMAT = 1  # counted up when other pieces are learned from the same text
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first numbers
UNKNOWN, CLASSIFY, SEPARATE = (SPECIAL.index(name) for name in ("[UNK]", "[CLS]", "[SEP]"))

Pair = tuple[str, str]


@cache
def load_pieces(name: str, vocabulary: int) -> Tokens:
    """Return the pieces of the words of a text; their numbers are their places in `names`.

    The vocabulary is learned from this text, and kept in the cache.
    """
    text = load_text(name)
    words = words_of(text)
    counts = Counter(words)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = cache_folder() / "wordpiece" / f"{name}-{vocabulary}-{_FORMAT}-{digest[:16]}.txt"
    pieces = _kept(path)
    if pieces is None:
        log.info("learning %s pieces of words from %s", f"{vocabulary:,}", name)
        pieces = learned(counts, vocabulary)
        _keep(path, pieces)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    cuts = {word: np.array(cut(word, numbers), np.int64) for word in counts}
    return Tokens(np.concatenate([cuts[word] for word in words]), tuple(pieces))


def learned(counts: Mapping[str, int], vocabulary: int) -> list[str]:
    """Return the special pieces, all characters in the order of their spelling, and what they merge to.

    Parameters
    ----------
    counts
        How often each word occurs.
    vocabulary
        Most pieces; there are fewer if all words are whole before.
    """
    words = sorted(counts)
    cuts = [[word[0], *(f"##{letter}" for letter in word[1:])] for word in words]
    pieces = [*SPECIAL, *sorted({piece for own in cuts for piece in own})]
    frequency: dict[Pair, int] = defaultdict(int)
    places: dict[Pair, set[int]] = defaultdict(set)
    for index, own in enumerate(cuts):
        for pair in pairwise(own):
            frequency[pair] += counts[words[index]]
            places[pair].add(index)
    known = set(pieces)
    heap = [(-count, pair) for pair, count in frequency.items()]
    heapq.heapify(heap)
    while heap and len(pieces) < vocabulary:
        count, pair = heapq.heappop(heap)
        if frequency[pair] != -count:
            continue  # an older count
        merged = pair[0] + pair[1].removeprefix("##")
        if merged not in known:
            known.add(merged)
            pieces.append(merged)
        changed: set[Pair] = set()
        for index in places.pop(pair):
            own, times = cuts[index], counts[words[index]]
            for old in pairwise(own):
                frequency[old] -= times
                changed.add(old)
            cuts[index] = own = _merged(own, pair, merged)
            for new in pairwise(own):
                frequency[new] += times
                places[new].add(index)
                changed.add(new)
        for one in changed:
            if frequency[one]:
                heapq.heappush(heap, (-frequency[one], one))
    return pieces[:vocabulary]


def _merged(own: Sequence[str], pair: Pair, merged: str) -> list[str]:
    """The pieces of a word with every occurrence of a pair made one, from the left."""
    found: list[str] = []
    place = 0
    while place < len(own):
        is_pair = tuple(own[place : place + 2]) == pair
        found.append(merged if is_pair else own[place])
        place += 2 if is_pair else 1
    return found


def cut(word: str, numbers: Mapping[str, int]) -> list[int]:
    """The numbers of a word's pieces; that of the unknown piece alone if it cannot be cut."""
    found: list[int] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        stop = len(word)
        while stop > start and prefix + word[start:stop] not in numbers:
            stop -= 1
        if stop == start:
            return [UNKNOWN]
        found.append(numbers[prefix + word[start:stop]])
        start = stop
    return found


def _kept(path: Path) -> list[str] | None:
    """The pieces in a file of the cache; None if there is none, or it is damaged."""
    try:
        digest, _, content = path.read_text(encoding="utf-8").partition("\n")
    except OSError:
        return None
    if hashlib.sha256(content.encode()).hexdigest() != digest:
        log.warning("%s is damaged and is made again", path)
        return None
    return content.split("\n")


def _keep(path: Path, pieces: Sequence[str]) -> None:
    """Put the pieces into the cache; without them they are learned again each time."""
    content = "\n".join(pieces).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{hashlib.sha256(content).hexdigest()}\n".encode() + content)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)
