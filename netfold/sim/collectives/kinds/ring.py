"""Ring all-reduce (Patarasuk and Yuan, JPDC 69(2), 2009)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from netfold.sim.collectives.host_collective import WORD_BYTES, Chunk, HostCollective
from netfold.sim.collectives.host_messages import scheduled
from netfold.sim.collectives.topology_order import Orders, ring_orders
from netfold.sim.collectives.transfers import Step, Transfers
from netfold.sim.engine.engine_data import NONE
from netfold.sim.keys import count_of
from netfold.topologies.network import Network

# In n − 1 reduce-scatter steps every worker sends one segment to the next one, which merges it into its
# own; in n − 1 all-gather steps the finished segments go round. On an idle network with equal links a message
# of M words takes
#
#     2 (1 − 1 / n) · M words at the rate of a link, and 2 (n − 1) ways from host to host.
#
# Channels are rings over different orders of the workers, each with an equal share of the message. Even
# channels go from a worker to the next one in rank order, odd ones back, so that both directions of a link
# between neighbours are used, and no channel leaves a rack more often than the first one does. Channel c
# begins at worker c: a worker's first segments are not all of the same workers.
#
# Pieces of a segment are merged and passed on as they come (NCCL's chunks). The messages of one worker to the
# next on one channel share a window, as on a connection: where the link between them is slower than others,
# they would else wait there for longer than the timeout.
#
# A codec's own merge (HOST) divides the words into a part for each segment of each channel. The length of a
# part may change at every hop, so parts are not cut into chunks. A worker that is absent passes on what
# arrives; a segment to which nobody has contributed yet is a header that keeps its place in the schedule.


CHANNELS_MAX = 1024  # real libraries open some tens; each has transfers of its own in every step


class Ring(HostCollective):
    """Ring all-reduce between the hosts: reduce-scatter, then all-gather."""

    kind: Literal["ring"]
    channels: count_of(1, most=CHANNELS_MAX) = 1  # type: ignore[valid-type]
    """Rings that carry an equal share each; every other one goes backward, and each begins one worker on."""
    chunk: Chunk | None = None
    """Payload of a segment that a host receives before it merges or forwards it; by default all of it."""

    order: Literal["rank", "topology"] = "rank"
    """Who follows whom: by rank, or by the topology: rack by rack, or island by island. Islands are then left
    and entered on the same rail, another one for each channel: use as many channels as there are rails."""

    def orders(self, network: Network, nodes: Sequence[int]) -> Orders:
        """One for each channel."""
        return ring_orders(network, nodes, self.channels) if self.order == "topology" else ()

    @property
    def path_in_words(self) -> str:
        """Where words are."""
        return "around the ring"

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """Cell (c · n + i) · pieces + k is piece k of segment i of channel c."""
        pieces = 1
        if self.chunk is not None and not by_codec:
            chunk_words = self.chunk // WORD_BYTES
            pieces = max(1, -(-words // (self.channels * workers * chunk_words)))
        return Transfers(workers, self.channels * workers * pieces, self._steps(workers, pieces))

    def _steps(self, workers: int, pieces: int) -> Iterator[Step]:
        shape = (self.channels, workers, pieces)
        channel, hop, piece = np.indices(shape).reshape(3, -1)
        forward = 1 - 2 * (channel % 2)
        source, target = (channel + forward * hop) % workers, (channel + forward * (hop + 1)) % workers
        size = channel.size
        number, is_first = np.arange(size), piece == 0
        # The source got what it sends from the place before it, and a target takes in piece after piece.
        received = np.where(hop > 0, number - pieces, number + (workers - 1) * pieces)
        for step in range(2 * (workers - 1)):
            segment = (hop - step) % workers
            last = number + pieces - 1 - size if step else np.full(size, NONE)
            yield Step(
                source,
                target,
                (channel * workers + segment) * pieces + piece,
                merges=step < workers - 1,
                waits=received + (step - 1) * size if step else NONE,
                follows=np.where(is_first, last + step * size if step else NONE, number + step * size - 1),
                channel=channel,
                name=(step * self.channels + channel) * pieces + piece,
            )


RING = scheduled(Ring, listed=1)
