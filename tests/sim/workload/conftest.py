from collections.abc import Iterator

import pytest

from netfold.sim.workload import data_readers as text
from netfold.sim.workload import data_readers as wordpiece
from netfold.sim.workload.data_readers import (
    Digits,
    Ratings,
    load_digits,
    load_large_digits,
    load_mnist,
    load_movielens,
)


@pytest.fixture(scope="session")
def movielens() -> Ratings:
    """The real ratings, through pip unless this machine has them already."""
    return load_movielens()


@pytest.fixture(scope="session")
def digits() -> Digits:
    """The real images, likewise."""
    return load_digits()


@pytest.fixture(scope="session")
def large_digits() -> Digits:
    """The real images at 28 by 28 pixels, likewise."""
    return load_large_digits()


@pytest.fixture(scope="session")
def mnist() -> Digits:
    """The real part of MNIST, likewise."""
    return load_mnist()


@pytest.fixture(scope="module")
def short_text() -> Iterator[None]:
    """Models of text see a fiftieth of it, as it takes seconds to find all of its words."""
    kept = text.load_text("shakespeare")[:200_000]
    with pytest.MonkeyPatch.context() as patch:
        for module in (text, wordpiece):
            patch.setattr(module, "load_text", lambda name: kept)
        _forget_tokens()
        yield
    _forget_tokens()


def _forget_tokens() -> None:
    for load in (text.load_words, text.load_characters, wordpiece.load_pieces):
        load.cache_clear()
