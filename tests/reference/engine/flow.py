"""Reliable unicast in plain Python: docs/explanation/engine/flows-and-schedules.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from netfold.kernels.keyed_random import mix_plain
from netfold.sim.engine.engine_data import Flow
from netfold.topologies.routing import Steering
from tests.reference.engine.congestion_policies import POLICIES
from tests.reference.engine.fabric import FLOW_TIMER, Fabric, Timer
from tests.reference.engine.link import ACK, DATA, Label, Packet, choice, entropy, hops_between, via

KEY_DATA, KEY_ACK, KEY_FLOWLET = 3, 4, 57


class Receiver:
    """The target's side of a flow.

    `acknowledge(expected, packet, transmission, copy, marked)` sends an ACK. `marked` says that the packet or
    one since the last ACK was marked.
    """

    def __init__(
        self,
        flow: Flow,
        packets: int,
        acknowledge: Callable[[int, int, int, int, bool], None],
        delivered: Callable[[], None],
    ) -> None:
        self.flow = flow
        self.packets = packets
        self.acknowledge = acknowledge
        self.delivered = delivered
        self.arrived = [False] * packets
        self.expected = 0
        self.unacknowledged = 0
        self.is_marked = False  # whether a packet was, since the last ACK
        self.newest = -1  # the latest transmission that has arrived
        self.reordered_packets = 0
        self.spurious_retransmissions = 0

    def data(self, packet: int, transmission: int, copy: int, is_marked: bool) -> None:
        """Take in one packet; a duplicate is only acknowledged."""
        self.is_marked |= is_marked
        self.reordered_packets += transmission < self.newest
        self.newest = max(self.newest, transmission)
        if self.arrived[packet]:
            self.spurious_retransmissions += copy == 0
            self._acknowledge(packet, transmission, copy)
            return
        self._store(packet)
        self.arrived[packet] = True
        self.unacknowledged += 1
        before = self.expected
        while self.expected < self.packets and self.arrived[self.expected]:
            self.expected += 1
        complete = self.expected == self.packets
        if self.expected != before + 1 or self.unacknowledged == self.flow.sender.ack_every or complete:
            self._acknowledge(packet, transmission, copy)
        if complete:
            self.delivered()

    def _acknowledge(self, packet: int, transmission: int, copy: int) -> None:
        self.acknowledge(self.expected, packet, transmission, copy, self.is_marked)
        self.unacknowledged, self.is_marked = 0, False

    def _store(self, packet: int) -> None:
        flow = self.flow
        if flow.words is None or flow.received is None:
            return
        start = packet * flow.sender.frame.elements
        end = min(start + flow.sender.frame.elements, flow.words_count)
        flow.received.view(np.int32)[start:end] = flow.words.view(np.int32)[start:end]


class Sender:
    """The source's side of a flow, and the way of its packets and ACKs."""

    def __init__(self, fabric: Fabric, flow: Flow, number: int, delivered: Callable[[], None]) -> None:
        self.fabric = fabric
        self.flow = flow
        self.number = number
        self.packets = max(1, -(-flow.words_count // flow.sender.frame.elements))
        self.receiver = Receiver(flow, self.packets, self._send_ack, delivered)
        self.timer = Timer(FLOW_TIMER, Label(number), self._time_out, flow.source)
        self.base = 0  # all before are acknowledged
        self.next = 0  # all before were sent
        self.acknowledged = [False] * self.packets
        self.attempts = [0] * self.packets  # how often each packet was sent
        self.latest = [-1] * self.packets  # transmission number of each packet's last copy
        self.transmissions = 0
        self.deadline_ps = 0
        self.backoff = 0
        self.policy = POLICIES[flow.sender.policy](flow.sender, flow.sender.window)
        self.closed = False
        self.opened_ps = fabric.now_ps
        self.timeouts = 0
        self.retransmitted_packets = 0
        self.is_fifo = not fabric.network.policy.reorders
        self.flowlets: dict[int, tuple[int, int]] = {}  # by kind: time of the last packet, and its flowlet
        self.lost: set[int] = set()  # packets whose latest copy is lost, where they may overtake each other

    @property
    def counters(self) -> dict[str, int]:
        return {
            "timeouts": self.timeouts,
            "retransmitted_packets": self.retransmitted_packets,
            "reordered_packets": self.receiver.reordered_packets,
            "spurious_retransmissions": self.receiver.spurious_retransmissions,
        }

    def open(self) -> None:
        """Send the first window; a crashed source sends nothing, ever."""
        if self.flow.source in self.fabric.crashed:
            return
        self.policy.opened()
        self._pump()
        self.deadline_ps = self.fabric.now_ps + self.flow.sender.timeout_ps
        self.fabric.arm(self.timer, self.deadline_ps)

    def ack(self, cumulative: int, packet: int, transmission: int, marked: bool) -> None:
        """Take in an ACK: slide the window, and send again what is lost."""
        if packet >= self.base:
            self.acknowledged[packet] = True
        if cumulative > self.base:
            self.policy.acknowledged(self.base, cumulative - 1, marked)
            self.base = cumulative
            self.deadline_ps = self.fabric.now_ps + self.flow.sender.timeout_ps
            self.backoff = 0
        if self.base == self.packets:
            self.closed = True
            self.fabric.disarm(self.timer)
            return
        if self.is_fifo:
            for earlier in range(self.base, packet):
                if self.latest[earlier] < transmission:
                    self.lost.add(earlier)
        lost, self.lost = sorted(self.lost), set()
        for earlier in lost:
            if not self.acknowledged[earlier] and earlier >= self.base:
                self._send(earlier)
        self._pump()

    def _pump(self) -> None:
        while self.next < min(self.packets, self.base + self.policy.window):
            self._send(self.next)
            self.next += 1
        self.policy.sent_up_to(self.next)

    def _time_out(self) -> None:
        is_vain = self.flow.sender.waits_for_loss and self.fabric.lost_ps < self.opened_ps
        if is_vain and self.deadline_ps <= self.fabric.now_ps:
            self.deadline_ps = self.fabric.now_ps + self.flow.sender.timeout_ps
        elif self.deadline_ps <= self.fabric.now_ps:
            self.backoff += 1
            self.timeouts += 1
            for packet in range(self.base, self.next):
                if not self.acknowledged[packet]:
                    self._send(packet)
            timeout_ps = self.policy.timeout_ps(self.flow.sender.timeout_ps, self.backoff)
            self.deadline_ps = self.fabric.now_ps + timeout_ps
        self.fabric.arm(self.timer, self.deadline_ps)

    def _send(self, packet: int) -> None:
        flow, frame = self.flow, self.flow.sender.frame
        transmission = self.transmissions
        self.transmissions += 1
        self.latest[packet] = transmission
        self.lost.discard(packet)
        attempt = self.attempts[packet]
        self.attempts[packet] += 1
        self.retransmitted_packets += attempt > 0
        count = min(frame.elements, flow.words_count - packet * frame.elements)
        size_bytes = frame.wire_bytes(count, first=packet == 0, last=packet == self.packets - 1)
        key = self.fabric.key(KEY_DATA, flow.key, packet, attempt)
        label = Label(self.number, packet, 0, attempt)

        def note_loss() -> None:
            if not self.is_fifo and self.latest[packet] == transmission:
                self.lost.add(packet)

        def deliver(arrived: Packet) -> None:
            if not self.closed:
                self.receiver.data(packet, transmission, arrived.copy, arrived.is_marked)

        sent = Packet(flow.target, flow.route, size_bytes, key, label, deliver, lost=note_loss)
        sent.starts_message = packet == 0
        self._steer(sent, flow.source, DATA, attempt)
        self.fabric.forward(sent, flow.source)

    def _steer(self, packet: Packet, source: int, kind: int, number: int) -> None:
        network = self.fabric.network
        steering = network.policy.steering
        packet.entropy = entropy(network, self.fabric.seed, self.flow.key, kind, packet.label.unit, number)
        packet.is_adaptive = steering is Steering.ADAPTIVE
        if steering is Steering.DETOURED:
            packet.via = via(network, source, packet.target, packet.route)
        elif steering is Steering.UGAL:
            packet.at_first = partial(self._go_the_shorter_way, source)
        elif steering is Steering.FLOWLETS:
            packet.at_first = partial(self._choose_flowlet, kind)

    def _go_the_shorter_way(self, source: int, packet: Packet, node: int) -> None:
        """UGAL-L: the product of queue and hops decides between the minimal way and that of Valiant."""
        network, key, now_ps = self.fabric.network, packet.entropy, self.fabric.now_ps
        assert key is not None
        between = via(network, source, packet.target, key)
        if between is None:
            return
        straight_ps, around_ps = (
            self.fabric.links[choice(network, node, goal, key, is_sent_here=False)].queued_ps(now_ps)
            for goal in (packet.target, between)
        )
        home = int(network.link_target[packet.target])
        hops = hops_between(network, node, between) + hops_between(network, between, home)
        if straight_ps * hops_between(network, node, home) > around_ps * hops:
            packet.via = between

    def _choose_flowlet(self, kind: int, packet: Packet, _: int) -> None:
        """A new flowlet, on a path of its own, begins after a pause; an ACK is none of its flow's packets."""
        if self.closed:
            return
        last_ps, number = self.flowlets.get(kind, (self.fabric.now_ps, 0))
        number += self.fabric.now_ps - last_ps > self.fabric.network.policy.gap_ps
        self.flowlets[kind] = self.fabric.now_ps, number
        if number:
            draw = mix_plain(self.fabric.seed, KEY_FLOWLET, self.flow.key, kind, number) >> 34
            packet.route = draw - draw % 840 + packet.route % 840

    def _send_ack(self, cumulative: int, packet: int, transmission: int, copy: int, marked: bool) -> None:
        flow = self.flow
        key = self.fabric.key(KEY_ACK, flow.key, packet, transmission, copy=copy)
        label = Label(self.number, packet, 1, transmission)

        def deliver(_: Packet) -> None:
            if not self.closed:
                self.ack(cumulative, packet, transmission, marked)

        size_bytes = flow.sender.frame.ack_bytes
        ack = Packet(
            flow.source, flow.route_back, size_bytes, key, label, deliver, has_priority=True, copy=copy
        )
        self._steer(ack, flow.target, ACK, transmission)
        self.fabric.forward(ack, flow.target)
