"""Readers of data sets: digits and photos, text as characters, words and pieces, ratings."""

from __future__ import annotations

import gzip
import hashlib
import heapq
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.data_sets import cache_folder, fetch, fetch_all, write_whole
from netfold.sim.workload.workload import keyed

_SMALL, _LARGE = 8, 28  # pixels of a side
_GREYS = 16
"""Value of a white pixel of the small images; a black one has 0."""
_PARTS = 14  # weights of the enlargement are fourteenths


class Digits(NamedTuple):
    """Images `(samples, pixels)` float32 in [0, 1], row by row, and their labels `(samples,)`, 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def tested(self) -> NDArray[np.int64] | None:
        # There is no part for tests.
        return None

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.images[samples]


class Images(Protocol):
    """Images with labels, made when they are taken."""

    @property
    def labels(self) -> NDArray[np.int64]:
        # The class of each, `(samples,)`.
        ...

    @property
    def tested(self) -> NDArray[np.int64] | None:
        # Numbers of the data set's own test part, on which nothing is trained; None: it has none.
        ...

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        # The images with these numbers, `(samples, …)`.
        ...


class Greys(NamedTuple):
    """Images `(samples, pixels)` of bytes, and their labels `(samples,)`; the last ones are for tests."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    tested_count: int

    @property
    def tested(self) -> NDArray[np.int64]:
        return np.arange(len(self.labels) - self.tested_count, len(self.labels))

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.images[samples].astype(np.float32) / np.float32(255)


def load_images(name: str, pixels: int) -> Images:
    """Return the images of a data set of grey images, with 64 (digits only) or 784 pixels each."""
    if name == "mnist-5k":
        return load_mnist()
    if name == "fashion-mnist":
        return load_fashion()
    return load_digits() if pixels == _SMALL**2 else load_large_digits()


def load_digits() -> Digits:
    """Return the 1797 images of `digits`, 8 by 8 pixels."""
    table = _table("digits")
    return Digits(table[:, :-1].astype(np.float32) / np.float32(_GREYS), table[:, -1].astype(np.int64))


def load_large_digits() -> Digits:
    """Return the 1797 images of `digits`, enlarged to 28 by 28 pixels as `enlarge` says."""
    table = _table("digits")
    return Digits(enlarge(table[:, :-1]), table[:, -1].astype(np.int64))


def load_mnist() -> Digits:
    """Return the 5000 images of `mnist-5k`, 28 by 28 pixels, sorted by label as in the file."""
    table = _table("mnist-5k")
    return Digits(table[:, :-1].astype(np.float32) / np.float32(255), table[:, -1].astype(np.int64))


def load_fashion() -> Greys:
    """Return the 70 000 images of `fashion-mnist`, 28 by 28 pixels, the 10 000 of its test part last."""
    paths = fetch_all("fashion-mnist")
    images, labels = (
        np.concatenate([_idx(paths[f"{part}-{what}-ubyte.gz"], start) for part in ("train", "t10k")])
        for what, start in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return Greys(images.reshape(-1, _LARGE**2), labels.astype(np.int64), 10_000)


def _idx(path: Path, start: int) -> NDArray[np.uint8]:
    # The format of MNIST: bytes after a header.
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=start)


def enlarge(images: NDArray[Any]) -> NDArray[np.float32]:
    # From `(samples, 64)`, whole numbers 0 to 16, to `(samples, 784)` in [0, 1]: bilinear, with the usual
    # half-pixel centres. The centre of large pixel i lies at (4 i − 5) / 14 on the axis of small pixels, and
    # what lies beyond the outer centres has their value. All weights are whole fourteenths, so that sums are
    # exact, and each pixel is rounded once: the same bits on every machine.
    weights = _weights()
    small = images.astype(np.int64).reshape(-1, _SMALL, _SMALL)
    sums: NDArray[np.int64] = weights @ small @ weights.T
    large = (sums / (_GREYS * _PARTS**2)).astype(np.float32)
    return large.reshape(-1, _LARGE**2)


def _weights() -> NDArray[np.int64]:
    """Weights `(28, 8)` of small pixels in large ones, in fourteenths."""
    weights = np.zeros((_LARGE, _SMALL), np.int64)
    for row in range(_LARGE):
        # The row's centre among the small rows, in fourteenths.
        centre = min(max(4 * row - 5, 0), _PARTS * (_SMALL - 1))
        left, share = divmod(centre, _PARTS)
        weights[row, left] += _PARTS - share
        if share:
            weights[row, left + 1] += share
    return weights


def _table(name: str) -> NDArray[np.uint8]:
    # A row has the pixels of an image, then its label.
    return np.loadtxt(fetch(name), delimiter=",", dtype=np.float32).astype(np.uint8)


# Pictures for convolutional networks: grey images as planes, and crops of photos.


_TEST_SHARE = 6
"""One in so many columns of a photo is for tests."""
_TRAINED = 500  # crops of a photo
_MEAN, _DEVIATION = 0.5, 0.25
"""Roughly the mean and the standard deviation of a photo's values in [0, 1]."""
_PICTURE_GREYS = {  # mean and standard deviation of values in [0, 1]: usual ones of MNIST and Fashion-MNIST
    "digits": (0.3053, 0.3247),
    "mnist-5k": (0.1307, 0.3081),
    "fashion-mnist": (0.2860, 0.3530),
}


class Planes(NamedTuple):
    """Grey images as `(samples, channels, side, side)`: equal channels, with a black margin, normalised."""

    images: Images
    channels: int
    side: int
    mean: float
    deviation: float

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.images.labels

    @property
    def tested(self) -> NDArray[np.int64] | None:
        return self.images.tested

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some of the images."""
        flat = self.images.take(samples)
        side = math.isqrt(flat.shape[1])
        margin = (self.side - side) // 2
        around = ((0, 0), (0, 0), (margin, margin), (margin, margin))
        planes = np.pad(flat.reshape(len(flat), 1, side, side), around)
        planes = (planes - np.float32(self.mean)) / np.float32(self.deviation)
        return np.repeat(planes, self.channels, axis=1)


class Crops:
    """Square crops of photos `(height, width, 3)` uint8; a crop's class is the number of its photo.

    Crops for tests lie in the last sixth of a photo's columns (in as many as a crop has, if these are more),
    the others do not touch it. Places are uniform, and the same for every seed. Crops for training come
    first, those of the first photo before those of the next.

    Parameters
    ----------
    photos
        Each at least `side` high and twice as wide.
    side
        Pixels of a crop's sides.
    trained, tested
        How many crops there are of each photo.
    """

    def __init__(self, photos: Sequence[NDArray[np.uint8]], side: int, trained: int, tested: int) -> None:
        self._photos, self._side = photos, side
        places, labels = [], []
        for count, is_test in ((trained, False), (tested, True)):
            for number, photo in enumerate(photos):
                height, width, _ = photo.shape
                border = width - max(side, width // _TEST_SHARE)
                low, high = (border, width - side) if is_test else (0, border - side)
                generator = keyed(0, "photo crops", side, number, is_test)
                rows = generator.integers(height - side + 1, size=count)
                columns = generator.integers(low, high + 1, size=count)
                places.append(np.column_stack((rows, columns)))
                labels.append(np.full(count, number))
        self._places = np.concatenate(places)
        self.labels: NDArray[np.int64] = np.concatenate(labels)
        self.tested: NDArray[np.int64] = np.arange(trained * len(photos), len(self.labels))

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some of the crops, `(samples, 3, side, side)`: (value / 255 − 0.5) / 0.25."""
        side = self._side
        crops = np.empty((len(samples), 3, side, side), np.float32)
        for crop_index, sample in enumerate(samples.tolist()):
            row, column = self._places[sample].tolist()
            photo = self._photos[self.labels[sample]]
            crops[crop_index] = photo[row : row + side, column : column + side].transpose(2, 0, 1)
        crops /= np.float32(255)
        crops -= np.float32(_MEAN)
        crops /= np.float32(_DEVIATION)
        return crops


def load_pictures(name: str, channels: int, side: int) -> Images:
    """Return the pictures of a data set, `(samples, channels, side, side)`; photos have 3 channels."""
    if name != "photos":
        return Planes(load_images(name, 28 * 28), channels, side, *_PICTURE_GREYS[name])
    return Crops(load_photos(), side, _TRAINED, tested=100 if side <= 32 else 10)


def load_photos() -> list[NDArray[np.uint8]]:
    # Each is `(height, width, 3)`; they are in the order of their names.
    return [_pixels(path) for _, path in sorted(fetch_all("photos").items())]


def _pixels(path: Path) -> NDArray[np.uint8]:
    from PIL import Image  # late: only photos need it. matplotlib requires it

    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


# Text to train language models with: its characters or words, numbered by how often they occur.


UNKNOWN = 0  # the number of all that the vocabulary leaves out

_SPEAKER = re.compile(r"\*\*(.+?)\*\*")
_MARKS = str.maketrans("’", "'", "#*_\\[]")  # headings, stage directions, additions
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d|[^\w\s]")


class Tokens(NamedTuple):
    """A text as numbers of its tokens."""

    numbers: NDArray[np.int64]  # (tokens,), each below the size of the vocabulary
    names: tuple[str, ...]
    """Tokens that have a number of their own: 1, 2 …"""


@cache
def load_text(name: str) -> str:
    """Return the text of `shakespeare`, or of `shakespeare-kjv`, without marks of Markdown and brackets."""
    lines = []
    for file, path in fetch_all(name).items():
        content = path.read_text(encoding="utf-8")
        if file.endswith(".py"):
            content = content.split('"""')[1]  # the file is not run: its first literal is the text
        content = _SPEAKER.sub(r"\1:", content)
        lines += ["", *map(str.strip, content.translate(_MARKS).strip().splitlines())]
    return "\n".join(lines[1:])


def words_of(text: str) -> list[str]:
    # Words keep their apostrophes; every digit and mark of punctuation is one of its own.
    return _WORD.findall(text.lower())


@cache
def load_words(name: str, vocabulary: int) -> Tokens:
    return number_tokens(words_of(load_text(name)), vocabulary)


@cache
def load_characters(name: str, vocabulary: int) -> Tokens:
    return number_tokens(load_text(name), vocabulary)


def number_tokens(tokens: Sequence[str], vocabulary: int) -> Tokens:
    """Number tokens from 1 by how often they occur, those that occur equally often by their spelling."""
    counts = Counter(tokens)
    names = sorted(counts, key=lambda token: (-counts[token], token))[: vocabulary - 1]
    return Tokens(looked_up(tokens, {name: 1 + rank for rank, name in enumerate(names)}), tuple(names))


def looked_up(tokens: Sequence[str], numbers: Mapping[str, int]) -> NDArray[np.int64]:
    return np.fromiter((numbers.get(token, UNKNOWN) for token in tokens), np.int64, len(tokens))


# WordPiece: words cut into pieces, of which there is a fixed number.
#
# Schuster and Nakajima, Japanese and Korean voice search, ICASSP 2012; a piece that does not begin a word is
# written ##piece, as in BERT. The vocabulary is learned by merging the most frequent pair of neighbouring
# pieces again and again (Sennrich et al., ACL 2016), as Hugging Face's WordPieceTrainer does; of pairs that
# occur equally often, the first in the order of their spelling. A word is cut by the longest piece that it
# begins with, then the longest that the rest begins with, and so on.


log = logging.getLogger(__name__)

_FORMAT = 1  # counted up when other pieces are learned from the same text
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first numbers
UNKNOWN_PIECE, CLASSIFY, SEPARATE = (SPECIAL.index(name) for name in ("[UNK]", "[CLS]", "[SEP]"))

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
    pieces = _read_kept(path)
    if pieces is None:
        log.info("learning %s pieces of words from %s", f"{vocabulary:,}", name)
        pieces = learn_pieces(counts, vocabulary)
        _keep(path, pieces)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    cuts = {word: np.array(split_word(word, numbers), np.int64) for word in counts}
    return Tokens(np.concatenate([cuts[word] for word in words]), tuple(pieces))


def learn_pieces(counts: Mapping[str, int], vocabulary: int) -> list[str]:
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
    pieces = [*SPECIAL, *sorted({piece for cut_word in cuts for piece in cut_word})]
    frequency: dict[Pair, int] = defaultdict(int)
    places: dict[Pair, set[int]] = defaultdict(set)
    for index, word_pieces in enumerate(cuts):
        for pair in pairwise(word_pieces):
            frequency[pair] += counts[words[index]]
            places[pair].add(index)
    known_pieces = set(pieces)
    heap = [(-count, pair) for pair, count in frequency.items()]
    heapq.heapify(heap)
    while heap and len(pieces) < vocabulary:
        count, pair = heapq.heappop(heap)
        if frequency[pair] != -count:
            continue  # an older count
        merged = pair[0] + pair[1].removeprefix("##")
        if merged not in known_pieces:
            known_pieces.add(merged)
            pieces.append(merged)
        changed: set[Pair] = set()
        for index in places.pop(pair):
            word_pieces, times = cuts[index], counts[words[index]]
            for old in pairwise(word_pieces):
                frequency[old] -= times
                changed.add(old)
            cuts[index] = word_pieces = _merge(word_pieces, pair, merged)
            for new in pairwise(word_pieces):
                frequency[new] += times
                places[new].add(index)
                changed.add(new)
        for changed_pair in changed:
            if frequency[changed_pair]:
                heapq.heappush(heap, (-frequency[changed_pair], changed_pair))
    return pieces[:vocabulary]


def _merge(pieces: Sequence[str], pair: Pair, merged: str) -> list[str]:
    """The pieces of a word with every occurrence of a pair made one, from the left."""
    new_pieces: list[str] = []
    position = 0
    while position < len(pieces):
        is_pair = tuple(pieces[position : position + 2]) == pair
        new_pieces.append(merged if is_pair else pieces[position])
        position += 2 if is_pair else 1
    return new_pieces


def split_word(word: str, numbers: Mapping[str, int]) -> list[int]:
    """The numbers of a word's pieces; that of the unknown piece alone if it cannot be cut."""
    piece_numbers: list[int] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        stop = len(word)
        while stop > start and prefix + word[start:stop] not in numbers:
            stop -= 1
        if stop == start:
            return [UNKNOWN_PIECE]
        piece_numbers.append(numbers[prefix + word[start:stop]])
        start = stop
    return piece_numbers


def _read_kept(path: Path) -> list[str] | None:
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


# Ratings to train a recommender with.


class Ratings(NamedTuple):
    """Pairs of user and rated item, both `(ratings,)` and numbered from 0, and when they were rated."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    times: NDArray[np.int64]  # seconds
    users_count: int
    items_count: int


def load_movielens() -> Ratings:
    """Return all 100 000 ratings of `movielens-100k`, without stars."""
    table = np.loadtxt(fetch("movielens-100k"), skiprows=1, usecols=(0, 1, 3), dtype=np.int64)
    users, items, times = np.ascontiguousarray(table.T)
    return Ratings(users - 1, items - 1, times, int(users.max()), int(items.max()))
