"""How a message of each merge travels, and how its merged words come about.

All merge in rank order, as the simulator's `all_gather` does, where the order matters:

* sums of integers, unions and maxima by an all-reduce where the backend has one (any order, same bits);
* other words that are merged one by one in shares: every worker merges one share of all messages, and the
  merged shares are gathered (twice the words of a message on the way, whatever the number of workers);
* signs, host merges and messages that cannot be merged are gathered whole, and every worker merges them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Request, Server
from netfold.homomorphic.fold import answered
from netfold.homomorphic.merge import gathered, merge_all, merged_message, unchanged_by
from netfold.homomorphic.message import COUNTER_BITS, SUMS, WORD_BITS, Merge, Merged, Message, Words
from netfold.torch.wire import Wire

_ALL = frozenset({Merge.GATHER, Merge.HOST})  # every message has a say, even one without words


def is_carried(message: Message) -> bool:
    """Whether a message travels; one that can be merged and has no words anywhere does not."""
    return message.merge in _ALL or message.size > 0


def carry(
    wire: Wire, message: Message, sizes: list[int], key: int, server: Server | None, request: Request
) -> Merged:
    """Exchange a message of all workers.

    Parameters
    ----------
    message
        This worker's.
    sizes
        Words that each worker sends; 0: it is absent, where messages can be merged.
    key
        Of random draws.
    server
        The codec's part that answers GATHER messages, if it has one.
    request
        What that is asked.
    """
    if not is_carried(message):
        return merged_message([message] * wire.workers)
    if message.merge is Merge.GATHER:
        parts = wire.gather(message.words, sizes)
        return gathered(parts) if server is None else answered(server, parts, request)
    is_present = [size > 0 or message.merge in _ALL for size in sizes]
    present = None if all(is_present) else np.array(is_present)
    if not any(is_present):
        return Merged(unchanged_by(message.merge, message.merged_size), 0, present=present)
    if (lanes := _lanes(wire, message)) is not None:
        merge = Merge.ADD if message.merge in SUMS else message.merge
        words: Words = wire.all_reduce(lanes, merge).view(message.merge.dtypes[-1])
    elif message.merge in (Merge.SIGN, Merge.HOST):
        parts = wire.gather(message.words, sizes)
        words = _merged(
            message, [part for part, is_there in zip(parts, is_present, strict=True) if is_there], key
        )
    else:
        words = _merged_in_shares(wire, message, is_present, key)
    return Merged(words, sum(is_present), present=present)


def _lanes(wire: Wire, message: Message) -> NDArray[np.int32] | NDArray[np.int8] | None:
    """What an all-reduce takes of a message; None if none can merge it."""
    is_sum = message.merge in SUMS and not message.has_codes
    if (Merge.ADD if is_sum else message.merge) not in wire.reduces:
        return None
    words = unchanged_by(message.merge, message.size) if message.is_absent else message.words
    lanes = np.ascontiguousarray(words).view(np.int32)
    if message.lane_bits in (WORD_BITS, COUNTER_BITS):
        return lanes
    return lanes.view(np.int8) if message.lane_bits == 8 else None


def _merged_in_shares(wire: Wire, message: Message, is_present: list[bool], key: int) -> Words:
    """Every worker merges its share of the words, in rank order; then all get all shares."""
    ends = [message.size * rank // wire.workers for rank in range(wire.workers + 1)]
    parts = wire.scatter_shares(message.words, ends, is_present)
    share = _merged(message, parts, key)
    sizes = [(end - begin) * message.merged_words for begin, end in pairwise(ends)]
    return np.concatenate(wire.gather(share, sizes))


def _merged(message: Message, parts: list[Words], key: int) -> Words:
    return merge_all(message.merged_by, parts, key, message.table, message.lane_bits)
