"""No encoding: the gradient itself, added in float32 wherever messages meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.codec import Exchange, Gradient, Merge, Message, Round, Work, register


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

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Of n − 1 float32 additions."""
        return FloatAddBound(len(gradients))


class UncompressedEncoder:
    """One worker's side: a single message."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the gradient, return the merged words, read-only, as other workers may share them."""
        decode_work = Work(gradient.nbytes, gradient.nbytes)
        (merged,) = yield (Message(gradient, Merge.FLOAT_ADD, "values", decode_work=decode_work),)
        decoded: Gradient = merged.words.view()
        decoded.flags.writeable = False
        return decoded
