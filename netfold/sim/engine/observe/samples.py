"""What the network was doing, sample by sample, while somebody waited for it.

A sample is a stretch of simulated time. It has the busy time of its busiest links, and what the senders of
each job were waiting for. It only reads the tables: a run with samples has the same events as one without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.tables.world import (
    DATA,
    DELAYED,
    DOWN,
    FLOW_ACK,
    FLOW_DATA,
    HELD,
    KINDS_AT_ATP_SWITCH,
    LOOP,
    RESULT,
    ROW,
    World,
)

LINKS_MAX = 48  # busiest links that a sample has
OUTSTANDING, DEAD, BLOCKED, SENDERS = range(4)  # columns of `Samples.waiting`
STATES = 4


@dataclass(frozen=True)
class Samples:
    """n samples of a network with L links and J jobs, in order; times in ps.

    Within a sample nothing is known of order. `links` are the busiest ones of each sample, the busiest first;
    of equally busy ones those that were busy longest so far, then by number. −1: none.
    """

    start_ps: NDArray[np.int64]  # (n,)
    end_ps: NDArray[np.int64]  # (n,)
    links: NDArray[np.int32]  # (n, min(L, LINKS_MAX))
    busy_ps: NDArray[np.int64]  # as `links`; a link that is down and has packets is busy
    waiting: NDArray[np.float64]  # (n, J, STATES) means of what was found where the sample begins and ends:
    # units that senders wait for; of these, units of which no packet is on its way; senders that have more
    # to send than their windows allow; senders
    is_steady: NDArray[np.bool_]  # (n,) no stream or flow began or ended in it
    is_empty: NDArray[np.bool_]  # (n,) no packet was on its way at its ends
    sharing: NDArray[np.int32]  # (L,) hosts whose packets were seen on a link; 0 if it was not counted

    @staticmethod
    def none(links_count: int = 0, jobs_count: int = 1) -> Samples:
        """No samples."""
        return Samples(
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros((0, min(links_count, LINKS_MAX)), np.int32),
            np.zeros((0, min(links_count, LINKS_MAX)), np.int64),
            np.zeros((0, jobs_count, STATES)),
            np.zeros(0, np.bool_),
            np.zeros(0, np.bool_),
            np.zeros(links_count, np.int32),
        )


class Seen(NamedTuple):
    """Buffers of a look at the tables, for L links and J jobs."""

    before_ps: NDArray[np.int64]  # (L,) busy time until the look before …
    busy_ps: NDArray[np.int64]  # … and until this one
    links: NDArray[np.int32]  # as a row of `Samples`, as the next two
    links_busy_ps: NDArray[np.int64]
    waiting: NDArray[np.int64]  # (J, STATES)
    owners: NDArray[np.int64]  # job by number of the engine's job
    live: NDArray[np.uint8]  # (engine's jobs + …, units) marks of units, then of flows, that have packets
    hosts: NDArray[np.uint8]  # (L, nodes) hosts whose packets were seen on each link; (L, 0): not counted


@kernel
def look(world: World, seen: Seen, elapsed_ps: int, with_hosts: bool) -> tuple[int, int]:
    """Look at the tables now, `elapsed_ps` after the look before.

    Walking through the packets takes most of the time, so it is only done to mark hosts, `with_hosts`, and
    where something was lost: else every unit that a sender waits for has a packet.

    Returns the packets on their way, and a number that changes when a stream or flow begins or ends.
    """
    read_busy(world, seen, elapsed_ps)
    choose_busiest(seen)
    seen.waiting[:] = 0
    in_flight, lost = count_packets(world)
    if with_hosts or lost > 0:
        seen.live[:] = 0
        mark_packets(world, seen)
    if lost == 0:
        seen.live[:] = 1
    return in_flight, count_streams(world, seen, lost == 0) + count_flows(world, seen)


@kernel
def count_packets(world: World) -> tuple[int, int]:
    """Packets on their way, and packets that were lost so far."""
    in_flight, lost = 0, 0
    for index in range(world.clock[0].links_count):
        link = world.links[index]
        in_flight += on_their_way(link)
        lost += link.lost_packets + link.dropped_packets
    for at in range(world.clock[0].heap_count):
        in_flight += int(world.heap[at].what & ~ROW == HELD)
    return in_flight, lost


@inlined
def on_their_way(link: Any) -> int:
    """Packets that a link has taken, and has neither delivered nor lost."""
    return link.sent_packets - link.delivered_packets - link.lost_packets


@kernel
def read_busy(world: World, seen: Seen, elapsed_ps: int) -> None:
    """Busy time of every link up to now: what it was given to send, without what has not left yet."""
    now_ps = world.clock[0].now_ps
    for index in range(seen.busy_ps.size):
        link = world.links[index]
        before_ps = seen.busy_ps[index]
        if link.buffer_ps == DOWN:
            busy_ps = before_ps + (elapsed_ps if on_their_way(link) > 0 else 0)
        else:
            busy_ps = link.busy_ps - max(0, link.free_at_ps - now_ps)
        seen.before_ps[index] = before_ps
        seen.busy_ps[index] = min(max(busy_ps, before_ps), before_ps + elapsed_ps)


@kernel
def choose_busiest(seen: Seen) -> None:
    """The links that were busy longest since the look before, by insertion into the list of the best."""
    links, links_busy_ps = seen.links, seen.links_busy_ps
    found = 0
    for index in range(seen.busy_ps.size):
        own = seen.busy_ps[index] - seen.before_ps[index]
        if own <= 0 or (found == links.size and own < links_busy_ps[found - 1]):
            continue
        place = found
        while place > 0 and is_busier(seen, index, own, place - 1):
            place -= 1
        if place == links.size:
            continue
        last = min(found, links.size - 1)
        for at in range(last - place):
            links[last - at] = links[last - at - 1]
            links_busy_ps[last - at] = links_busy_ps[last - at - 1]
        links[place] = index
        links_busy_ps[place] = own
        found = last + 1
    for rest in range(links.size - found):
        links[found + rest] = -1
        links_busy_ps[found + rest] = 0


@inlined
def is_busier(seen: Seen, index: int, own_ps: int, place: int) -> bool:
    """Whether a link goes before the one at a place of the list."""
    other_ps = seen.links_busy_ps[place]
    if other_ps != own_ps:
        return bool(other_ps < own_ps)
    return bool(seen.before_ps[seen.links[place]] < seen.before_ps[index])


@kernel
def mark_packets(world: World, seen: Seen) -> None:
    """Mark the units and flows of which a packet is on its way, and the hosts whose packets are on a link.

    Packets that will be lost are on their way until the time of their arrival: their senders cannot know.
    """
    links_count = world.clock[0].links_count
    for lane in range(2 * links_count):
        row = world.links[lane].head
        while row >= 0:
            mark(world, seen, row)
            mark_host(world, seen, row, lane % links_count)
            row = world.packets[row].next
    for at in range(world.clock[0].heap_count):  # packets that are not in line have events of their own
        what = world.heap[at].what
        if what & ~ROW == HELD or what & ~ROW == DELAYED:
            mark(world, seen, what & ROW)


@inlined
def mark(world: World, seen: Seen, row: int) -> None:
    """Mark the unit or flow of a packet."""
    packet = world.packets[row]
    units = seen.live.shape[1]
    if packet.kind == FLOW_DATA or packet.kind == FLOW_ACK:
        seen.live[seen.owners.size + packet.owner // units, packet.owner % units] = 1
    elif packet.owner >= 0:
        seen.live[world.streams[packet.owner].job, packet.unit % units] = 1


@inlined
def mark_host(world: World, seen: Seen, row: int, link: int) -> None:
    """Mark the host that a packet on a link is from or, of results, to."""
    packet = world.packets[row]
    if seen.hosts.size == 0 or packet.owner < 0:
        return
    if packet.kind == FLOW_DATA:
        seen.hosts[link, world.flows[packet.owner].source] = 1
    elif packet.kind == RESULT:
        seen.hosts[link, packet.target] = 1
    elif packet.kind == DATA or packet.kind == LOOP or packet.kind in KINDS_AT_ATP_SWITCH:
        seen.hosts[link, world.streams[packet.owner].host] = 1


@kernel
def count_streams(world: World, seen: Seen, all_live: bool) -> int:
    """Count what the streams of each job wait for; returns a number that changes when one begins or ends."""
    signature = 0
    for row in range(world.streams.size):
        stream = world.streams[row]
        signature += stream.serial * 2 + stream.is_open
        if stream.is_open == 0:
            continue
        owner = seen.owners[stream.job]
        outstanding, dead = 0, 0
        if world.jobs[stream.job].server >= 0:
            for unit in range(stream.base, stream.next):
                if world.places[row, unit % world.places.shape[1]].acknowledged == 0:
                    outstanding += 1
                    dead += 1 - seen.live[stream.job, unit % seen.live.shape[1]]
        elif all_live:  # a window is as full as it can be
            outstanding = min(stream.window, stream.units_count - stream.completed_count)
        else:
            for slot in range(world.jobs[stream.job].window):
                unit = world.windows[row, slot].unit
                if unit >= 0:
                    outstanding += 1
                    dead += 1 - seen.live[stream.job, unit % seen.live.shape[1]]
        seen.waiting[owner, OUTSTANDING] += outstanding
        seen.waiting[owner, DEAD] += dead
        seen.waiting[owner, SENDERS] += 1
        seen.waiting[owner, BLOCKED] += int(stream.units_count > stream.completed_count + outstanding)
    return signature


@kernel
def count_flows(world: World, seen: Seen) -> int:
    """Count the flows whose targets wait; returns a number that changes when one begins or ends."""
    signature, units = 0, seen.live.shape[1]
    for row in range(world.flows.size):
        flow = world.flows[row]
        if flow.is_open == 0 or flow.is_delivered != 0:
            continue
        signature += 3 * flow.serial + 1
        live = seen.live[seen.owners.size + row // units, row % units]
        seen.waiting[flow.job, OUTSTANDING] += 1
        seen.waiting[flow.job, DEAD] += 1 - live
        seen.waiting[flow.job, SENDERS] += 1
        seen.waiting[flow.job, BLOCKED] += int(flow.next < flow.packets_count)
    return signature
