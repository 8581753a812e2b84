"""Who contributed to a message, as its results say, compared with who sent words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Merged, Message
from netfold.sim.checks.rounds.results import MessagePlace, Result
from netfold.sim.engine.interface import MEMBERS_MAX


def check_members(place: MessagePlace, sent: Sequence[Message], results: Sequence[Result], kind: str) -> None:
    """Count all words of a result as wrong, in the named tally, if it claims other contributors than sent.

    Unless it has wrong words already.
    """
    has_words = np.array([not message.is_absent for message in sent])
    for result in results:
        tally = getattr(result, kind)
        if not tally.count and (claim := _wrong_claim(result.merged, has_words)):
            wrong = result.wrong_word(place, 0, (None, None), claim=claim)
            tally.add(max(1, result.merged.words.size), wrong)


def _wrong_claim(merged: Merged, has_words: NDArray[np.bool_]) -> str:
    """What a result wrongly says of its contributors; empty if it is right."""
    if merged.is_mixed:
        return "parts of it claim different contributors"
    right = has_words
    if merged.holders is not None:
        held = int(np.bitwise_or.reduce(merged.holders.bitmaps, initial=np.uint32(0)))
        right = np.array([bool(held >> rank & 1) for rank in range(has_words.size)])
        if (right & ~has_words).any():
            return f"it claims words of {_listed(right & ~has_words)}, who sent none"
    if merged.workers != right.sum():
        return f"it claims {merged.workers} contributors, {right.sum()} sent words"
    if merged.present is None:
        return "" if right.all() or right.size > MEMBERS_MAX else "it does not say who contributed"
    if np.array_equal(merged.present, right):
        return ""
    return f"it claims words of {_listed(merged.present)}; they were sent by {_listed(right)}"


def _listed(workers: NDArray[np.bool_]) -> str:
    return "workers " + (", ".join(map(str, np.flatnonzero(workers))) or "none")
