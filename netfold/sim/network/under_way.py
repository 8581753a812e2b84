"""Which packets are on their way, from the tables of the engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.tables.world import FLOW_ACK, FLOW_DATA, World


def packets_of_streams(world: World) -> NDArray[np.int64]:
    """Rows of the packets that are on their way and belong to streams: no messages between hosts."""
    in_use = np.ones(world.packets.size, np.bool_)
    row = int(world.clock[0].packet_free)
    for _ in range(int(world.clock[0].packet_free_count)):
        in_use[row] = False
        row = int(world.packets[row].next)
    kinds = world.packets["kind"]
    return np.flatnonzero(in_use & (kinds != FLOW_DATA) & (kinds != FLOW_ACK))
