"""Grey images, to train a classifier with."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.training.data.fetch import fetch, fetch_all

_SMALL, _LARGE = 8, 28  # pixels of a side
_GREYS = 16  # of the small images: 0 to 16
_PARTS = 14  # weights of the enlargement are fourteenths


class Digits(NamedTuple):
    """Images `(samples, pixels)` float32 in [0, 1], row by row, and their labels `(samples,)`, 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def tested(self) -> NDArray[np.int64] | None:
        """None: there is no part for tests."""
        return None

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some of the images."""
        return self.images[samples]


class Images(Protocol):
    """Images with labels, made when they are taken."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each, `(samples,)`."""
        ...

    @property
    def tested(self) -> NDArray[np.int64] | None:
        """Those of the data set's own test part, on which nothing is trained; None: it has none."""
        ...

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some of the images, `(samples, …)`, by their numbers."""
        ...


class Greys(NamedTuple):
    """Images `(samples, pixels)` of bytes, and their labels `(samples,)`; the last ones are for tests."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    tested_count: int

    @property
    def tested(self) -> NDArray[np.int64]:
        """The last ones."""
        return np.arange(len(self.labels) - self.tested_count, len(self.labels))

    def take(self, samples: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some of the images, float32 in [0, 1]."""
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
    """Return the 1797 images of `digits`, enlarged to 28 by 28 pixels as `enlarged` says."""
    table = _table("digits")
    return Digits(enlarged(table[:, :-1]), table[:, -1].astype(np.int64))


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
    """Bytes of a file of the MNIST format, without its header."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=start)


def enlarged(images: NDArray[Any]) -> NDArray[np.float32]:
    """Images `(samples, 64)` of whole numbers 0 to 16, as `(samples, 784)` float32 in [0, 1].

    Bilinear, with the usual half-pixel centres: the centre of large pixel i lies at (4 i − 5) / 14 on the
    axis of small pixels, and what lies beyond the outer centres has their value. All weights are whole
    fourteenths, so that sums are exact, and each pixel is rounded once: the same bits on every machine.
    """
    weights = _weights()
    small = images.astype(np.int64).reshape(-1, _SMALL, _SMALL)
    sums: NDArray[np.int64] = weights @ small @ weights.T
    large = (sums / (_GREYS * _PARTS**2)).astype(np.float32)
    return large.reshape(-1, _LARGE**2)


def _weights() -> NDArray[np.int64]:
    """Weights `(28, 8)` of small pixels in large ones, in fourteenths."""
    weights = np.zeros((_LARGE, _SMALL), np.int64)
    for row in range(_LARGE):
        place = min(max(4 * row - 5, 0), _PARTS * (_SMALL - 1))  # of its centre, in fourteenths
        left, share = divmod(place, _PARTS)
        weights[row, left] += _PARTS - share
        if share:
            weights[row, left + 1] += share
    return weights


def _table(name: str) -> NDArray[np.uint8]:
    """Rows of a data set: the pixels of an image, then its label."""
    return np.loadtxt(fetch(name), delimiter=",", dtype=np.float32).astype(np.uint8)
