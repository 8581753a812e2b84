"""The schedule of the ring (Patarasuk and Yuan, JPDC 2009), with channels and chunks.

In n − 1 reduce-scatter steps every worker sends one segment to the next one, which merges it into its own; in
n − 1 all-gather steps the finished segments go round.

Channels are rings over different orders of the workers, each with an equal share of the message. Even
channels go from a worker to the next one in rank order, odd ones back, so that both directions of a link
between neighbours are used, and no channel leaves a rack more often than the first one does. Channel c begins
at worker c: a worker's first segments are not all of the same workers.

Pieces of a segment are merged and passed on as they come (NCCL's chunks). The messages of one worker to the
next on one channel share a window, as on a connection: where the link between them is slower than others,
they would else wait there for longer than the timeout.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from netfold.sim.collectives.building.transfers import Transfers
from netfold.sim.engine.schedule import NONE, Schedule


@lru_cache(maxsize=16)
def ring_schedule(workers: int, channels: int = 1, pieces: int = 1) -> Schedule:
    """The ring of so many workers; T = 2 (n − 1) · n · channels · pieces transfers.

    Cell (c · n + i) · pieces + k is piece k of segment i of channel c.
    """
    n, each = workers, channels * workers * pieces
    if n == 1:
        return Transfers(1, channels * pieces).schedule()
    step, channel, place, piece = (
        one.ravel()
        for one in np.meshgrid(
            *(np.arange(count) for count in (2 * (n - 1), channels, n, pieces)), indexing="ij"
        )
    )
    is_forward = channel % 2 == 0
    source, target = ((channel + np.where(is_forward, at, -at)) % n for at in (place, place + 1))
    # In reduce-scatter step s, place p sends segment p − s; in all-gather step s, segment p + 1 − s.
    segment = np.where(step < n - 1, place - step, place - step + n) % n
    number = np.arange(each * 2 * (n - 1), dtype=np.int64)
    before = np.where(piece > 0, number - 1, np.where(step > 0, number - each + pieces - 1, NONE))
    transfers = Transfers(n, each)
    transfers.add(
        (source, target),
        ((channel * n + segment) * pieces + piece, 1),
        merges=step < n - 1,
        follows=before,
        lane=channel * n + place,
    )
    previous = np.where(place > 0, number - each - pieces, number - each + (n - 1) * pieces)
    later = step > 0
    transfers.wait(number[later], previous[later])
    return transfers.schedule((step * channels + channel) * pieces + piece, channel)
