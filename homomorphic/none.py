"""No encoding: the gradient itself, added in float32 wherever messages meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from homomorphic.codec import Exchange, Gradient, Merge, Message, Round, Work, register


@register
@dataclass(frozen=True)
class Uncompressed:
    """Dense float32 gradients; the sum depends on the order in which the network adds. No options."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "none"
    exact: ClassVar[bool] = False
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD})
    is_linear: ClassVar[bool] = True

    def worker(self, rank: int, workers: int, seed: int) -> UncompressedEncoder:
        """Encoder of one worker; it keeps no state."""
        return UncompressedEncoder()

    def error_bound(self, gradients: Sequence[Gradient]) -> NDArray[np.float64]:
        """Bound of n − 1 float32 additions in any order; infinite where the sum may leave float32.

        (n − 1) · u / (1 − (n − 1) · u) · Σ|x| with u = 2**-24 (Higham, Accuracy and Stability of Numerical
        Algorithms, section 4.2), a little enlarged for the float64 sum it is compared with. Denormal sums are
        exact and need no further term.
        """
        magnitude = np.zeros(gradients[0].size)
        for gradient in gradients:
            magnitude += np.abs(gradient)
        rounding = (len(gradients) - 1) * 2.0**-24
        bound = magnitude * (rounding / (1 - rounding) * (1 + 2.0**-20))
        bound[magnitude >= float(np.finfo(np.float32).max)] = np.inf
        return bound


class UncompressedEncoder:
    """One worker's side: a single message."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the gradient, return a copy of the merged words, which other workers may share."""
        decode_work = Work(gradient.nbytes, gradient.nbytes)
        (merged,) = yield (Message(gradient, Merge.FLOAT_ADD, "values", decode_work=decode_work),)
        decoded: Gradient = merged.words.copy()
        return decoded
