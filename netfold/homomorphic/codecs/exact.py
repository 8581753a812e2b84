"""Codec `exact`: dense gradients whose sums are the true ones, correctly rounded."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal
from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Origin, Promise, register
from netfold.homomorphic.index.bits import WORD_ELEMENTS
from netfold.homomorphic.index.members import WorkerBucket, exchange_members, full_support, members_of, report_infinite, word_layout
from netfold.homomorphic.index.membership import check_block_elements
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Scaling, Work
from netfold.homomorphic.numbers import exponents
from netfold.homomorphic.numbers.compact import all_of, block_starts
from netfold.homomorphic.numbers.factor import check_factor, factor_error_bound, factor_sums, factor_words
from netfold.homomorphic.numbers.formats import Values, number_format, number_merges
from netfold.homomorphic.round import Round
import numpy as np
from netfold.homomorphic.codecs.dense import DIGITS_ELEMENTS, Dense, Family


@register
@dataclass(frozen=True)
class DenseExact(Family):
    """Dense gradients whose decoded sums are the true sums, correctly rounded.

    block_elements: elements that share a number of digits; a power of two from 64 to 65536.
    """

    kind: ClassVar[str] = "exact"
    origin: ClassVar[Origin] = Origin("ours", "")

    block_elements: int = DIGITS_ELEMENTS

    def __post_init__(self) -> None:
        _ = self.setting  # rejects values out of range

    @property
    def setting(self) -> Dense:
        """Values exact."""
        return Dense("exact", self.block_elements)
