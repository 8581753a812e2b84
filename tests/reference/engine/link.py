"""Links in plain Python: packets, a wire and its queue, the way that a packet takes, and what strikes it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netfold.kernels.keyed_random import mix_plain, splitmix64_plain
from netfold.sim.engine.engine_data import Fate, Rule
from netfold.topologies.network import Network, next_links

BIT_PS_PER_BYTE = 8 * 10**12  # times a size in bytes, over a rate in bit/s: picoseconds


class Label(NamedTuple):
    """What the log calls a packet or timer."""

    owner: int
    unit: int = 0
    part: int = 0
    attempt: int = 0


@dataclass
class Packet:
    """One packet under way: `deliver` is called with it when it reaches `target`."""

    target: int
    route: int
    size_bytes: int  # on the wire
    key: int  # decides its fate
    label: Label
    deliver: Callable[[Packet], None]
    words: Sequence[int] = ()  # int32 values that a fault can strike; none: what a flow sends
    has_priority: bool = False  # acknowledgements
    starts_message: bool = False  # the first packet of a message of a host
    hops: int = 0  # links it was put on
    is_marked: bool = False  # found a long queue (ECN)
    copy: int = 0  # which copy of a packet it is or follows from; 0: of none
    entropy: int | None = None  # of a sprayed packet
    via: int | None = None  # the switch that it goes to first
    is_late: bool = False  # a fault has delayed its arrival
    lost: Callable[[], None] | None = None  # called when it is lost
    at_first: Callable[[Packet, int], None] | None = None  # called with it and its first switch
    is_adaptive: bool = False


@dataclass
class Counters:
    """What a link saw. sent = delivered + lost + in flight; dropped packets were never sent."""

    sent_packets: int = 0
    sent_bytes: int = 0
    delivered_packets: int = 0
    delivered_bytes: int = 0
    lost_packets: int = 0
    lost_bytes: int = 0
    dropped_packets: int = 0
    dropped_bytes: int = 0
    in_flight_packets: int = 0
    in_flight_bytes: int = 0
    busy_ps: int = 0  # transmit times of all sent packets, those still queued included
    backlog_bytes_max: int = 0  # most that there was to send, what was left of a packet on the wire included

    def count(self, what: str, size_bytes: int, packets: int = 1) -> None:
        """Add a packet of this size, or take it away (`packets` = -1)."""
        setattr(self, f"{what}_packets", getattr(self, f"{what}_packets") + packets)
        setattr(self, f"{what}_bytes", getattr(self, f"{what}_bytes") + packets * size_bytes)


@dataclass
class Queued:
    """A packet that a link has taken and not sent yet."""

    packet: Packet
    order: int
    late_ps: int = 0  # how much later than it would it arrives
    is_lost: bool = False  # it leaves, and never arrives


@dataclass
class Sending:
    """What a transmitter is at."""

    queued: Queued
    work: int  # what is left of it at `since_ps`: bits · 10^12
    since_ps: int
    ends_ps: int


@dataclass
class Link:
    """One direction of a wire, with its transmitter and the two queues in front of it."""

    index: int
    target: int
    rate_bps: int
    delay_ps: int
    buffer_bytes: int | None  # most that waits, the newest packet included; None: no limit
    packet_ps: int = 0  # what each packet takes besides its bytes
    message_ps: int = 0  # what the first packet of a message takes besides
    is_down: bool = False
    is_dead: bool = False  # down, and drops what is put on it
    sending: Sending | None = None
    acks: deque[Queued] = field(default_factory=deque)
    others: deque[Queued] = field(default_factory=deque)
    sizes: Counter[tuple[int, bool]] = field(default_factory=Counter)  # that wait, of size and first or not
    backlog_ps_max: int = 0  # inside a host
    counters: Counters = field(default_factory=Counters)

    @property
    def waiting(self) -> list[Queued]:
        """What has not begun yet, in the order in which it will."""
        return [*self.acks, *self.others]

    def backlog_ps(self, now_ps: int) -> int:
        """How long it takes, at the present rate, to send all that there is."""
        left_ps = self.sending.ends_ps - now_ps if self.sending else 0
        return left_ps + sum(count * self.takes_ps(*kind) for kind, count in self.sizes.items())

    def takes_ps(self, size_bytes: int, starts_message: bool) -> int:
        more_ps = self.packet_ps + self.message_ps * starts_message
        return transmit_time_ps(size_bytes, self.rate_bps) + more_ps

    def hold_ps(self, size_bytes: int) -> int:
        """Longest time, rounded down, that so many bytes in the queue take to leave."""
        return size_bytes * BIT_PS_PER_BYTE // self.rate_bps

    def refuses(self, packet: Packet, now_ps: int) -> bool:
        """Whether a packet finds no room; acknowledgements always do, unless the link has failed."""
        if self.is_dead:
            return True
        if self.buffer_bytes is None or packet.has_priority:
            return False
        if self.is_down:
            return packet.size_bytes + self.queued_bytes > self.buffer_bytes
        transmit_ps = self.takes_ps(packet.size_bytes, packet.starts_message)
        return self.backlog_ps(now_ps) + transmit_ps > self.hold_ps(self.buffer_bytes)

    def queued_ps(self, now_ps: int, grade_bytes: int = 0) -> int:
        """What switches compare that choose by queues, in whole grades of some bytes."""
        waits_ps = 2**50 if self.is_down else min(2**50, self.backlog_ps(now_ps))
        if grade_bytes and waits_ps < 2**50:
            waits_ps -= waits_ps % transmit_time_ps(grade_bytes, self.rate_bps)
        return waits_ps

    @property
    def queued_bytes(self) -> int:
        """What has not begun yet."""
        return sum(count * size_bytes for (size_bytes, _), count in self.sizes.items())

    def queue(self, queued: Queued, now_ps: int) -> None:
        kind = size_bytes, _ = kind_of(queued.packet)
        (self.acks if queued.packet.has_priority else self.others).append(queued)
        self.sizes[kind] += 1
        self.counters.busy_ps += self.takes_ps(*kind)
        self.counters.count("sent", size_bytes)
        backlog_bytes = self.queued_bytes
        if self.packet_ps or self.message_ps:
            self.backlog_ps_max = max(self.backlog_ps_max, self.backlog_ps(now_ps))
            backlog_bytes = 0
        elif not self.is_down:
            backlog_bytes = self.backlog_ps(now_ps) * self.rate_bps // BIT_PS_PER_BYTE
        self.counters.backlog_bytes_max = max(self.counters.backlog_bytes_max, backlog_bytes)

    def begin(self, now_ps: int) -> Sending | None:
        """Begin to send what is next; None where nothing is, or cannot."""
        queue = self.acks or self.others
        if self.is_down or self.sending or not queue:
            return None
        queued = queue.popleft()
        kind = kind_of(queued.packet)
        self.sizes[kind] -= 1
        work = queued.packet.size_bytes * BIT_PS_PER_BYTE
        self.sending = Sending(queued, work, now_ps, now_ps + self.takes_ps(*kind))
        return self.sending

    def set_rate(self, rate_bps: int, now_ps: int) -> Sending | None:
        """Go on at another rate, with what is left of the packet on the wire and all behind it."""
        assert self.packet_ps == self.message_ps == 0, "the rate of a host's work does not change"
        self.counters.busy_ps -= self.backlog_ps(now_ps)
        if self.sending:
            work = self.sending.work - (now_ps - self.sending.since_ps) * self.rate_bps
            self.sending = Sending(self.sending.queued, work, now_ps, now_ps + -(-work // rate_bps))
        self.rate_bps = rate_bps
        self.counters.busy_ps += self.backlog_ps(now_ps)
        return self.sending


def kind_of(packet: Packet) -> tuple[int, bool]:
    """What says how long a packet occupies a transmitter: its size, and whether it starts a message."""
    return packet.size_bytes, packet.starts_message


def transmit_time_ps(size_bytes: int, rate_bps: int) -> int:
    """Time on the wire, rounded up: a link is never faster than its rate."""
    return -(-size_bytes * BIT_PS_PER_BYTE // rate_bps)


def make_link(network: Network, index: int) -> Link:
    """Link `index` of a network, idle; a host's own window limits what waits in front of its link."""
    is_limited = not network.is_host[network.link_source[index]]
    return Link(
        index=index,
        target=int(network.link_target[index]),
        rate_bps=int(network.rate_bps[index]),
        delay_ps=int(network.delay_ps[index]),
        buffer_bytes=int(network.buffer_bytes[index]) if is_limited else None,
        packet_ps=network.work_ps(index),
        message_ps=network.work_ps(index, starts_message=True) - network.work_ps(index),
    )


KEY_SPRAY, KEY_VALIANT = 50, 51
DATA, ACK = 2, 3  # kinds of packets, as spraying draws for them


def entropy(network: Network, seed: int, flow_key: int, kind: int, packet: int, number: int) -> int | None:
    """What a packet that chooses for itself is told apart by; None where packets do not."""
    if not network.policy.is_sprayed:
        return None
    return mix_plain(seed, KEY_SPRAY, flow_key, kind, packet, number) >> 33


def choice(network: Network, node: int, target: int, key: int, *, is_sent_here: bool) -> int:
    """The link on which a node sends on a packet with this route or entropy.

    `is_sent_here`: the node is the ports of a server, and the packet comes from the server's host.
    """
    links = next_links(network, node, target)
    return links[number_of(node, key, is_sent_here=is_sent_here) % len(links)]


def number_of(node: int, key: int, *, is_sent_here: bool = False) -> int:
    return -1 - key if key < 0 else key if is_sent_here else splitmix64_plain(key * 2**32 + node)


def via(network: Network, source: int, target: int, route: int) -> int | None:
    """The switch through which a flow between hosts goes; None: straight on."""
    if network.detours is None:
        return None
    first_switch = int(network.is_host.sum())
    groups = {first_switch + index: group for index, group in enumerate(network.detours.group.tolist())}
    homes = [int(network.link_target[host]) for host in (source, target)]
    taken = {groups[home] for home in homes}
    others = sorted(set(groups.values()) - taken)
    if len(taken) == 1 or not others:
        return None
    draw = mix_plain(KEY_VALIANT, source, target, route)
    group = others[draw % len(others)]
    members = sorted(node for node in groups if groups[node] == group)
    hops = {node: hops_between(network, homes[0], node) for node in members}
    ends = [node for node in members if hops[node] == min(hops.values())]
    return ends[(draw >> 32) % len(ends)]


def hops_between(network: Network, node: int, target: int) -> int:
    """Hops of the ways from a switch to another; all have the same number."""
    count = 0
    while node != target:
        node = int(network.link_target[next_links(network, node, target)[0]])
        count += 1
    return count


DRAW_OF_FATE = 32  # plus the fate: what a packet's key is mixed with
DRAW_WORD, DRAW_BIT, DRAW_COPY = 40, 41, 42
KEY_CHAIN = 19


class Faults:
    """The rules of one network, and how many packets each struck."""

    def __init__(self, rules: Sequence[Rule], seed: int) -> None:
        self.rules = rules
        self.seed = seed
        self.struck_packets = [0] * len(rules)
        self.states: dict[tuple[int, int], list[bool]] = {}  # by rule and link: what packets found, "bad"

    def strike(self, link: int, key: int, hop: int, now_ps: int) -> Rule | None:
        """The rule that strikes a packet on its hop number `hop`, None if it gets through unharmed."""
        for number, rule in self._counting(link, now_ps):
            probability = rule.probability
            if rule.burst and not self._is_bad(number, link):
                probability = rule.burst.loss_good
            if draw(rule.fate, key, hop) < int(probability * 2.0**64):  # exact: times a power of two
                self.struck_packets[number] += 1
                return rule
        return None

    def _is_bad(self, number: int, link: int) -> bool:
        """Whether the next packet finds a link's chain in its bad state."""
        burst = self.rules[number].burst
        assert burst is not None
        states = self.states.setdefault((number, link), [])
        chance = mix_plain(self.seed, KEY_CHAIN, number, link, len(states))
        if not states:
            is_bad = chance < int(burst.bad_share * 2.0**64)
        elif states[-1]:
            is_bad = chance < 2**64 - 1 - min(2**64 - 1, int(burst.bad_to_good * 2.0**64))
        else:
            is_bad = chance < int(burst.good_to_bad * 2.0**64)
        states.append(is_bad)
        return is_bad

    def _counting(self, link: int, now_ps: int) -> Iterator[tuple[int, Rule]]:
        """Rules that count on a link now: of each fate the first, in the order of all rules."""
        seen: set[Fate] = set()
        for number, rule in enumerate(self.rules):
            if link in rule.links and rule.from_ps <= now_ps < rule.until_ps and rule.fate not in seen:
                seen.add(rule.fate)
                yield number, rule


def draw(fate: Fate, key: int, hop: int) -> int:
    """64 bits that decide whether a fate strikes."""
    if fate is Fate.LOSS:
        return mix_plain(key, hop)
    return mix_plain(key, hop, DRAW_OF_FATE + fate)


def flipped(words: Sequence[int], key: int, hop: int) -> list[int]:
    """int32 words, one or more, with one bit of one of them inverted."""
    struck = list(words)
    index = mix_plain(key, hop, DRAW_WORD) % len(words)
    pattern = (struck[index] % 2**32) ^ (1 << mix_plain(key, hop, DRAW_BIT) % 32)
    struck[index] = pattern - 2**32 * (pattern >= 2**31)
    return struck


def copy_key(key: int, hop: int) -> int:
    """Key of the copy that DUPLICATE makes of a packet."""
    return mix_plain(key, DRAW_COPY, hop)
