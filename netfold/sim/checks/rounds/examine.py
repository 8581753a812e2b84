"""Compare a finished round with integer and float64 sums of what its workers sent and contributed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.codec import Codec, Decoded
from netfold.homomorphic.fold import check_lock_step
from netfold.homomorphic.message import Gradient, Holders
from netfold.kernels.words import same_bits
from netfold.sim.checks.codec_notes import NOTHING_EXEMPT, Exempt
from netfold.sim.checks.rounds.findings import Findings, Operation
from netfold.sim.checks.rounds.merges.words import check_message
from netfold.sim.checks.rounds.results import MessagePlace, Tallies
from netfold.sim.checks.rounds.sums import Totals, compare
from netfold.sim.engine.interface import Overflow


def examine(
    codec: Codec,
    gradients: Sequence[Gradient],
    decoded: Sequence[Decoded],
    operations: Sequence[Operation],
    exempt: Exempt = NOTHING_EXEMPT,
    overflow: Overflow = Overflow.WRAP,
) -> Findings:
    """Compare what workers received and decoded with the sums of their contributions.

    A result that holds only some workers is compared with the sum of those. `overflow` is what the network
    does with integer sums that leave int32. No buffer as large as a gradient is allocated, and an array that
    workers share is examined once.
    """
    workers = range(len(gradients))
    tallies = Tallies()
    for operation in operations:
        check_lock_step([operation.sent[worker] for worker in workers])
        for part, message in enumerate(operation.sent[0]):
            check_message(
                MessagePlace(operation.number, part, message.label),
                [operation.sent[worker][part] for worker in workers],
                [operation.received[worker][part] for worker in workers],
                overflow,
                tallies,
            )
    totals = [one.total for one in decoded]
    differs = [not same_bits(totals[0], other) for other in totals[1:]]
    contributions = [one.contribution for one in decoded]
    distinct = _to_compare(totals, operations, differs)
    judge = codec.judged_by(decoded[0].is_update)
    found = compare(judge, Totals(gradients, contributions, distinct, tallies.float_words > 0), exempt)
    errors, loss = found.errors, found.loss
    held = _held(operations, len(gradients))
    return Findings(
        wrong_words=tallies.wrong.count,
        is_integer=tallies.is_integer,
        replicas_agree=not any(differs),
        max_bounded_error=errors.bounded,
        max_estimate_error=errors.estimated,
        max_error_over_bound=errors.over_bound,
        worst_element=errors.worst_element,
        nonzeros=loss.nonzeros,
        union_nonzeros=loss.union_nonzeros,
        loss=loss,
        inexact_elements=found.inexact,
        is_far=found.is_far,
        beyond=found.beyond,
        drift=found.drift,
        is_held_back=any(a is not b for a, b in zip(contributions, gradients, strict=True)),
        workers_held_min=held.fewest,
        workers_held_mean=held.mean,
        first_wrong=tallies.wrong.first,
        clipped_words=tallies.clipped.count,
        first_clipped=tallies.clipped.first,
        integer_words=tallies.integer_words,
        float_words=tallies.float_words,
        wrong_floats=tallies.wrong_floats.count,
        first_wrong_float=tallies.wrong_floats.first,
        worst_magnitude=errors.worst_magnitude,
    )


def _to_compare(
    decoded: Sequence[Gradient], operations: Sequence[Operation], differs: Sequence[bool]
) -> list[tuple[Gradient, Holders | None]]:
    """Worker 0's decoded sum and those that differ from it; with the workers that a partial result holds."""
    if not operations or not operations[0].sent[0]:
        holders: list[Holders | None] = [None] * len(decoded)
    else:
        values = operations[0].sent[0][0].lanes_per_word
        found = [operations[0].received[worker][0].holders for worker in range(len(decoded))]
        holders = [_of_elements(one, values) for one in found]
    return [
        (own, held)
        for worker, (own, held) in enumerate(zip(decoded, holders, strict=True))
        if worker == 0 or held is not None or differs[worker - 1]
    ]


def _of_elements(holders: Holders | None, values: int) -> Holders | None:
    """Holders by units of elements, of which a word has several in narrow lanes."""
    return None if holders is None else replace(holders, unit_words=values * holders.unit_words)


class _Held(NamedTuple):
    """How many workers the results of a round hold."""

    fewest: int
    mean: float


def _held(operations: Sequence[Operation], workers: int) -> _Held:
    """Count workers per result; only linear codecs, whose round is one message, get partial results.

    Absent workers count: a result without them lacks nothing.
    """
    found = [
        np.bitwise_count(merged.holders.bitmaps) + sum(own[part].is_absent for own in operation.sent.values())
        for operation in operations
        for received in operation.received.values()
        for part, merged in enumerate(received)
        if merged.holders is not None
    ]
    counts = np.concatenate(found) if found else np.empty(0, np.uint8)
    if counts.size == 0:
        return _Held(workers, float(workers))
    return _Held(int(counts.min()), float(counts.mean()))
