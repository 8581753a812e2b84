"""Filling and enlarging the engine's tables, between runs of the compiled loop."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine import engine_views
from netfold.sim.engine import tables as rows
from netfold.sim.engine.engine_data import (
    BACKLOG_MAX_PS,
    NONE,
    RULES_MAX,
    Flow,
    Frame,
    Rule,
    Scaled,
    Schedule,
    Segment,
    Sender,
)
from netfold.sim.engine.links import (
    PACKET_BYTES_MAX,
    PS_BYTES,
    first_waiting,
    first_waiting_ack,
    free_packet,
    note_loss,
    reschedule,
    stop,
    waiting_ps,
)
from netfold.sim.engine.loop import HANDLERS
from netfold.sim.engine.tables import (
    DELAYED,
    DOWN,
    LOST,
    NEVER,
    ROW,
    Table,
    World,
    empty_world,
    enlarge,
    records,
)
from netfold.switch import registers
from netfold.switch.programs.atp import ENTRY
from netfold.topologies.network import Network

# Allocate and enlarge the engine's tables; compiled code never does.


def new_world(network: Network, rules: Sequence[Rule], seed: int) -> World:
    """Tables of a network without traffic."""
    nodes = len(network.nodes)
    world = empty_world()._replace(
        heap=records(4 * len(network.link_names) + 64, rows.HEAP),
        links=_links(network, rules),
        rules=_rules(rules),
        chains=records((sum(rule.burst is not None for rule in rules), len(network.link_names)), rows.CHAIN),
        hosts=records(nodes, rows.HOST),
    )
    world = with_routes(world, network)
    clock = world.clock[0]
    clock.seed = seed % 2**64
    clock.is_keyed = int(bool(rules))
    clock.packet_free = -1
    clock.links_count = len(network.link_names)
    clock.handlers = HANDLERS.address
    clock.queue_head = clock.queue_tail = clock.flow_free = clock.lost_ps = -1
    return world


def _links(network: Network, rules: Sequence[Rule]) -> Table:
    count = len(network.link_names)
    links = records(2 * count, rows.LINK)  # the links, then their priority lanes
    buffer_bytes = np.where(network.is_host[network.link_source], 0, network.buffer_bytes)
    packet_ps, message_ps = np.zeros((2, count), np.int64)
    if network.inside is not None:
        packet_ps[: network.inside.packet_ps.size] = network.inside.packet_ps
        message_ps[: network.inside.message_ps.size] = network.inside.message_ps
    about = np.stack([network.rate_bps, buffer_bytes, packet_ps, message_ps], axis=1)
    kinds, which = np.unique(about, axis=0, return_inverse=True)
    templates = records(kinds.shape[0], rows.LINK)
    for link, (rate_bps, size_bytes, *work_ps) in zip(templates, kinds.tolist(), strict=True):
        link.buffer_bytes, link.ecn_bytes = size_bytes, -1
        link.packet_ps, link.message_ps = work_ps
        link.head = link.tail = link.begun = link.begun_order = link.wire_order = -1
        set_rate(link, rate_bps)
    for lane in (links[:count], links[count:]):
        lane[:] = templates[which.reshape(-1)]
        lane["delay_ps"], lane["target"] = network.delay_ps, _targets(network)
    for number, rule in enumerate(rules):
        links["rules"][np.array(rule.links, np.int64)] |= np.uint64(1 << number)
    return links


def _targets(network: Network) -> NDArray[np.int32]:
    """Where links lead: the link out of a host's processor, and the wire to the host, to its card."""
    if network.inside is None:
        return network.link_target
    targets, down_link = network.link_target.copy(), network.tables.fabric.down_link
    hosts = np.flatnonzero(network.inside.send >= 0)
    for number, host in enumerate(hosts.tolist()):
        targets[[network.inside.send[host], down_link[host]]] = len(network.nodes) + number
    return targets


def _cards(network: Network) -> Table:
    """Rows of `nodes` for the cards of hosts whose work takes time."""
    if network.inside is None:
        return records(0, rows.NODE)
    hosts = np.flatnonzero(network.inside.send >= 0)
    cards = records(hosts.size, rows.NODE)
    cards["home"], cards["link"], cards["first_set"] = network.tables.fabric.switches_count, hosts, hosts
    cards["degree"] = -1 - network.inside.receive[hosts]
    return cards


def with_routes(world: World, network: Network) -> World:
    """World with a network's routes, and how they steer packets between hosts."""
    tables, fabric, detours = network.tables, network.tables.fabric, network.detours
    cards, count = _cards(network), len(network.nodes)
    nodes = records(count + cards.size, rows.NODE)
    nodes[count:] = cards
    nodes["home"][:count], nodes["link"][:count] = fabric.home, fabric.down_link
    nodes["first_set"][: fabric.hosts_count] = [
        network.first_link(host) for host in range(fabric.hosts_count)
    ]
    switches = nodes[fabric.hosts_count : count]
    switches["link"], switches["degree"] = fabric.first_link, fabric.degrees
    switches["first_set"] = tables.first_set
    clock = world.clock[0]
    clock.hosts_count, clock.policy = fabric.hosts_count, int(network.policy.steering)
    clock.gap_ps = network.policy.gap_ps
    choice = tables.choice
    if cards.size:  # cards have a row for all of them, which leads nowhere (`links.next_link`)
        choice = np.concatenate([choice, np.zeros((1, fabric.switches_count), choice.dtype)])
    sets = tables.sets.copy()
    owner = np.repeat(np.arange(tables.first_set.size), np.diff(tables.first_set, append=len(sets)))
    sets[np.isin(owner + fabric.hosts_count, [*network.server_ports]), 1] *= -1  # see `links.next_link`
    world = world._replace(nodes=nodes, choice=choice, sets=sets, ports=tables.ports)
    if detours is None:
        return world
    clock.groups_count = detours.groups_count
    return world._replace(
        groups=detours.group, first_entry=detours.first_entry, entries_of_groups=detours.entries
    )


def set_rate(link: Any, rate_bps: int) -> None:
    """Set a link's rate, and its limits as times at that rate."""
    if rate_bps < 1:
        raise ValueError(f"a link's rate is 1 bps or more, found {rate_bps}")
    link.rate_bps = rate_bps
    is_simple = PS_BYTES % rate_bps == 0 and not (link.packet_ps or link.message_ps)
    link.byte_ps = PS_BYTES // rate_bps if is_simple else 0
    link.buffer_ps = BACKLOG_MAX_PS
    if link.buffer_bytes > 0:
        link.buffer_ps = min(BACKLOG_MAX_PS, int(link.buffer_bytes) * PS_BYTES // rate_bps)
    link.ecn_ps = NEVER if link.ecn_bytes < 0 else min(NEVER, int(link.ecn_bytes) * PS_BYTES // rate_bps)


def mark(world: World, sender: Sender) -> None:
    """Let switches mark packets from the backlog on that a sender asks for, unless they do so earlier."""
    for link in world.links[: world.clock[0].links_count] if sender.ecn_bytes >= 0 else ():
        if link.buffer_bytes > 0 and not 0 <= link.ecn_bytes <= sender.ecn_bytes:  # out of a switch
            is_down = link.buffer_ps == DOWN
            link.ecn_bytes = sender.ecn_bytes
            set_rate(link, int(link.rate_bps))
            if is_down:
                link.buffer_ps = DOWN


def _rules(rules: Sequence[Rule]) -> Table:
    if len(rules) > RULES_MAX:
        raise ValueError(f"{len(rules)} fault rules are too many; a network takes {RULES_MAX}")
    table = records(len(rules), rows.RULE)
    chains = 0
    for row, rule in zip(table, rules, strict=True):
        row.threshold = threshold(rule.probability)
        row.from_ps, row.until_ps, row.delay_ps = rule.from_ps, rule.until_ps, rule.delay_ps
        row.fate = int(rule.fate)
        if rule.burst is not None:
            row.chain = chains
            row.threshold_good = threshold(rule.burst.loss_good)
            row.to_bad, row.to_good = threshold(rule.burst.good_to_bad), threshold(rule.burst.bad_to_good)
            row.starts_bad = threshold(rule.burst.bad_share)
            chains += 1
    return table


def threshold(probability: float) -> int:
    # 64 random bits are compared with it.
    return min(2**64 - 1, int(probability * 2.0**64))


def write_flow(world: World, row: int, number: int, flow: Flow) -> None:
    """Fill a flow's row, except its addresses."""
    entry = world.flows[row]
    in_heap = entry.entry_ps, entry.entry_order
    world.flows[row] = np.zeros((), rows.FLOW)
    world.flights["received"][row] = 0
    (entry.entry_ps, entry.entry_order), entry.armed_order = in_heap, -1
    for name in ("key", "words_count", "target", "route", "job"):
        entry[name] = getattr(flow, name)
    rows.write_sender(entry, flow.sender)
    entry.ack_route = flow.route_back
    entry.host, entry.first_link = flow.source, world.nodes[flow.source].first_set
    entry.window = entry.window_max = flow.sender.window
    entry.target_link = world.nodes[flow.target].first_set
    entry.units_count = max(1, -(-flow.words_count // flow.sender.frame.elements))
    entry.serial = number
    entry.schedule, entry.opened_ps = -1, world.clock[0].now_ps


def add_flows(world: World, count: int, window: int) -> World:
    """World with at least `count` flows and windows of `window`; positions in windows do not change."""
    old, clock = world.flows.size, world.clock[0]
    count, columns = max(count, old), max(window, world.flights.shape[1])
    flights = records((count, columns), rows.FLIGHT)
    flights[:old, : world.flights.shape[1]] = world.flights
    flows = enlarge(world.flows, count)
    flows["serial"][old:] = flows["entry_order"][old:] = -1
    if count > old:
        flows["next_free"][old:] = np.append(np.arange(old + 1, count), clock.flow_free)
        clock.flow_free = old
    return world._replace(flows=flows, flights=flights)


def add_job_counter(world: World, job: int) -> World:
    """World that counts what the flows of a job go through."""
    counts = world.flow_counts
    if job < len(counts):
        return world
    return world._replace(flow_counts=np.append(counts, np.zeros((job + 1, counts.shape[1]), np.int64), 0))


def add_packets(world: World, count: int) -> World:
    """World with `count` more free packets."""
    old, clock = world.packets.size, world.clock[0]
    packets = enlarge(world.packets, old + count)
    packets["next"][old:] = np.arange(old + 1, old + count + 1)
    packets["next"][-1] = clock.packet_free
    clock.packet_free = old
    clock.packet_free_count += count
    return world._replace(packets=packets)


def add_payloads(world: World, count: int) -> World:
    """World with `count` more free payloads."""
    old, clock = world.payloads.shape[0], world.clock[0]
    free_count = int(clock.payload_free_count)
    payloads = np.zeros((old + count, world.payloads.shape[1]), np.int32)
    payloads[:old] = world.payloads
    uses = np.zeros(old + count, np.int32)
    uses[:old] = world.payload_uses
    free = np.zeros(old + count, np.int32)
    free[:free_count] = world.payload_free[:free_count]
    free[free_count : free_count + count] = np.arange(old + count - 1, old - 1, -1)
    clock.payload_free_count += count
    return world._replace(payloads=payloads, payload_uses=uses, payload_free=free)


def with_room(world: World, packets_count: int, payloads_count: int) -> World:
    """World with room for the packets and payloads of one event; a table that is too short doubles."""
    clock = np.ndarray.view(world.clock, np.ndarray)[0]  # not a record, whose attributes take Python long
    if clock["packet_free_count"] < packets_count:
        world = add_packets(world, max(packets_count, world.packets.size))
    if clock["payload_free_count"] < payloads_count:
        world = add_payloads(world, max(payloads_count, world.payloads.shape[0]))
    if clock["heap_count"] + packets_count + 8 > world.heap.size:
        world = world._replace(heap=enlarge(world.heap, 2 * world.heap.size + packets_count))
    if clock["done_count"] + 8 > world.done.size:
        world = world._replace(done=enlarge(world.done, 2 * world.done.size))
    if clock["is_logging"] and clock["log_count"] >= world.log.size:
        world = world._replace(log=enlarge(world.log, 2 * world.log.size + 4096))
    return world


def check_sender(sender: Sender) -> None:
    """Reject packets whose time at 1 bps does not fit the clock, and windows that are never acknowledged."""
    if not 1 <= sender.ack_every <= sender.window:
        raise ValueError(f"ack_every must be from 1 to the window, {sender.window}; found {sender.ack_every}")
    check_size(sender.frame)


def check_size(frame: Frame, lanes: int = 1) -> None:
    """Raise ValueError if a packet is too long: its time at 1 bps must fit the clock."""
    size_bytes = max(frame.wire_bytes(lanes * frame.elements, first=True, last=True), frame.ack_bytes)
    if size_bytes > PACKET_BYTES_MAX:
        raise ValueError(f"a packet of {size_bytes}B is too long: {PACKET_BYTES_MAX}B at most on the wire")


def check_words(array: NDArray[Any], dtype: Any, size: int | None = None) -> None:
    """Reject an array that compiled code would misread at its address."""
    if array.ndim != 1 or array.itemsize != 4 or not array.flags.c_contiguous:
        raise ValueError(
            f"words are a contiguous 1-D array of 4-byte items, found {array.dtype} of shape {array.shape}"
        )
    if dtype is not None and array.dtype != dtype:
        raise ValueError(f"words are {np.dtype(dtype).name}, found {array.dtype}")
    if size is not None and array.size != size:
        raise ValueError(f"expected {size} words, found {array.size}")


# Changes of the network at run time: rates, link failures, lost registers (packets-and-links.md).
#
# They are rare, so they are plain Python on the engine's tables.


def change_rate(world: World, link: int, rate_bps: int) -> None:
    """Change a link's rate; what has not left its transmitter continues at the new rate."""
    row = world.links[link]
    is_down = row.buffer_ps == DOWN
    left_ps = waiting_ps(world, link) if is_down else stop(world, link)
    row.backlog_bytes_max = engine_views.backlog_bytes_max(row)
    row.backlog_ps_max = 0
    set_rate(row, rate_bps)
    if is_down:
        row.buffer_ps = DOWN
        row.busy_ps += waiting_ps(world, link) - left_ps
    elif left_ps:
        row.busy_ps += reschedule(world, link) - left_ps


def cut(world: World, link: int) -> None:
    """Take a link down: packets on its wire are lost, other packets wait until it is restored."""
    clock, row = world.clock[0], world.links[link]
    if row.buffer_ps == DOWN:
        return
    lane = int(clock.links_count) + link
    stop(world, link)
    waiting = {link: int(first_waiting(world, link)), lane: int(first_waiting_ack(world, link))}
    for index, first in waiting.items():
        lose_until(world, index, first)
        world.links[index].buffer_ps = DOWN
    row.wire_order = -1
    entries = []
    for entry in world.heap[: clock.heap_count].tolist():
        event_kind, index = entry[2] & ~ROW, entry[2] & ROW
        if event_kind == DELAYED and world.packets[index].link == link:
            lose(world, index)
        elif entry[2] not in waiting:
            entries.append(entry)
    entries.sort()  # a sorted list is a heap
    if entries:
        world.heap[: len(entries)] = np.array(entries, world.heap.dtype)
    clock.heap_count = len(entries)
    row.queued_bytes = sum(int(world.packets[packet].size_bytes) for packet in queue(world, link))
    row.begun_leaves_ps = world.links[lane].free_at_ps = clock.now_ps


def flush(world: World, link: int) -> None:
    """Lose the packets that wait on a link, if it is down."""
    row = world.links[link]
    if row.buffer_ps != DOWN:
        return
    for lane in (link, int(world.clock[0].links_count) + link):
        lose_until(world, lane, -1)
    row.queued_bytes = 0


def kill(world: World, link: int) -> None:
    """Lose what waits on a link that is down, and let it drop what is put on it until it is restored."""
    flush(world, link)
    world.links[link].is_dead = world.links[link].buffer_ps == DOWN


def restore(world: World, link: int) -> None:
    """Bring a link up again; waiting packets go first."""
    row = world.links[link]
    if row.buffer_ps != DOWN:
        return
    set_rate(row, int(row.rate_bps))
    row.is_dead = world.links[int(world.clock[0].links_count) + link].buffer_ps = 0
    reschedule(world, link)


def queue(world: World, link: int) -> list[int]:
    """Packets in line on a link."""
    packets = []
    for lane in (link, int(world.clock[0].links_count) + link):
        packet = int(world.links[lane].head)
        while packet >= 0:
            packets.append(packet)
            packet = int(world.packets[packet].next)
    return packets


def lose_until(world: World, lane: int, first: int) -> None:
    """Lose the packets in line on a link or its lane before a given one; −1: all."""
    row = world.links[lane]
    packet = int(row.head)
    while packet != first:
        following = int(world.packets[packet].next)
        lose(world, packet)
        packet = following
    row.head = first
    if first < 0:
        row.tail = -1


def lose(world: World, packet: int) -> None:
    """Lose a packet that a link has taken, if it is not lost already."""
    if world.packets[packet].struck != LOST:
        row, size_bytes = world.links[world.packets[packet].link], world.packets[packet].size_bytes
        row.lost_packets += 1
        row.lost_bytes += size_bytes
        note_loss(world, packet)
    free_packet(world, packet)


def abandon(world: World, job: int) -> None:
    """Close the streams of a job of slots; what is on its way for them is stale."""
    rows = np.flatnonzero(world.streams["job"] == job)
    world.streams["is_open"][rows] = 0
    world.streams["armed_ps"][rows], world.streams["armed_order"][rows] = NEVER, -1


def clear(world: World, switch: int) -> None:
    """Reset all registers of a switch, and the packet numbers it keeps for workers."""
    world.clock[0].lost_ps = world.clock[0].now_ps
    for number, point in enumerate(world.points):
        if point.switch == switch:
            _clear_point(world, number)
    for server in world.servers:
        if server.switch == switch:
            rows = slice(int(server.entry_base), int(server.entry_base) + int(server.entries))
            world.entries.rows[rows] = np.zeros((), ENTRY)
            world.entries.values[rows] = 0


def release(world: World, job: int) -> None:
    """Reset the slots of a job that has ended, at all its switches. Entries, which jobs share, stay."""
    for number in np.flatnonzero(world.points["job"] == job):
        _clear_point(world, int(number))


def _clear_point(world: World, number: int) -> None:
    """Reset the slots of a point's job, and the packet numbers kept for the workers there."""
    point = world.points[number]
    job = world.jobs[point.job]
    first = 2 * (int(point.register_base) + int(job.slot_base))
    registers.clear(world.registers, slice(first, first + 2 * int(job.window) * int(job.unit_packets)))
    for row in np.flatnonzero(world.streams["point"] == number):
        world.windows["switch_expected_psn"][row] = -1
        world.windows["switch_psn"][row] = 0


# What the engine derives from a schedule alone: who waits for whom. It is kept as long as the schedule.


class Derived(NamedTuple):
    """Tables of a schedule that operations share."""

    planned: Table  # (T + 1,)
    waiters: NDArray[np.int32]
    roots: NDArray[np.int32]  # transfers that wait for none, by worker
    first_root: NDArray[np.int64]  # (workers + 1,)
    waits: NDArray[np.int32]  # (T,) how many transfers each waits for
    received: NDArray[np.int64]  # (workers,) transfers to each
    lanes: int


_KEPT: WeakKeyDictionary[Schedule, Derived] = WeakKeyDictionary()


def derive(schedule: Schedule) -> Derived:
    """The tables of a schedule, made once."""
    if schedule not in _KEPT:
        _KEPT[schedule] = _derive(schedule)
    return _KEPT[schedule]


def _derive(schedule: Schedule) -> Derived:
    count = schedule.transfers
    planned = records(count + 1, rows.PLANNED)
    for name in ("source", "target", "first", "count", "step", "merges", "lane", "follows"):
        planned[name][:count] = getattr(schedule, name)
    planned["channel"][:count] = 0 if schedule.channel is None else schedule.channel
    waits = np.diff(schedule.waits_first).astype(np.int32)
    numbers = np.repeat(np.arange(count, dtype=np.int32), waits)
    order = np.argsort(schedule.waits_for, kind="stable")
    planned["first_waiter"] = _begins(schedule.waits_for, count)
    _link_followers(planned[:count], schedule.follows)
    roots = np.flatnonzero(waits == 0)
    sources = schedule.source[roots]
    by_source = np.argsort(sources, kind="stable")
    return Derived(
        planned,
        np.ascontiguousarray(numbers[order]),
        roots[by_source].astype(np.int32),
        _begins(sources, schedule.workers),
        waits,
        np.bincount(schedule.target, minlength=schedule.workers),
        int(schedule.lane.max(initial=NONE)) + 1,
    )


def _begins(values: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """(count + 1,) where each of the numbers 0 … count − 1 begins among sorted values."""
    begins = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(values, minlength=count), out=begins[1:])
    return begins


def _link_followers(planned: Table, follows: NDArray[np.int32]) -> None:
    """Link the transfers that follow the same one, in the order of their numbers."""
    planned["first_follower"], planned["next_follower"] = NONE, NONE
    followers = np.flatnonzero(follows != NONE)
    followers = followers[np.argsort(follows[followers], kind="stable")]
    leaders = follows[followers]
    is_first = np.append(True, leaders[1:] != leaders[:-1])[: leaders.size]
    planned["first_follower"][leaders[is_first]] = followers[is_first]
    planned["next_follower"][followers[:-1][~is_first[1:]]] = followers[1:][~is_first[1:]]


# References to arrays whose addresses are in the engine's tables or packets, against garbage collection.


class KeepAlive:
    """Keeps references to pinned buffers as long as the engine may read or write them.

    A worker's packets travel in order, so when a stream has ended no packet of the previous one is left
    (packets for slots with timers carry copies). The engine ignores packets of a closed flow. A parameter
    server remembers two streams. Tables of TABLE_ADD are small and shared, and are never released.
    """

    def __init__(self) -> None:
        self._latest: defaultdict[tuple[str, int], deque[object]] = defaultdict(lambda: deque(maxlen=2))
        self._tables: dict[int, object] = {}  # tables of TABLE_ADD by their `id`

    def stream(self, row: int, segments: list[Segment], scaled: Scaled | None) -> None:
        """Pin the buffers of a worker's next stream."""
        self._latest["stream", row].append((segments, scaled))
        self._tables |= {
            id(segment.table): segment.table for segment in segments if segment.table is not None
        }

    def sums(self, job: int, arrays: list[object]) -> None:
        self._latest["sums", job].append(arrays)

    def flow(self, row: int, flow: Flow) -> None:
        self._latest["flow", row].append(flow)
