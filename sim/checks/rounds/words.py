"""Compare merged words with the words that were sent, message by message and slice by slice.

Integers must equal the sum, union or maximum bit for bit; floats must be within the error of float32
additions in any order. Workers that are absent do not count. A result that claims other contributors than
those who sent words is wrong. An array that several workers share is examined once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netfold.homomorphic.kernels.comparison import count_differing, identity
from netfold.homomorphic.message import ORDER_FREE, Merge, Merged, Message
from netfold.sim.checks.rounds.floats import check_floats
from netfold.sim.checks.rounds.integers import check_integers
from netfold.sim.checks.rounds.members import check_members
from netfold.sim.checks.rounds.results import MessagePlace, Result, Tallies, distinct, slices
from netfold.sim.engine.interface import Overflow


def check_message(
    place: MessagePlace,
    sent: Sequence[Message],
    received: Sequence[Merged],
    overflow: Overflow,
    tallies: Tallies,
) -> None:
    """Compare the results of one message, `received[worker]`, with the words that all workers sent."""
    results = distinct(received)
    merge = sent[0].merge
    if merge is Merge.GATHER:
        for result in results:
            _check_gathered(place, sent, result)
    elif merge is Merge.FLOAT_ADD:
        check_floats(place, [message.words for message in sent], results, sent[0].size)
        tallies.float_words += len(received) * sent[0].size
        tallies.is_integer = False
    elif merge in ORDER_FREE:
        check_integers(place, sent, results, overflow)
        mixed = [result for result in results if _has_floats(result.merged)]
        for result in mixed:
            assert result.merged.is_float is not None
            tallies.float_words += len(result.workers) * int(np.count_nonzero(result.merged.is_float))
        if mixed:
            floats = [message.floats for message in sent if message.floats is not None]
            assert len(floats) == len(sent), f"worker without floats of '{place.label}'"
            check_floats(place, floats, mixed, sent[0].size)
            tallies.is_integer = False
    else:  # SIGN: the surviving bit is random
        tallies.is_integer = False
    if merge is not Merge.GATHER:  # where the parts say it
        check_members(place, sent, results, "wrong_floats" if merge is Merge.FLOAT_ADD else "wrong")
    for name in ("wrong", "clipped", "wrong_floats"):
        found = [(result, getattr(result, name)) for result in results]
        count = sum(tally.count * len(result.workers) for result, tally in found)
        firsts = [tally.first for _, tally in found if tally.first is not None]
        getattr(tallies, name).add(count, min(firsts, key=lambda one: one.worker, default=None))


def _has_floats(merged: Merged) -> bool:
    return merged.is_float is not None and bool(merged.is_float.any())


def _check_gathered(place: MessagePlace, sent: Sequence[Message], result: Result) -> None:
    """Check that every worker's words arrived unchanged."""
    for message, part in zip(sent, result.merged.parts, strict=True):
        if identity(message.words) == identity(part):
            continue
        if message.words.size != part.size:
            word = min(message.words.size, part.size)
            result.wrong.add(max(message.words.size, part.size), result.wrong_word(place, word, (None, None)))
            continue
        for own in slices(part.size):
            found, right = part[own.merged].view(np.int32), message.words[own.merged].view(np.int32)
            count = count_differing(found, right)
            if count:
                word = int(np.argmax(found != right))
                values = int(found[word]), int(right[word])
                result.wrong.add(count, result.wrong_word(place, own.first + word, values))
