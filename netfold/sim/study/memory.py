"""Refuse a study that does not fit the available memory, before gradients are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from netfold.errors import NetfoldError
from netfold.sim.memory.available import BASE_BYTES, UPPER_BYTES, Footprint, available_bytes, size_text
from netfold.sim.study.options import NamedCodec
from netfold.sim.workload import SyntheticSpec
from netfold.sim.workload.layers import FLOAT_BYTES

_EACH_BYTES = 2 * FLOAT_BYTES  # per element and worker: its gradient and its decoded sum
_SUMS_BYTES = 64  # per element: exact sums, errors and bounds
_HINTED = 0.99  # share of the largest fitting size that a hint names: available memory varies
_NEAR = 0.9  # share of the available memory from which on a codec is measured


class Sampled(Protocol):
    """One kind of gradients."""

    @property
    def sample(self) -> SyntheticSpec:
        """Synthetic gradients of the same kind."""
        ...


class Gradients(Protocol):
    """The gradients of a study."""

    @property
    def cells(self) -> Sequence[Sampled]:
        """All kinds of them."""
        ...

    @property
    def elements(self) -> int:
        """Of each gradient."""
        ...

    @property
    def workers(self) -> int:
        """With a gradient each."""
        ...


def refuse_more_than_fits(codecs: Sequence[NamedCodec], gradients: Gradients) -> None:
    """Refuse a study that takes more than the memory available now.

    Raises
    ------
    NetfoldError
        It does, with the estimate, the available memory and the largest size that fits.
    """
    there_is = available_bytes()
    if _bytes(gradients.elements, gradients.workers, Footprint(UPPER_BYTES, UPPER_BYTES)) <= _NEAR * there_is:
        return
    needed = max(
        _bytes(gradients.elements, gradients.workers, one)
        for one in [Footprint(0.0, 0.0), *_footprints(codecs, gradients)]
    )
    if needed > there_is:
        most = int(_HINTED * gradients.elements * (there_is - BASE_BYTES) / (needed - BASE_BYTES))
        raise NetfoldError(
            f"{gradients.elements:,} elements of {gradients.workers} workers take about {size_text(needed)}, "
            f"{size_text(there_is)} of this machine's memory are available",
            f"use {max(0, most):,} elements at most, or fewer workers",
        )


def _footprints(codecs: Sequence[NamedCodec], gradients: Gradients) -> list[Footprint]:
    from netfold.sim.memory.footprint import (  # late: most studies are far from any limit
        codec_footprint,
        sample_of,
    )

    samples = [sample_of(cell.sample) for cell in gradients.cells]
    return [codec_footprint(named.codec, sample) for named in codecs for sample in samples]


def refuse_unread(path: str, shape: Sequence[int], workers: int) -> None:
    """Refuse a file that is too large for a study with any codec, before its values are read.

    Raises
    ------
    NetfoldError
        It is, with the least memory that it takes and the available memory.
    """
    there_is = available_bytes()
    rows = shape[0] if len(shape) > 1 else workers
    needed = _bytes(shape[-1], rows, Footprint(0.0, 0.0))
    if needed > there_is:
        raise NetfoldError(
            f"{path}: {math.prod(shape):,} numbers for {rows} workers take at least {size_text(needed)}, "
            f"{size_text(there_is)} of this machine's memory are available",
            "use a file of fewer workers or elements",
        )


def _bytes(elements: int, workers: int, codec: Footprint) -> float:
    """Peak memory of one codec on one kind of gradients."""
    own = elements * (_EACH_BYTES * workers + _SUMS_BYTES)
    return BASE_BYTES + own + codec.bytes(elements, workers)
