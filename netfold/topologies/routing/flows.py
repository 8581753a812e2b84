"""Which of several equal links a flow takes: its key, and the choice by it at every node.

Real switches hash the addresses and ports of a packet, each switch with a seed of its own (RFC 2992 analyses
such hashes). So do these. Compiled code calls `flow_key` and `way_of`, Python their twins, which return the
same.
"""

from __future__ import annotations

import numpy as np

from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.homomorphic.kernels.keyed import Integer, mix, mix_plain, splitmix64, splitmix64_plain

SWITCHES = -1  # as an end of a flow: the switches of its job
TURNS = 840  # which all numbers up to 8 divide


@kernel
def flow_key(seed: Integer, job: Integer, source: Integer, target: Integer, channel: Integer) -> np.uint64:
    """The key of a flow, of 31 bits. Its answers are the flow whose ends are exchanged.

    Modulo `TURNS` it is source + target + channel, by which flows take the ports of their server in turn.
    """
    draw = mix(seed, purposes.FLOW_ROUTE, job, source, target, channel) >> np.uint64(34)
    turn = np.uint64(source + target + channel + TURNS) % np.uint64(TURNS)
    return draw - draw % np.uint64(TURNS) + turn


def flow_key_plain(seed: int, job: int, source: int, target: int, channel: int = 0) -> int:
    """Plain-Python twin of `flow_key`.

    `source` and `target` are workers, then servers, of a job, so networks that are compared share keys.
    `channel` counts the connections of the two, from 0.
    """
    draw = mix_plain(seed, purposes.FLOW_ROUTE, job, source, target, channel) >> 34
    return draw - draw % TURNS + (source + target + channel) % TURNS


def planned_key(number: int) -> int:
    """A key by which every node takes way `number mod count`, without a hash: that of a planned tree."""
    return -1 - number


@inlined
def way_of(key: int, node: int, ways: int) -> np.uint32:
    """The number of the way that a key takes at a node with so many.

    They are negative at the ports of the server that sends: its flows take these in turn, as collectives
    put one channel after the other on a server's network cards. Servers on the way hash.
    """
    if key < 0:
        return np.uint32(-1 - key) % np.uint32(abs(ways))
    if ways < 0:
        return np.uint32(key) % np.uint32(-ways)
    return np.uint32(splitmix64(np.uint64(key) << np.uint64(32) | np.uint64(node)) % np.uint64(ways))


def way_of_plain(key: int, node: int, ways: int) -> int:
    """Plain-Python twin of `way_of`."""
    number = -1 - key if key < 0 else key if ways < 0 else splitmix64_plain(key << 32 | node)
    return number % abs(ways)
