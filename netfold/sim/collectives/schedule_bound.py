"""The least time that a collective's own schedule takes on its own paths: no run of it is faster.

Two things bound it: what its links must carry, and its longest chain of transfers of which each waits for
the one before. A link is not busy before the first of its packets can reach it, and its last packet must
still get to where it is needed; so the times before and after are added to what it carries. A transfer of
more packets than a window waits for acknowledgements, one round trip for every full window.

Nothing is said of the order in which packets of different flows leave a link. A run, whose links are first
come, first served, may so be slower than another order of the same transfers would be.

Bytes are those of the job's packets, with headers and without acknowledgements. Where packets of a flow
choose among paths, only links count that are on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.schedule_costs import Routed
from netfold.sim.collectives.transfers import Ints, Step, Transfers, cell_ends, equal_cuts
from netfold.sim.engine.engine_data import NONE, Frame, Job, Sender
from netfold.sim.plan.idle_network import job_traffic
from netfold.topologies.network import Network, equal_shares
from netfold.topologies.routing import Steering
from netfold.units import PS_PER_S

TRANSFERS_MAX = 300_000
"""Transfers of a schedule whose chains are followed, at most: more take memory and time."""
_ON_ALL_PATHS = 1 - 1e-9  # share of a flow's packets
_BYTE_PS = 8 * PS_PER_S
Doubles = NDArray[np.float64]


class ScheduleBound(NamedTuple):
    """The least times of one message of every worker, where all begin at time 0; L links, W workers."""

    busy_ps: Doubles
    """(L,) How long each link is busy."""
    before_ps: Doubles  # (L,) until its first packet can reach it; infinite where it has none
    after_ps: Doubles  # (L,) from when its last packet has left it until the end
    ends_ps: Doubles
    """(W,) When each worker can have the result, by the longest chain of transfers."""


BoundOf = Callable[[int], ScheduleBound | None]
"""The bound of messages of so many words; None: there is none."""


class _Sizes(NamedTuple):
    """Transfers on the wire, (T,) each; of a schedule in pieces, those of all pieces or of the smallest."""

    all_bytes: Doubles
    packets: Doubles
    """Of all pieces."""
    piece_packets: Ints
    piece_bytes: Doubles
    last_bytes: Doubles  # of the piece's last packet


def _sizes_of(frame: Frame, words: Ints, pieces: int) -> _Sizes:
    """Of transfers with so many words in all pieces, which differ by one word at most."""
    piece_words, header_bytes = words // pieces, frame.overhead_bytes
    piece_packets = np.maximum(1, -(-piece_words // frame.elements))
    packets = np.maximum(pieces * piece_packets, -(-words // frame.elements))
    last_words = piece_words - (piece_packets - 1) * frame.elements
    return _Sizes(
        4.0 * words + packets * header_bytes,
        packets.astype(np.float64),
        piece_packets,
        4.0 * piece_words + piece_packets * header_bytes,
        4.0 * last_words + header_bytes,
    )


def host_bound_of(schedule: Callable[[int], Transfers], routed: Routed, sender: Sender) -> BoundOf:
    """The bound of messages that are sent so by this schedule, made for so many words."""
    known: dict[int, ScheduleBound | None] = {}
    if routed.outline.transfers > TRANSFERS_MAX or not routed.paths:
        return lambda words: None
    flows = _Flows(routed, sender)

    def bound(words: int) -> ScheduleBound | None:
        if words not in known:
            known[words] = _bound_of(schedule(words), words, flows, sender.frame)
        return known[words]

    return bound


def _bound_of(transfers: Transfers, words: int, flows: _Flows, frame: Frame) -> ScheduleBound | None:
    """Follow the chains of one piece forward, then backward; links carry all pieces."""
    steps, pieces = list(transfers.steps), transfers.pieces
    count, flows_count = sum(step.source.size for step in steps), flows.slowest_ps.size
    if count > TRANSFERS_MAX:
        return None
    cuts = transfers.cuts or equal_cuts(transfers.cells)
    edges = cell_ends(cuts, words) if transfers.ends is None else transfers.ends(words)
    sent_bytes, packets = np.zeros((2, flows_count))
    ready_ps, left_ps = np.full((2, flows_count), np.inf)
    ends_ps = np.zeros(transfers.workers)
    done_ps = np.zeros(count + 1)  # of each transfer; the last one is that of NONE
    passed = list[tuple[Ints, Ints, Ints, Doubles]]()
    begin = 0
    for step in steps:
        flow = flows.numbers(step)
        first = pieces * np.asarray(step.first)
        carried = np.broadcast_to(edges[first + pieces * np.asarray(step.cells)] - edges[first], flow.shape)
        sizes = _sizes_of(frame, carried, pieces)
        waits = np.atleast_2d(np.broadcast_to(step.waits, np.shape(step.waits) or flow.shape))
        # What is processed before, of earlier steps: of the same step it is not known yet.
        follows = np.broadcast_to(np.where(np.asarray(step.follows) < begin, step.follows, NONE), flow.shape)
        takes_ps = flows.takes_ps(flow, sizes)
        begins_ps = done_ps[waits].max(axis=0)
        end_ps = np.maximum(begins_ps + takes_ps, done_ps[follows])
        done_ps[begin : begin + flow.size] = end_ps
        sent_bytes += np.bincount(flow, sizes.all_bytes, flows_count)
        packets += np.bincount(flow, sizes.packets, flows_count)
        np.minimum.at(ready_ps, flow, begins_ps)
        np.maximum.at(ends_ps, step.target, end_ps)
        passed.append((flow, waits, follows, takes_ps))
        begin += flow.size
    after_ps = np.zeros(count + 1)  # from the end of each transfer to that of the last which waits for it
    for flow, waits, follows, takes_ps in reversed(passed):
        begin -= flow.size
        later_ps = after_ps[begin : begin + flow.size]
        np.minimum.at(left_ps, flow, later_ps)
        np.maximum.at(after_ps, waits, np.broadcast_to(takes_ps + later_ps, waits.shape))
        np.maximum.at(after_ps, follows, later_ps)
    return flows.on_links(ends_ps, sent_bytes, packets, ready_ps, left_ps)


class _Flows:
    """The ways of F flows, with E links altogether."""

    def __init__(self, routed: Routed, sender: Sender) -> None:
        self._network = network = routed.network
        frame, self._window = sender.frame, sender.window
        self._packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
        names = np.array(list(routed.paths), np.int64)
        self._workers = 1 + int(names[:, :2].max())
        keys = self._keys(names[:, 0], names[:, 1], names[:, 2])
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        byte_ps = _BYTE_PS / network.rate_bps
        columns = list[tuple[Ints, Ints, Doubles, Doubles]]()
        times = []
        for number, way in enumerate(routed.paths.values()):
            links, back = (_certain(network, part) for part in (way.outbound, way.back))
            delays_ps = network.delay_ps[links].astype(np.float64)
            reached_ps = np.cumsum(delays_ps) - delays_ps
            columns.append((np.full(links.size, number), links, reached_ps, delays_ps.sum() - reached_ps))
            in_turn_ps, back_ps = byte_ps[links].sum(), byte_ps[back].sum() * frame.ack_bytes
            trip_ps = (
                self._packet_bytes * in_turn_ps + delays_ps.sum() + back_ps + network.delay_ps[back].sum()
            )
            times.append((byte_ps[links].max(initial=0.0), in_turn_ps, delays_ps.sum(), trip_ps))
        # (E,) the flow and the link, and delays: of the way before the link; of the link and after it.
        self._flow, self._link, self._before_ps, self._after_ps = map(
            np.concatenate, zip(*columns, strict=True)
        )
        # (F,) time of a byte on the slowest link and on all in turn, all delays, and until a full packet is
        # acknowledged.
        self.slowest_ps, self._in_turn_ps, self._delays_ps, self._trip_ps = np.array(times).T

    def _keys(self, source: Ints, target: Ints, channel: Ints | int) -> Ints:
        keys: Ints = (channel * np.int64(self._workers) + source) * self._workers + target
        return keys

    def numbers(self, step: Step) -> Ints:
        """(T,) the flow of each transfer."""
        keys = self._keys(step.source, step.target, step.channel)
        numbers: Ints = self._order[np.searchsorted(self._sorted, keys)]
        return numbers

    def takes_ps(self, flow: Ints, sizes: _Sizes) -> Doubles:
        """The slowest link passes all bytes, the others the last packet besides; then come all delays.

        If the window is full, the slowest link passes what is left after full windows; each takes a trip.
        """
        trips, rest = np.divmod(sizes.piece_packets - 1, self._window)
        before_ps = (sizes.piece_bytes - sizes.last_bytes) * self.slowest_ps[flow]
        stalled_ps = trips * self._trip_ps[flow] + rest * self._packet_bytes * self.slowest_ps[flow]
        takes_ps: Doubles = (
            np.maximum(before_ps, stalled_ps)
            + sizes.last_bytes * self._in_turn_ps[flow]
            + self._delays_ps[flow]
        )
        return takes_ps

    def on_links(
        self, ends_ps: Doubles, sent_bytes: Doubles, packets: Doubles, ready_ps: Doubles, left_ps: Doubles
    ) -> ScheduleBound:
        """From what flows send, when they can begin, and what must follow when they have sent all."""
        network, links_count = self._network, self._network.rate_bps.size
        link_bytes = np.bincount(self._link, sent_bytes[self._flow], links_count)
        busy_ps = link_bytes * _BYTE_PS / network.rate_bps
        if network.inside is not None:
            link_packets = np.bincount(self._link, packets[self._flow], links_count)
            busy_ps[: network.inside.packet_ps.size] += (
                link_packets[: network.inside.packet_ps.size] * network.inside.packet_ps
            )
        before_ps, after_ps = np.full((2, links_count), np.inf)
        np.minimum.at(before_ps, self._link, ready_ps[self._flow] + self._before_ps)
        np.minimum.at(after_ps, self._link, left_ps[self._flow] + self._after_ps)
        return ScheduleBound(busy_ps, before_ps, after_ps, ends_ps)


def _certain(network: Network, links: Sequence[int]) -> Ints:
    """Of the links of a flow's way, in order, those that all its packets pass."""
    certain = np.array(links, np.int64)
    if not network.policy.reorders or not links:
        return certain
    source, target = network.link_source[certain], network.link_target[certain]
    if network.policy.steering is Steering.UGAL:  # a packet may go over any other group
        return certain[network.is_host[source] | network.is_host[target]]
    shares = equal_shares(network, int(source[0]), int(target[-1]))
    return certain[[shares[link] >= _ON_ALL_PATHS for link in links]]


# Aggregation in switches: a packet of every worker goes up the tree, and its sum down to all.


def tree_bound_of(network: Network, trees: Sequence[Job]) -> BoundOf:
    """The bound of messages that switches of these trees add up, which have equal shares of the words."""
    if not all(tree.program.is_all_or_nothing and tree.server is None for tree in trees):
        return lambda words: None  # a result may lack workers, or come from a host
    job, load = trees[0], job_traffic(network, *trees).load
    paths = [path for tree in trees for path in job_traffic(network, tree).paths]
    frame, unit_words = job.frame, job.unit_packets * job.frame.elements
    byte_ps = _BYTE_PS / network.rate_bps

    def bound(words: int) -> ScheduleBound | None:
        tree_words = words if len(trees) == 1 else words // unit_words // len(trees) * unit_words
        packets = -(-tree_words // frame.elements)
        if not packets:
            return None  # some trees may have nothing to carry
        sent_bytes = 4 * tree_words + packets * frame.overhead_bytes
        last_bytes = 4 * (tree_words - (packets - 1) * frame.elements) + frame.overhead_bytes
        busy_ps = np.zeros(byte_ps.size)
        for link, streams in load.items():
            busy_ps[link] = streams * (sent_bytes * byte_ps[link] + packets * network.work_ps(link))
        before_ps, after_ps = np.full((2, byte_ps.size), np.inf)
        for way in paths:
            links = np.array([*way.outbound, *way.inside, *way.back], np.int64)
            hops_ps = last_bytes * byte_ps[links] + network.delay_ps[links]
            reached_ps = np.cumsum(hops_ps) - hops_ps
            before_ps[links] = np.minimum(before_ps[links], reached_ps)
            left_ps = hops_ps.sum() - reached_ps - last_bytes * byte_ps[links]
            after_ps[links] = np.minimum(after_ps[links], left_ps)
        # Messages of one operation are one stream: none of them waits for the one before.
        return ScheduleBound(busy_ps, before_ps, after_ps, np.zeros(len(job.hosts)))

    return bound
