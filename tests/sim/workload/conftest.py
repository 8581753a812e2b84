import pytest

from netfold.sim.workload.training.data.images import Digits, load_digits, load_large_digits, load_mnist
from netfold.sim.workload.training.data.ratings import Ratings, load_movielens


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
