"""ECMP (equal-cost multi-path): which of several equal links a flow takes.

A flow has a key, and every node chooses among its equal links by a hash of the key and its own number. Real
switches hash the addresses and ports of a packet, each switch with a seed of its own (RFC 2992 analyses such
hashes). So do these, and choices in a row do not depend on each other: among switches that share one hash
function they would, and leave most links unused ("hash polarisation"). The hash is SplitMix64 (Steele, Lea
and Flood, OOPSLA 2014), as in `kernels/keyed_random.py`. Compiled code calls `flow_key` and `way_of`;
Python calls their twins, which return the same.
"""

from __future__ import annotations

import numpy as np

from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import Integer, mix, mix_plain, splitmix64, splitmix64_plain

SWITCHES = -1
"""End of a flow that stands for the switches of its job."""
TURNS = 840
"""A number that all numbers up to 8 divide."""


@kernel
def flow_key(seed: Integer, job: Integer, source: Integer, target: Integer, channel: Integer) -> np.uint64:
    # A key has 31 bits. Answers are a flow of their own, with the ends exchanged. Modulo `TURNS` a key is
    # source + target + channel, so flows take the ports of their server in turn.
    draw = mix(seed, rng_streams.FLOW_ROUTE, job, source, target, channel) >> np.uint64(34)
    turn = np.uint64(source + target + channel + TURNS) % np.uint64(TURNS)
    return draw - draw % np.uint64(TURNS) + turn


def flow_key_plain(seed: int, job: int, source: int, target: int, channel: int = 0) -> int:
    # `source` and `target` are workers, then servers, of a job, so networks that are compared share keys.
    # `channel` counts the connections of the two, from 0.
    draw = mix_plain(seed, rng_streams.FLOW_ROUTE, job, source, target, channel) >> 34
    return draw - draw % TURNS + (source + target + channel) % TURNS


def planned_key(number: int) -> int:
    # Negative keys are not hashed: every node takes way `number mod count`, as in a planned tree.
    return -1 - number


@inlined
def way_of(key: int, node: int, ways: int) -> np.uint32:
    # At the ports of the server that sends, `ways` is negative: its flows take these in turn, as collectives
    # put one channel after the other on a server's network cards. Servers on the way hash.
    if key < 0:
        return np.uint32(-1 - key) % np.uint32(abs(ways))
    if ways < 0:
        return np.uint32(key) % np.uint32(-ways)
    return np.uint32(splitmix64(np.uint64(key) << np.uint64(32) | np.uint64(node)) % np.uint64(ways))


def way_of_plain(key: int, node: int, ways: int) -> int:
    """Plain-Python twin of `way_of`."""
    number = -1 - key if key < 0 else key if ways < 0 else splitmix64_plain(key << 32 | node)
    return number % abs(ways)
