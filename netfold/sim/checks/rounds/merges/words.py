"""Compare merged words with the words that were sent, message by message and slice by slice.

Integers must equal the sum, union or maximum bit for bit; floats must be within the error of float32
additions in any order. Workers that are absent do not count. A result that claims other contributors than
those who sent words is wrong. An array that several workers share is examined once. Merges that a codec
brings along (HOST) are judged by `hosts`, and SIGN by `signs`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netfold.homomorphic.merge import unchanged_by
from netfold.homomorphic.message import EXPONENT_MIN, Merge, Merged, Message
from netfold.kernels.words import count_differing, identity
from netfold.sim.checks.rounds.merges.floats import check_floats
from netfold.sim.checks.rounds.merges.integers import check_exponents, check_integers
from netfold.sim.checks.rounds.merges.members import check_members
from netfold.sim.checks.rounds.results import MessagePlace, Result, Tallies, complete, distinct, slices
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
    present = {rank: message for rank, message in enumerate(sent) if not message.is_absent}
    if merge is Merge.GATHER:
        for result in results:
            if result.merged.parts:
                _check_gathered(place, sent, result)
            else:  # a server answered: `hosts.py` compares that
                tallies.is_integer = False
    elif not present:
        _check_nothing(place, sent[0], results)
    elif merge in (Merge.SIGN, Merge.HOST):
        tallies.is_integer = False
    elif merge is Merge.FLOAT_ADD:
        check_floats(place, {rank: message.words for rank, message in present.items()}, results)
        tallies.float_words += len(received) * sent[0].size
        tallies.is_integer = False
    else:
        check_integers(place, present, results, overflow)
        tallies.integer_words += len(received) * sent[0].merged_size
        mixed = [result for result in results if _has_floats(result.merged)]
        for result in mixed:
            assert result.merged.is_float is not None
            tallies.float_words += len(result.workers) * int(np.count_nonzero(result.merged.is_float))
        if mixed:
            floats = {rank: one.floats for rank, one in present.items() if one.floats is not None}
            assert len(floats) == len(present), f"worker without floats of '{place.label}'"
            check_floats(place, floats, mixed)
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


def _check_nothing(place: MessagePlace, message: Message, results: Sequence[Result]) -> None:
    """Check the results of a message that nobody contributed to: words that change no others."""
    right = unchanged_by(message.merge, message.merged_size)
    for result in complete(place, results, right.size, "wrong"):
        found = result.merged.words
        if count := count_differing(found.view(np.int32), right.view(np.int32)):
            word = int(np.argmax(found != right))
            values = int(found.view(np.int32)[word]), int(right.view(np.int32)[word])
            result.wrong.add(count, result.wrong_word(place, word, values))
    if message.scaling is not None:
        blocks = -(-message.size // message.scaling.block_elements)
        for result in results:
            check_exponents(place, message, np.full(blocks, EXPONENT_MIN, np.int8), result)


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
