"""Pictures for convolutional networks: grey images as planes, and crops of photos."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.training.data.fetch import fetch_all
from netfold.sim.workload.training.data.images import Images, load_images
from netfold.sim.workload.workload import keyed

_TEST_SHARE = 6  # of a photo's width: one in so many columns
_TRAINED = 500  # crops of a photo
_MEAN, _DEVIATION = 0.5, 0.25  # of a photo's values in [0, 1], about
_GREYS = {  # mean and standard deviation of values in [0, 1]: usual ones of MNIST and Fashion-MNIST
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
        """The class of each."""
        return self.images.labels

    @property
    def tested(self) -> NDArray[np.int64] | None:
        """Those of the test part."""
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
        found = np.empty((len(samples), 3, side, side), np.float32)
        for place, sample in enumerate(samples.tolist()):
            row, column = self._places[sample].tolist()
            photo = self._photos[self.labels[sample]]
            found[place] = photo[row : row + side, column : column + side].transpose(2, 0, 1)
        found /= np.float32(255)
        found -= np.float32(_MEAN)
        found /= np.float32(_DEVIATION)
        return found


def load_pictures(name: str, channels: int, side: int) -> Images:
    """Return the pictures of a data set, `(samples, channels, side, side)`; photos have 3 channels."""
    if name != "photos":
        return Planes(load_images(name, 28 * 28), channels, side, *_GREYS[name])
    return Crops(load_photos(), side, _TRAINED, tested=100 if side <= 32 else 10)


def load_photos() -> list[NDArray[np.uint8]]:
    """Return the photos of `photos`, `(height, width, 3)`, in the order of their names."""
    return [_pixels(path) for _, path in sorted(fetch_all("photos").items())]


def _pixels(path: Path) -> NDArray[np.uint8]:
    from PIL import Image  # late: only photos need it. matplotlib requires it

    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))
