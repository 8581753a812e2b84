"""The only way to a codec's encoders: every driver makes them here.

So no driver runs a codec that has no room for its workers: such sums would be wrong without an error.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from netfold.homomorphic.codec import Codec, CodecRefusal, EncodeError, Encoder
from netfold.homomorphic.message import LANE_BITS, WORD_MAX

OPTION_MAX = WORD_MAX  # of whole numbers among a codec's options, which become int32 and int64 in kernels


class CodecRefusedError(EncodeError):
    """A codec that cannot serve these workers, or not with these options."""

    def __init__(self, refusal: CodecRefusal) -> None:
        super().__init__(f"{refusal.reason}; use {refusal.remedy}")
        self.refusal = refusal


def _beyond(codec: object) -> CodecRefusal | None:
    """The refusal of an option that is too large, or None."""
    for field in fields(codec) if is_dataclass(codec) else ():
        value = getattr(codec, field.name)
        if isinstance(value, int) and abs(value) > OPTION_MAX:
            reason = f"{field.name} is {value}: must be at most {OPTION_MAX}"
            return CodecRefusal(field.name, reason, f"{field.name}: {OPTION_MAX} or less")
    return None


def refusal_of(codec: Codec, workers: int, overflow: str = "wrap") -> CodecRefusal | None:
    """Why a codec cannot serve these workers, or None; as `Codec.refusal`, which only this calls."""
    if (beyond := _beyond(codec)) is not None:
        return beyond
    if codec.lane_bits not in LANE_BITS:
        *others, last = map(str, LANE_BITS)
        reason = f"codec {codec.kind!r} has sums in lanes of {codec.lane_bits} bits"
        return CodecRefusal("", reason, f"lanes of {', '.join(others)} or {last} bits")
    return codec.refusal(workers, overflow)


def make_encoder(codec: Codec, rank: int, workers: int, seed: int) -> Encoder:
    """The encoder of one worker.

    Raises
    ------
    CodecRefusedError
        The codec cannot serve these workers.
    """
    if (refusal := refusal_of(codec, workers)) is not None:
        raise CodecRefusedError(refusal)
    return codec.worker(rank, workers, seed)


def make_encoders(codec: Codec, workers: int, seed: int) -> list[Encoder]:
    """The encoders of all workers, by rank, as `make_encoder`."""
    return [make_encoder(codec, rank, workers, seed) for rank in range(workers)]
