"""How fast this machine encodes and decodes, for the work that codecs count."""

from __future__ import annotations

from typing import NamedTuple

from netfold.sim.study.measure import run_study
from netfold.sim.study.options import read_codecs
from netfold.sim.study.source import synthetic_source

CODECS = ("fixed_point", "packed", "lossless", "topk", "fp16")  # what is encoded in common
_ELEMENTS, _ROUNDS, _WORKERS, _SEED = "1000000", 3, 2, 1
_DENSITIES = "1%,100%"
_NS_PER_S = 1e9


class CodecRate(NamedTuple):
    """What a codec counts for a gradient, and the time that it takes: the fastest round's."""

    codec: str
    density: float
    counted_bytes: int  # read and written
    time_ns: float

    @property
    def bytes_per_ns(self) -> float:
        """Counted bytes over time."""
        return self.counted_bytes / self.time_ns


def codec_rates() -> list[CodecRate]:
    """Encoding and decoding together, on gradients with few and with many non-zeros: CPU time."""
    source = synthetic_source({"elements": _ELEMENTS, "density": _DENSITIES}, _WORKERS, _SEED)
    found = run_study(read_codecs(list(CODECS)), source, _ROUNDS, _SEED, lambda *_: None)
    return [
        CodecRate(
            one.codec,
            one.density,
            one.encode_bytes + one.decode_bytes,
            (one.encode_s + one.decode_s) * _NS_PER_S,
        )
        for one in found.speeds
    ]


def mean_bytes_per_ns(rates: list[CodecRate]) -> float:
    """Counted bytes of all codecs over the time of all."""
    return sum(one.counted_bytes for one in rates) / sum(one.time_ns for one in rates)
