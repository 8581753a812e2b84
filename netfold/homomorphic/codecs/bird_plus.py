"""Codec `bird_plus`: a reconstruction of BIRD+, which samples rows once and corrects by a Gamma curve.

Wu et al., "BIRD+: design of a lightweight communication compressor for resource-constrained distribution
learning platforms", IEEE TPDS 2024. Only its abstract was read: it names a sampling based on the uniform
distribution and a Gamma correction of tensor-wise sampling. What they are is reconstructed here: a row is
kept if a uniform draw is below (norm / largest norm)^gamma, and one scale for a layer keeps the layer's
expected L1 norm. Other readings of the abstract are options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from netfold.homomorphic.codec import Origin
from netfold.homomorphic.codecs.bird_rows import (
    GAMMA_MAX,
    Down,
    Draws,
    GatheredRows,
    Kept,
    Norms,
    RowGroup,
    correct,
    gamma_for,
    norms_of,
    power_sums,
    relative,
    sample_rows,
    scale_of,
    thin,
)
from netfold.homomorphic.codecs.topk import check_share, count_of
from netfold.homomorphic.message import Gradient
from netfold.kernels import rng_streams
from netfold.kinds import register

_RATIO = 0.1


@register
@dataclass(frozen=True)
class BirdPlus(GatheredRows):
    """Random rows of each layer by a Gamma curve of their norms, without a second sampling.

    ratio: expected rows that a worker sends, of each layer's; left out, 0.1, unless gamma is given. A gamma
        for each layer is found by bisection.
    gamma: exponent of norm / largest norm; 1 samples as bird, more favours large rows, 0 keeps all rows.
    share: rows that a worker sends at most, of each layer, by a second sampling; left out, there is none.
    of: what gamma corrects: norms, values (each magnitude, before they are added up; needs gamma).
    scales: layer (one scale keeps the layer's L1 norm), row (a float16 for each row keeps the row's).
    down: what a parameter server sends to workers: sum (dense), rows (all messages).
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "bird_plus"
    origin: ClassVar[Origin] = Origin("reconstructed", "the abstract of Wu et al., IEEE TPDS 2024")

    ratio: float | None = None
    gamma: float | None = None
    share: float | None = None
    of: Literal["norms", "values"] = "norms"
    scales: Literal["layer", "row"] = "layer"
    down: Down = "sum"

    def __post_init__(self) -> None:
        if self.gamma is not None and self.ratio is not None:
            raise ValueError("gamma and ratio exclude each other: ratio finds a gamma; leave one of them out")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ValueError(f"ratio is {self.ratio}: must be above 0 and at most 1, 0.1 is usual")
        if self.gamma is not None and not 0 <= self.gamma <= GAMMA_MAX:
            raise ValueError(f"gamma is {self.gamma}: must be from 0 to {GAMMA_MAX:.0f}, 2 is usual")
        if self.of == "values" and self.gamma is None:
            raise ValueError("of is 'values': it needs a gamma, for example 2")
        if self.share is not None:
            check_share(self.share, usual=0.1)

    @property
    def has_row_scales(self) -> bool:
        """Whether every row is sent with a scale of its own."""
        return self.scales == "row"

    def probabilities(self, gradient: Gradient, group: RowGroup, norms: Norms) -> Norms:
        """The probability of each row."""
        if self.of == "values":
            assert self.gamma is not None, "checked when the codec was made"
            return self._of_values(gradient, group, self.gamma)
        ratios = relative(norms)
        if self.gamma is not None:
            return correct(ratios, self.gamma)
        wanted = (_RATIO if self.ratio is None else self.ratio) * group.rows
        return correct(ratios, gamma_for(ratios, wanted))

    def _of_values(self, gradient: Gradient, group: RowGroup, gamma: float) -> Norms:
        """Σ|x|^gamma of each row over the largest one; magnitudes are relative to the group's largest."""
        span, row_elements = group.parts()[0]
        values = gradient[span]
        sums = np.zeros(group.rows)
        largest = float(np.abs(values).max(initial=0.0))
        if largest > 0:
            power_sums(values, row_elements, largest, gamma, sums)
        return relative(sums)

    def choose(self, gradient: Gradient, group: RowGroup, workers: int, draws: Draws) -> Kept:
        """Keep each row with its probability; a second sampling only if it is asked for."""
        norms = norms_of(gradient, group, "l1")
        chances = self.probabilities(gradient, group, norms)
        rows, factor = sample_rows(chances, draws.key(rng_streams.BIRD)), 1.0
        if self.share is not None:
            limit = count_of(self.share, group.rows)
            rows, factor = thin(rows, limit, draws.key(rng_streams.BIRD_SECOND))
        if not rows.size:
            return Kept(rows, 0.0, np.empty(0, np.float16) if self.has_row_scales else None)
        if not self.has_row_scales:
            scale = float(norms.sum()) / (group.row_elements * float(chances.sum())) * factor
            return Kept(rows, scale_of(scale, workers, group))
        scales = norms[rows] / (group.row_elements * chances[rows]) * factor
        largest = scale_of(float(scales.max()), workers, group)
        return Kept(rows, largest, (scales / largest).astype(np.float16))
