"""Merges that only hosts can do, part by part and hop by hop; see `message.HostMerge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netfold.homomorphic.merge import combine, operand
from netfold.homomorphic.message import HostMerge, Merge, Merged, Words


class HostHop(NamedTuple):
    """One host merge among the workers of a message: what `into` holds takes in what `taken` holds."""

    into: int
    taken: int
    key: int  # for keyed random draws


def replay(merge: HostMerge, parts: Sequence[Words], order: Sequence[Sequence[HostHop]]) -> Words:
    """Merge the words of all workers hop by hop: `order[i]` are the hops of part i, in their order.

    A message in one part is neither divided nor joined.

    Raises
    ------
    ValueError
        A hop, or the end, finds a worker merged twice or not at all; or the codec's words are not uint32.
    """
    pieces = [split_host(merge, words, len(order)) for words in parts]
    merged = []
    for index, hops in enumerate(order):
        held = {rank: Merged(own[index], 1) for rank, own in enumerate(pieces)}
        for hop in hops:
            if hop.into == hop.taken or not {hop.into, hop.taken} <= held.keys():
                raise ValueError(f"part {index} merges worker {hop.taken} into {hop.into} out of order")
            held[hop.into] = combine(merge, held[hop.into], held.pop(hop.taken), hop.key)
        if len(held) != 1:
            raise ValueError(f"part {index} leaves out workers: {len(held)} were not merged with each other")
        merged.append(held.popitem()[1].words)
    return join_host(merge, merged)


def split_host(merge: HostMerge, words: Words, count: int) -> list[Words]:
    """A worker's words as `count` parts of a host merge; one part is the whole message."""
    if count == 1:
        return [words]
    parts = merge.split(words, count)
    if len(parts) != count:
        raise ValueError(f"{type(merge).__name__}.split makes {len(parts)} parts, asked for {count}")
    return parts


def join_host(merge: HostMerge, parts: Sequence[Words]) -> Words:
    """The words of a whole message; one part is the whole message."""
    return parts[0] if len(parts) == 1 else operand(Merge.HOST, merge.join(parts))
