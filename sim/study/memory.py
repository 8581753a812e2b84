"""Whether a study fits the memory that there is, found before gradients are drawn."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import NetfoldError
from sim.memory import BASE_BYTES, UPPER_BYTES, Footprint, available_bytes, size_text
from sim.study.options import NamedCodec
from sim.study.source import Source
from sim.workload.workload import FLOAT_BYTES

_EACH_BYTES = 2 * FLOAT_BYTES  # per element and worker: its gradient, and what it decoded
_SUMS_BYTES = 64  # per element: exact sums, errors and bounds
_NEAR = 0.9  # share of what is available from which on a codec is measured


def refuse_more_than_fits(codecs: Sequence[NamedCodec], source: Source) -> None:
    """Refuse a study that takes more than the memory that is available now.

    Raises
    ------
    NetfoldError
        With the estimate, what there is, and the largest that fits.
    """
    there_is = available_bytes()
    if _bytes(source, Footprint(UPPER_BYTES, UPPER_BYTES)) <= _NEAR * there_is:
        return
    needed = _bytes(source, Footprint(0.0, 0.0))
    if needed <= there_is:
        needed = max(_bytes(source, one) for one in _footprints(codecs, source))
    if needed > there_is:
        most = int(source.elements * (there_is - BASE_BYTES) / (needed - BASE_BYTES))
        raise NetfoldError(
            f"{source.elements:,} elements of {source.workers} workers take about {size_text(needed)}, "
            f"{size_text(there_is)} of this machine's memory are available",
            f"use {max(0, most):,} elements at most, or fewer workers",
        )


def _footprints(codecs: Sequence[NamedCodec], source: Source) -> list[Footprint]:
    from sim.footprint import codec_footprint, sample_of  # late: most studies are far from any limit

    samples = [sample_of(cell.sample) for cell in source.cells]
    return [codec_footprint(named.codec, sample) for named in codecs for sample in samples]


def _bytes(source: Source, codec: Footprint) -> float:
    """What one codec on one kind of gradients takes at its peak."""
    own = source.elements * (_EACH_BYTES * source.workers + _SUMS_BYTES)
    return BASE_BYTES + own + codec.bytes(source.elements, source.workers)
