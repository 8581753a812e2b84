"""Allocate and enlarge the engine's tables; compiled code never does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.interface import BACKLOG_MAX_PS, RULES_MAX, Flow, Rule
from netfold.sim.engine.links.link import PS_BYTES
from netfold.sim.engine.loop.cold_handlers import rare_handler, schedules_handler
from netfold.sim.engine.tables import flow_rows, rows
from netfold.sim.engine.tables.world import (
    DETOURED,
    NEVER,
    PLAIN,
    SPRAYED,
    Table,
    World,
    empty_world,
    records,
)
from netfold.topologies.network import Network


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
    clock.rare, clock.schedules = rare_handler(), schedules_handler()
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
    clock.hosts_count, clock.policy = fabric.hosts_count, SPRAYED if network.policy.is_sprayed else PLAIN
    choice = tables.choice
    if cards.size:  # cards have a row for all of them, which leads nowhere (`forward.next_link`)
        choice = np.concatenate([choice, np.zeros((1, fabric.switches_count), choice.dtype)])
    sets = tables.sets.copy()
    owner = np.repeat(np.arange(tables.first_set.size), np.diff(tables.first_set, append=len(sets)))
    sets[np.isin(owner + fabric.hosts_count, [*network.server_ports]), 1] *= -1  # see `flows.way_of`
    world = world._replace(nodes=nodes, choice=choice, sets=sets, ports=tables.ports)
    if detours is None:
        return world
    clock.policy, clock.groups_count = DETOURED, detours.groups_count
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
    """A probability as the integer that 64 random bits are compared with."""
    return min(2**64 - 1, int(probability * 2.0**64))


def write_flow(world: World, row: int, number: int, flow: Flow) -> None:
    """Fill a flow's row, except its addresses."""
    entry = world.flows[row]
    in_heap = entry.entry_ps, entry.entry_order
    world.flows[row] = np.zeros((), flow_rows.FLOW)
    world.flights["received"][row] = 0
    (entry.entry_ps, entry.entry_order), entry.armed_order = in_heap, -1
    for name in (
        "key",
        "words_count",
        "timeout_ps",
        "source",
        "target",
        "route",
        "window",
        "ack_every",
        "job",
        "waits_for_loss",
    ):
        entry[name] = getattr(flow, name)
    for name in ("elements", "overhead_bytes", "first_bytes", "last_bytes", "ack_bytes"):
        entry[name] = getattr(flow.frame, name)
    entry.ack_route = flow.route_back
    entry.source_link = world.nodes[flow.source].first_set
    entry.target_link = world.nodes[flow.target].first_set
    entry.packets_count = max(1, -(-flow.words_count // flow.frame.elements))
    entry.serial = number
    entry.schedule, entry.opened_ps = -1, world.clock[0].now_ps


def add_flows(world: World, count: int, window: int) -> World:
    """World with at least `count` flows and windows of `window`; positions in windows do not change."""
    old, clock = world.flows.size, world.clock[0]
    count, columns = max(count, old), max(window, world.flights.shape[1])
    flights = records((count, columns), flow_rows.FLIGHT)
    flights[:old, : world.flights.shape[1]] = world.flights
    flows = enlarged(world.flows, count)
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
    packets = enlarged(world.packets, old + count)
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
    clock = world.clock[0]
    if clock.packet_free_count < packets_count:
        world = add_packets(world, max(packets_count, world.packets.size))
    if clock.payload_free_count < payloads_count:
        world = add_payloads(world, max(payloads_count, world.payloads.shape[0]))
    if clock.heap_count + packets_count + 8 > world.heap.size:
        world = world._replace(heap=enlarged(world.heap, 2 * world.heap.size + packets_count))
    if clock.done_count + 8 > world.done.size:
        world = world._replace(done=enlarged(world.done, 2 * world.done.size))
    if clock.is_logging and clock.log_count >= world.log.size:
        world = world._replace(log=enlarged(world.log, 2 * world.log.size + 4096))
    return world


def enlarged(table: Table, count: int) -> Table:
    """A longer table that begins with the old rows."""
    larger = records(count, table.dtype)
    larger[: table.size] = table
    return larger


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
