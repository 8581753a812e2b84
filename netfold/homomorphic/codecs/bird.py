"""Codec `bird`: rows sampled by their norm, as signs with one scale for each layer.

Wu et al., "BIRD: a lightweight and adaptive compressor for communication-efficient distributed learning using
tensor-wise bi-random sampling", ICCD 2023, as its authors' prototype does it (wudonglei99/BIRD). Two things
differ. The prototype compresses the change of a model over an epoch; this codec gets gradients. And the
prototype's norm is L2, with which the expected L1 norm of a row is too large, unless all its magnitudes are
equal; L1 keeps it, as the paper's expectation invariance says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from netfold.homomorphic.codec import Origin
from netfold.homomorphic.codecs.bird_rows import (
    Down,
    Draws,
    GatheredRows,
    Kept,
    RowGroup,
    norms_of,
    relative,
    sample_rows,
    scale_of,
    thin,
)
from netfold.homomorphic.codecs.topk import check_share, count_of
from netfold.homomorphic.message import Gradient
from netfold.kernels import rng_streams
from netfold.kinds import register


@register
@dataclass(frozen=True)
class Bird(GatheredRows):
    """Random rows of each layer, likelier the larger they are, as signs and one scale; without feedback.

    share: rows that a worker sends at most, of each layer; at least one.
    norm: l1 (a row's expected L1 norm is kept), l2 (the prototype's, which makes it larger).
    down: what a parameter server sends to workers: sum (dense, as published), rows (all messages).
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "bird"
    origin: ClassVar[Origin] = Origin("published", "Wu et al., ICCD 2023, and wudonglei99/BIRD")

    share: float = 0.1
    norm: Literal["l1", "l2"] = "l1"
    down: Down = "sum"

    def __post_init__(self) -> None:
        check_share(self.share, usual=0.1)

    def choose(self, gradient: Gradient, group: RowGroup, workers: int, draws: Draws) -> Kept:
        """Keep each row with its norm over the largest; of those, at most a share of all."""
        norms = norms_of(gradient, group, self.norm)
        rows = sample_rows(relative(norms), draws.key(rng_streams.BIRD))
        limit = count_of(self.share, group.rows)
        rows, factor = thin(rows, limit, draws.key(rng_streams.BIRD_SECOND))
        if not rows.size:
            return Kept(rows, 0.0)
        spread = group.row_elements if self.norm == "l1" else math.sqrt(group.row_elements)
        return Kept(rows, scale_of(float(norms.max()) / spread * factor, workers, group))
