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


@kernel
def flow_key(seed: Integer, job: Integer, source: Integer, target: Integer, channel: Integer) -> np.uint64:
    """The key of a flow, of 31 bits. Its answers are the flow whose ends are exchanged."""
    return mix(seed, purposes.FLOW_ROUTE, job, source, target, channel) >> np.uint64(33)


def flow_key_plain(seed: int, job: int, source: int, target: int, channel: int = 0) -> int:
    """Plain-Python twin of `flow_key`.

    `source` and `target` are workers, then servers, of a job, so networks that are compared share keys.
    `channel` counts the connections of the two, from 0.
    """
    return mix_plain(seed, purposes.FLOW_ROUTE, job, source, target, channel) >> 33


def planned_key(number: int) -> int:
    """A key by which every node takes way `number mod count`, without a hash: that of a planned tree."""
    return -1 - number


@inlined
def way_of(key: int, node: int, ways: int) -> np.uint32:
    """The number of the way that a key takes at a node with so many."""
    if key < 0:
        return np.uint32(-1 - key) % np.uint32(ways)
    return np.uint32(splitmix64(np.uint64(key) << np.uint64(32) | np.uint64(node)) % np.uint64(ways))


def way_of_plain(key: int, node: int, ways: int) -> int:
    """Plain-Python twin of `way_of`."""
    return (-1 - key if key < 0 else splitmix64_plain(key << 32 | node)) % ways
