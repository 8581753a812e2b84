"""Rounds of workers that contribute their whole gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netfold.homomorphic.codec import Codec, Decoded
from netfold.homomorphic.message import Gradient
from netfold.sim.checks.rounds import Findings, Operation
from netfold.sim.checks.rounds import examine as examine_decoded


def examine(
    codec: Codec,
    gradients: Sequence[Gradient],
    totals: Sequence[Gradient],
    operations: Sequence[Operation],
    *rest: Any,
    **more: Any,
) -> Findings:
    """The findings on these totals."""
    decoded = [Decoded(total, own) for total, own in zip(totals, gradients, strict=False)]
    decoded += [Decoded(total, gradients[0]) for total in totals[len(gradients) :]]
    return examine_decoded(codec, gradients, decoded[: len(totals)], operations, *rest, **more)
