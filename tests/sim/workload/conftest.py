import pytest

from netfold.sim.workload.training.data import Digits, Ratings, load_digits, load_movielens


@pytest.fixture(scope="session")
def movielens() -> Ratings:
    """The real ratings, through pip unless this machine has them already."""
    return load_movielens()


@pytest.fixture(scope="session")
def digits() -> Digits:
    """The real images, likewise."""
    return load_digits()
