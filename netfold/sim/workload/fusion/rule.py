"""The contract of a rule of fusion."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from netfold.errors import NetfoldError
from netfold.sim.keys.section import Section
from netfold.sim.workload.layers import Layer

Partition = tuple[tuple[int, ...], ...]  # for each bucket the places of its layers in the list of layers


class FusionError(NetfoldError):
    """Layers that a rule cannot divide into buckets; `key` is the key of its section that is at fault."""

    def __init__(self, key: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.args = (key, message, hint)  # what pickle calls __init__ with
        self.key = key


class Fusion(ABC):
    """A rule that divides layers into buckets: a frozen dataclass whose fields are its options.

    A rule that weighs the costs of encoding and sending is a `Weighing` (`weighing.py`).
    """

    title: ClassVar[str] = "a rule of its own"  # what the report calls it

    @abstractmethod
    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Divide layers, given in gradient-ready order; every layer is in exactly one bucket.

        A bucket may hold any layers: it is ready when its last one is. The order of buckets does not matter.

        Raises
        ------
        FusionError
            The rule's options do not fit these layers, or it has not got what it weighs.
        """

    @property
    def outline(self) -> Fusion:
        """A rule with as many buckets as this one may make, and a full one as large, for estimates."""
        return self

    def piece_elements(self, elements: int) -> int:
        """Elements of the equal pieces of a gradient that is one vector, of whose layers nothing is known."""
        return elements

    def full_elements(self, layers: Sequence[Layer]) -> int:
        """Elements of a full bucket: of the largest, unless the rule has a size of its own."""
        return max(sum(layers[index].elements for index in members) for members in self.partition(layers))


class FusionSection(Section, ABC):
    """The keys of a rule in a scenario; the first is `kind`, a literal."""

    kind: str

    @abstractmethod
    def rule(self) -> Fusion:
        """The rule with these options."""
